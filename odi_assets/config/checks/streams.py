"""Stream nodes: settings that do not fit the node's inputs or its table, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odi_assets.config.checks.view import NodeView
from odi_assets.config.diagnostics.mistakes import Mistake, about, closest
from odi_assets.config.models import StreamSettings, WriteMode

_MODES: dict[WriteMode, tuple[str, ...]] = {
    WriteMode.APPEND: ("append",),
    WriteMode.APPEND_ONCE: ("append",),
    WriteMode.UPSERT: ("append", "update"),
    WriteMode.OVERWRITE: ("complete",),
    WriteMode.PARTITION_OVERWRITE: (),
}
"""By write mode, the output modes whose batches it can take."""


def mistakes_of(node: NodeView) -> Iterator[Mistake]:
    """Find what is wrong with the stream settings of a node, and inputs that only a stream node may have."""
    stream = node.config.stream
    if stream is None:
        text = "is for stream nodes: add `stream: {}`, or give it as `read` of the node"
        for view in (view for view, node_input in node.config.inputs.items() if node_input.read is not None):
            yield Mistake(text, at=(*node.path, "inputs", view, "read"), where="key")
        return
    yield from _unknown_inputs(node, stream)
    yield from _not_for_streams(node)
    yield from _output_mode(node, stream)
    for at, read in node.config.reads.items():
        yield from (replace(mistake, at=(*node.path, *at, *mistake.at)) for mistake in read.stream_mistakes())


def _unknown_inputs(node: NodeView, stream: StreamSettings) -> Iterator[Mistake]:
    views = [*(["df"] if node.config.read is not None else []), *node.config.inputs]
    for name in stream.inputs:
        if name not in views:
            text = f"is no input of the node; there {'is' if len(views) == 1 else 'are'} {', '.join(views) or 'none'}"
            at = (*node.path, "stream", "inputs", name)
            meant = closest(name, views)
            yield Mistake(f"`{name}` {text}", plain=text, at=at, suggestion=meant, where="key")


def _not_for_streams(node: NodeView) -> Iterator[Mistake]:
    for at in node.config.increments:
        yield Mistake(
            "a stream goes on from its checkpoint: leave `incremental` out", at=(*node.path, *at), where="key"
        )
    if node.config.partition is not None:
        text = "a stream has no partitions to backfill: leave `partition` out, or give `write.partition_by`"
        yield Mistake(text, at=(*node.path, "partition"), where="key")


def _output_mode(node: NodeView, stream: StreamSettings) -> Iterator[Mistake]:
    mode, modes = node.config.write.mode, _MODES[node.config.write.mode]
    if not modes:
        yield Mistake(f"`{mode}` needs all rows of a partition, and a batch has the new ones", at=_mode_of(node))
    elif stream.output_mode not in modes:
        text = f"gives rows that `mode: {mode}` cannot take: "
        needs = {"append": "append, append_once or upsert", "update": "upsert", "complete": "overwrite"}
        text += f"write with `{needs[stream.output_mode]}`, or set `output_mode: {modes[0]}`"
        is_set = "output_mode" in stream.model_fields_set
        at = (*node.path, "stream", "output_mode") if is_set else _mode_of(node)
        yield about(stream.output_mode, text, at=at)


def _mode_of(node: NodeView) -> tuple[str | int, ...]:
    return (*node.path, "write", "mode")
