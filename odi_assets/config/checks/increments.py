"""Increments that do not fit their source or their target, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.compared_columns import identifying_columns, made_of
from odi_assets.config.diagnostics.mistakes import Mistake, about, one_of
from odi_assets.config.models import (
    CTID,
    CursorsIncrement,
    FileFormat,
    FilesIncrement,
    ReadConfig,
    RollingWindowIncrement,
    SqlConnection,
    StatefulIncrement,
    WriteMode,
)
from odi_assets.errors import ConfigError


def shared_state_keys(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes that would move one high-water mark."""
    owners: dict[str, NodeView] = {}
    for node in project.by_name.values():
        for path, given in node.config.state_keys.items():
            owner = owners.setdefault(given or f"{node.pipeline}.{node.config.name}", node)
            if owner is not node:
                message = f"node `{owner.shown}` has this state key too: two nodes would move one high-water mark"
                yield Mistake(message, at=(*node.path, *path, *(["state_key"] if given else [])))


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
        given = {path: key for path, key in keys.items() if key}
        for path, key in given.items():
            if key != next(iter(given.values())):
                message = "a second state key: a node has one high-water mark, for all of its sources"
                yield Mistake(message, at=(*node.path, *path, "state_key"))


def formats(project: ProjectView) -> Iterator[Mistake]:
    """Find increments that the format of the source, or what is read, does not have."""
    for node in project.nodes:
        read = node.config.read
        if read is not None and read.format is FileFormat.SQL and isinstance(read.incremental, CursorsIncrement):
            yield from _snapshot(project, node, read, read.incremental)
        if read is None or read.incremental is None or read.incremental.mode in read.format.increments:
            continue
        mode, kind = read.incremental.mode, read.format
        of_format = _NOT_OF_A_DATABASE if kind is FileFormat.SQL else _NOT_OF_THIS_FORMAT[mode]
        message = of_format.format(format=kind, mode=mode)
        yield Mistake(message, at=(*node.path, "read", "incremental", "mode"))


_NOT_OF_A_DATABASE = "`{mode}` is for files and Delta tables: a database is followed by a column, with `stateful`"
_NOT_OF_THIS_FORMAT = {
    "version": "`version` counts the commits of a Delta table, and `{format}` has none: use `files`",
    "files": "`files` would read the files of a Delta table past its log: use `version`",
    "cursors": "`cursors` reads a table of a database in chunks, and `{format}` is none: use `stateful`",
}


def _snapshot(project: ProjectView, node: NodeView, read: ReadConfig, increment: CursorsIncrement) -> Iterator[Mistake]:
    """Find what a snapshot in chunks cannot have: another database, another write mode, other columns."""
    path, mode = (*node.path, "read", "incremental"), node.config.write.mode
    connection = project.connection(read.connection)
    kind = getattr(connection, "type", None)
    if isinstance(connection, SqlConnection) and kind not in _SNAPSHOTS:
        text = f"`cursors` is for postgres and mysql, and this is a connection of type {kind}: use `stateful`"
        yield Mistake(text, at=(*path, "mode"))
    if mode.traits.increment != "rows":
        others = one_of(other for other in WriteMode if other.traits.increment == "rows")
        text = f"`cursors` writes a table in parts, and `{mode}` replaces what is there: write with {others}"
        yield Mistake(text, at=(*path, "mode"))
    by = increment.snapshot.by or ()
    if CTID in by and (len(by) > 1 or kind == "mysql" or read.table is None):
        text = "of PostgreSQL alone" if kind == "mysql" else "of a table, and the only one"
        yield Mistake(f"`{CTID}` is a key {text}", at=(*path, "snapshot", "by"))
    for name in sorted({name for name in increment.columns if increment.columns.count(name) > 1}):
        yield Mistake(f"`{name}` is there twice", at=(*path, "columns"))


_SNAPSHOTS = ("postgres", "mysql")


def repeated_rows(project: ProjectView) -> Iterator[Mistake]:
    """Find increments that read rows again, where it is not known which of them are in the target."""
    for node in project.nodes:
        write = node.config.write
        if write.mode.traits.takes_rows_again:
            continue
        repeats = f"`{write.mode}` would repeat them: name `write.keys`, or use `upsert` or `append_once`"
        for place, increment in node.config.increments.items():
            path = (*node.path, *place)
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
        found = made_of(node.config, names, root)
    except (ConfigError, UnicodeDecodeError):
        # Another check says that the query cannot be read.
        return
    is_part = bool(node.config.increments)
    for name, column in found.items():
        by = column.random or (is_part and (column.clock or column.place))
        if by:
            keys = node.config.write.keys
            at = ("write", "keys", keys.index(name)) if name in keys else ("transform",)
            text = f"is made by `{by}()`: another run makes another one of the same row, which is then not found"
            yield about(name, f"{text}; take columns of the source", at=(*node.path, *at))
