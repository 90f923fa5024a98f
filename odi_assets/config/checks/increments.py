"""Increments that do not fit their source or their target, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.compared_columns import identifying_columns, made_of
from odi_assets.config.diagnostics.mistakes import Mistake, about, one_of
from odi_assets.config.models import (
    CursorsIncrement,
    FilesIncrement,
    RollingWindowIncrement,
    StatefulIncrement,
    WriteMode,
)
from odi_assets.errors import ConfigError


def shared_state_keys(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes that would move one high-water mark."""
    owners: dict[str, NodeView] = {}
    for node in project.by_name.values():
        for path, state_key in node.config.state_keys.items():
            owner = owners.setdefault(state_key or f"{node.pipeline}.{node.config.name}", node)
            if owner is not node:
                message = f"node `{owner.shown}` has this state key too: two nodes would move one high-water mark"
                yield Mistake(message, at=(*node.path, *path, *(["state_key"] if state_key else [])))


def several_increments(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes whose increments do not go together.

    Rows that only two sources together make cannot be appended: what is new in one meets old rows of the other. Nor can
    two sources have a state key each: a node has one high-water mark, which holds the positions of all its sources.
    """
    for node in project.nodes:
        keys, mode = node.config.state_keys, node.config.write.mode
        for path in [*keys][1:] if mode.traits.increment == "rows" else []:
            text = f"a second increment: `{mode}` would miss new rows that meet old ones of the other source; read"
            others = one_of(other for other in WriteMode if other.traits.increment == "partitions")
            yield Mistake(f"{text} one of them whole, or write with {others}", at=(*node.path, *path))
        state_keys = {path: key for path, key in keys.items() if key}
        for path, key in state_keys.items():
            if key != next(iter(state_keys.values())):
                message = "a second state key: a node has one high-water mark, for all of its sources"
                yield Mistake(message, at=(*node.path, *path, "state_key"))


def formats(project: ProjectView) -> Iterator[Mistake]:
    """Find increments that a source does not have, and what else of a source does not fit its node."""
    for node in project.nodes:
        for at, read in node.config.reads.items():
            path, increment = (*node.path, *at), read.incremental
            connection = project.connection(read.connection)
            for mistake in read.mistakes_with(node.config, connection):
                yield replace(mistake, at=(*path, *mistake.at))
            if increment is not None and increment.mode not in read.INCREMENTS:
                yield Mistake(read.why_not_followed(increment.mode), at=(*path, "incremental", "mode"))


def repeated_rows(project: ProjectView) -> Iterator[Mistake]:
    """Find increments that read rows again, where it is not known which of them are in the target."""
    for node in project.nodes:
        write = node.config.write
        if write.mode.traits.takes_rows_again:
            continue
        repeats = f"`{write.mode}` would repeat them: name `write.keys`, or use `upsert` or `append_once`"
        for at, increment in node.config.increments.items():
            path = (*node.path, *at)
            if isinstance(increment, RollingWindowIncrement):
                message = f"`{write.mode}` repeats the rows of a rolling window at every run"
                yield Mistake(f"{message}: use `upsert` or `append_once`", at=(*path, "mode"))
            if not isinstance(increment, StatefulIncrement | CursorsIncrement) or write.keys:
                continue
            if increment.watermark_lag:
                yield Mistake(f"a lag reads rows again, and {repeats}", at=(*path, "watermark_lag"))
            if increment.on_null == "include":
                yield Mistake(f"rows without a cursor are read at every run, and {repeats}", at=(*path, "on_null"))


def rewritten_files(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes that are to keep what was loaded of a file, and that compute their tables from loaded files again."""
    for node in project.nodes:
        read, mode = node.config.read, node.config.write.mode
        increment = None if read is None else read.incremental
        if not isinstance(increment, FilesIncrement) or increment.on_change != "ignore":
            continue
        if mode.traits.increment != "rows":
            others = one_of(other for other in WriteMode if other.traits.increment == "rows")
            text = (
                f"keeps what was loaded of a rewritten file, and `{mode}` reads loaded files again, as they are now: "
            )
            text += (
                f"leave it out (the file is loaded again), or write with {others}, and let a second node write with "
            )
            yield about("ignore", f"{text}`{mode}`", at=(*node.path, "read", "incremental", "on_change"))


def passing_keys(project: ProjectView) -> Iterator[Mistake]:
    """Find columns by which rows are known, and that another run makes otherwise of the same rows."""
    for node in project.nodes:
        names = identifying_columns(node.config)
        if names and node.config.transform is not None:
            yield from _passing(node, names, project.root)


def _passing(node: NodeView, names: tuple[str, ...], root: FilePath) -> Iterator[Mistake]:
    try:
        definitions = made_of(node.config, names, root)
    except (ConfigError, UnicodeDecodeError):
        # Another check says that the query cannot be read.
        return
    is_part = bool(node.config.increments)
    for name, column in definitions.items():
        by = column.random or (is_part and (column.clock or column.place))
        if by:
            keys = node.config.write.keys
            at = ("write", "keys", keys.index(name)) if name in keys else ("transform",)
            text = f"is made by `{by}()`: another run makes another one of the same row, which is then not found"
            yield about(name, f"{text}; take columns of the source", at=(*node.path, *at))
