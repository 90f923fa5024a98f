"""Increments that do not fit their source, their target or one another."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake, one_of
from odi_assets.config.diagnostics.partial_project import NodeView, Outline
from odi_assets.config.models import (
    FileFormat,
    FilesIncrement,
    OnNull,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
    WriteMode,
)
from odi_assets.config.yaml.document import Path

Increment = StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement


def _increments(node: NodeView) -> Iterator[tuple[Path, Increment]]:
    if node.read is not None and node.read.incremental is not None:
        yield (*node.path, "read", "incremental"), node.read.incremental
    for view, given in node.inputs.items():
        if given.incremental is not None:
            yield (*node.path, "inputs", view, "incremental"), given.incremental


def _remembered(node: NodeView) -> Iterator[tuple[Path, StatefulIncrement | FilesIncrement | VersionIncrement]]:
    """Yield the increments that keep a high-water mark."""
    for path, increment in _increments(node):
        if not isinstance(increment, RollingWindowIncrement):
            yield path, increment


def shared_state_keys(outline: Outline) -> Iterator[Finding]:
    """Find nodes that would move one high-water mark."""
    owners: dict[str, NodeView] = {}
    for node in outline.by_name.values():
        for path, increment in _remembered(node):
            key = increment.state_key or f"{node.pipeline}.{node.name}"
            owner = owners.setdefault(key, node)
            if owner is not node:
                shown = f"{owner.pipeline}.{owner.shown}"
                message = f"node `{shown}` has this state key too: two nodes would move one high-water mark"
                yield Finding((*path, "state_key") if increment.state_key else path, Mistake(message))


def several_increments(outline: Outline) -> Iterator[Finding]:
    """Find nodes whose increments do not go together.

    Rows that only two sources together make cannot be appended: what is new in one meets old rows of the other. Nor can
    two sources have a state key each: a node has one high-water mark, which holds the positions of all its sources.
    """
    for node in outline.nodes:
        remembered = list(_remembered(node))
        mode = node.write.mode if node.write is not None else None
        for path, _ in remembered[1:]:
            if mode is not None and mode.traits.increment == "rows":
                text = f"a second increment: `{mode}` would miss new rows that meet old ones of the other source; read"
                others = one_of(other for other in WriteMode if other.traits.increment == "partitions")
                message = f"{text} one of them whole, or write with {others}"
                yield Finding(path, Mistake(message))
        named = [(path, increment.state_key) for path, increment in remembered if increment.state_key]
        for path, key in named[1:]:
            if key != named[0][1]:
                message = "a second state key: a node has one high-water mark, for all of its sources"
                yield Finding((*path, "state_key"), Mistake(message))


def formats(outline: Outline) -> Iterator[Finding]:
    """Find increments that the format of the source does not have."""
    for node in outline.nodes:
        if node.read is None or node.read.incremental is None:
            continue
        path = (*node.path, "read", "incremental", "mode")
        is_delta = node.read.format is FileFormat.DELTA
        if isinstance(node.read.incremental, VersionIncrement) and not is_delta:
            message = f"`version` counts the commits of a Delta table, and `{node.read.format}` has none: use `files`"
            yield Finding(path, Mistake(message))
        if isinstance(node.read.incremental, FilesIncrement) and is_delta:
            message = "`files` would read the files of a Delta table past its log: use `version`"
            yield Finding(path, Mistake(message))


def repeated_rows(outline: Outline) -> Iterator[Finding]:
    """Find increments that read rows again, where nothing tells which of them are in the target."""
    for node in outline.nodes:
        if node.write is None or node.write.mode.traits.takes_rows_again:
            continue
        repeats = f"`{node.write.mode}` would repeat them: name `write.keys`, or use `upsert` or `append_once`"
        for path, increment in _increments(node):
            if isinstance(increment, RollingWindowIncrement):
                message = f"`{node.write.mode}` repeats the rows of a rolling window at every run"
                yield Finding((*path, "mode"), Mistake(f"{message}: use `upsert` or `append_once`"))
            if not isinstance(increment, StatefulIncrement) or node.write.keys:
                continue
            if increment.watermark_lag:
                yield Finding((*path, "watermark_lag"), Mistake(f"a lag reads rows again, and {repeats}"))
            if increment.on_null is OnNull.INCLUDE:
                yield Finding(
                    (*path, "on_null"), Mistake(f"rows without a cursor are read at every run, and {repeats}")
                )
