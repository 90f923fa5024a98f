"""Settings of a stream node that the rows in its state or table depend on, compared with its last batch's.

Spark notes none of them in the checkpoint: it would go on, and lose or repeat rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.checkpoints import inspect
from odi_assets.config.models import NodeConfig, WriteMode
from odi_assets.errors import CheckpointError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, code_version
from odi_assets.streams.planning.marks import StreamMarks

_OUTPUT, _KEYS = "stream.output_mode", "write.keys"
_SAME_IN_ALL_MODES = {"dedupe", "dedupeWithinWatermark", "symmetricHashJoin"}
"""Operators that give the same rows in each output mode that Spark lets them run in."""
_AGGREGATION = "stateStoreSave"


def compared_settings(config: NodeConfig) -> dict[str, Any]:
    """The settings of a stream node that its next batch is compared with, by their keys in the project file."""
    stream, write = config.stream, config.write
    assert stream is not None
    settings: dict[str, Any] = {_OUTPUT: stream.output_mode}
    if write.mode.traits.needs_keys:
        settings[_KEYS] = sorted(key.lower() for key in write.keys)
    for name, stream_input in sorted(stream.inputs.items()):
        if stream_input.watermark is not None:
            settings[f"stream.inputs.{name}.watermark.column"] = stream_input.watermark.column.lower()
    return settings


def require_settings_hold(node: Node, marks: StreamMarks) -> None:
    """Compare the settings of a node with its last batch's.

    Raises:
        CheckpointError: rows would be lost, or be there twice.
    """
    if marks.last is None or marks.stamp is None:
        return
    facts = CommitFacts.of(marks.stamp)
    if facts.code_version == code_version(node.project, node.key):
        return
    before, now = marks.last.settings or _settings_of_before(facts), compared_settings(node.config)
    changed = {key: (before[key], now[key]) for key in before.keys() & now.keys() if before[key] != now[key]}
    if not changed:
        return
    with marks.log.readable() as checkpoint:
        operators = set() if checkpoint is None else {operator.name or "" for operator in inspect(checkpoint).operators}
    for key, why in _harms(node.config.write.mode, changed, operators, has_watermark=marks.last.watermark_ms > 0):
        was, is_now = (_shown(value) for value in changed[key])
        raise CheckpointError(
            f"{node}: `{key}` was {was} in its last batch and is {is_now} now: {why}",
            fix=f"put `{key}` back, or start over: odi run {node.command} --full-refresh",
            path=marks.log.location.uri,
            node=str(node),
        )


def _settings_of_before(facts: CommitFacts) -> Mapping[str, Any]:
    """What the last batch shows of its settings, if a version of odi_assets wrote it that did not note them."""
    is_append = facts.mode in (WriteMode.APPEND.value, WriteMode.APPEND_ONCE.value)
    return {_OUTPUT: "append"} if is_append else {}


def _harms(
    mode: WriteMode, changed: Mapping[str, tuple[Any, Any]], operators: set[str], *, has_watermark: bool
) -> Iterator[tuple[str, str]]:
    """The settings that the query cannot go on with, and why."""
    if _OUTPUT in changed:
        why = _harm_of_mode(*changed[_OUTPUT], mode, operators, has_watermark=has_watermark)
        if why is not None:
            yield _OUTPUT, why
    if _KEYS in changed:
        yield _KEYS, "rows in the table are known by the former keys, so others would be replaced or left out"
    if operators:
        for key in sorted(changed.keys() - {_OUTPUT, _KEYS}):
            yield key, "the watermark and the state are of the former column"


def _harm_of_mode(before: str, now: str, mode: WriteMode, operators: set[str], *, has_watermark: bool) -> str | None:
    """Why a query cannot go on in another output mode; None if it can."""
    if operators <= _SAME_IN_ALL_MODES:
        return None
    if operators - _SAME_IN_ALL_MODES != {_AGGREGATION}:
        return "its state was made for the former mode"
    if before == "append":
        return (
            "groups that the watermark had not passed are in the state alone, and would be lost"
            if now == "update"
            else "groups that were written have left the state, and the table would be replaced without them"
        )
    if now == "append":
        return None if mode is WriteMode.UPSERT else "groups that were written would be written once more"
    if now == "complete" and has_watermark:
        return "groups that the watermark passed have left the state, and the table would be replaced without them"
    return None


def _shown(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) else f"[{', '.join(value)}]"
