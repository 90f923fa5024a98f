"""Increments that do not fit their source, their target or one another."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.partial_project import PartialNode, PartialProject
from odi_assets.config.diagnostics.mistakes import Mistake, Path, one_of
from odi_assets.config.models import (
    FileFormat,
    FilesIncrement,
    OnNull,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
    WriteMode,
)

Increment = StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement


def _increments(node: PartialNode) -> Iterator[tuple[Path, Increment]]:
    if node.read is not None and node.read.incremental is not None:
        yield (*node.path, "read", "incremental"), node.read.incremental
    for view, given in node.inputs.items():
        if given.incremental is not None:
            yield (*node.path, "inputs", view, "incremental"), given.incremental


def _remembered(node: PartialNode) -> Iterator[tuple[Path, StatefulIncrement | FilesIncrement | VersionIncrement]]:
    """Yield the increments that keep a high-water mark."""
    for path, increment in _increments(node):
        if not isinstance(increment, RollingWindowIncrement):
            yield path, increment


def shared_state_keys(project: PartialProject) -> Iterator[Mistake]:
    """Find nodes that would move one high-water mark."""
    owners: dict[str, PartialNode] = {}
    for node in project.by_name.values():
        for path, increment in _remembered(node):
            key = increment.state_key or f"{node.pipeline}.{node.name}"
            owner = owners.setdefault(key, node)
            if owner is not node:
                message = f"node `{owner.shown}` has this state key too: two nodes would move one high-water mark"
                yield Mistake(message, at=(*path, "state_key") if increment.state_key else path)


def several_increments(project: PartialProject) -> Iterator[Mistake]:
    """Find nodes whose increments do not go together.

    Rows that only two sources together make cannot be appended: what is new in one meets old rows of the other. Nor can
    two sources have a state key each: a node has one high-water mark, which holds the positions of all its sources.
    """
    for node in project.nodes:
        remembered = list(_remembered(node))
        mode = node.write.mode if node.write is not None else None
        for path, _ in remembered[1:]:
            if mode is not None and mode.traits.increment == "rows":
                text = f"a second increment: `{mode}` would miss new rows that meet old ones of the other source; read"
                others = one_of(other for other in WriteMode if other.traits.increment == "partitions")
                yield Mistake(f"{text} one of them whole, or write with {others}", at=path)
        named = [(path, increment.state_key) for path, increment in remembered if increment.state_key]
        for path, key in named[1:]:
            if key != named[0][1]:
                message = "a second state key: a node has one high-water mark, for all of its sources"
                yield Mistake(message, at=(*path, "state_key"))


def formats(project: PartialProject) -> Iterator[Mistake]:
    """Find increments that the format of the source does not have."""
    for node in project.nodes:
        increment = node.read.incremental if node.read is not None else None
        if node.read is None or increment is None or increment.mode in node.read.format.increments:
            continue
        of_format = _NOT_OF_A_DATABASE if node.read.format is FileFormat.SQL else _NOT_OF_THIS_FORMAT[increment.mode]
        message = of_format.format(format=node.read.format, mode=increment.mode)
        yield Mistake(message, at=(*node.path, "read", "incremental", "mode"))


_NOT_OF_A_DATABASE = "`{mode}` is for files and Delta tables: a database is followed by a column, with `stateful`"
_NOT_OF_THIS_FORMAT = {
    "version": "`version` counts the commits of a Delta table, and `{format}` has none: use `files`",
    "files": "`files` would read the files of a Delta table past its log: use `version`",
}


def repeated_rows(project: PartialProject) -> Iterator[Mistake]:
    """Find increments that read rows again, where nothing tells which of them are in the target."""
    for node in project.nodes:
        if node.write is None or node.write.mode.traits.takes_rows_again:
            continue
        repeats = f"`{node.write.mode}` would repeat them: name `write.keys`, or use `upsert` or `append_once`"
        for path, increment in _increments(node):
            if isinstance(increment, RollingWindowIncrement):
                message = f"`{node.write.mode}` repeats the rows of a rolling window at every run"
                yield Mistake(f"{message}: use `upsert` or `append_once`", at=(*path, "mode"))
            if not isinstance(increment, StatefulIncrement) or node.write.keys:
                continue
            if increment.watermark_lag:
                yield Mistake(f"a lag reads rows again, and {repeats}", at=(*path, "watermark_lag"))
            if increment.on_null is OnNull.INCLUDE:
                yield Mistake(f"rows without a cursor are read at every run, and {repeats}", at=(*path, "on_null"))
