"""The keys that a question names: ``--key`` and ``--keys-from``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.util.lazy import pa

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project

KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        "-k",
        metavar="KEY",
        help="The key, or COLUMN=VALUE; of a key of several columns A=1,B=2. May be given again.",
    ),
]
KeysFromOption = Annotated[
    str | None,
    typer.Option(
        "--keys-from",
        metavar="FILE|TABLE",
        help="A file with a key in each line (- for standard input), or the key column of a Delta table: a folder, "
        "CONNECTION:PATH or a node.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What is asked for.

    Attributes:
        keys: whole keys, their parts in the order of the key's columns.
        by_column: rows with this value in this column.
    """

    keys: tuple[tuple[str, ...], ...]
    by_column: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NamedKeys:
    """The values of ``--key`` and ``--keys-from``."""

    key_texts: Sequence[str]
    keys_from: str | None

    def asked(self, project: Project | None, names: Sequence[str], columns: Sequence[str] = ()) -> Asked:
        """The keys that the options name.

        Args:
            project: where ``--keys-from`` finds nodes and connections.
            names: the columns of the key.
            columns: all columns that rows may be asked for by; without any, only whole keys may be asked for.

        Raises:
            ConfigError: none is named, or one does not fit the key.
        """
        keys, by_column = [], []
        for text in self.key_texts:
            parts = _named(text, columns or names)
            if parts is None:
                keys.append(_alone(text, names))
            elif {name.lower() for name in parts} == {name.lower() for name in names}:
                by_name = {name.lower(): value for name, value in parts.items()}
                keys.append(tuple(by_name[name.lower()] for name in names))
            elif len(parts) == 1 and columns:
                by_column.append(next(iter(parts.items())))
            else:
                other = ", or one COLUMN=VALUE" if columns else ""
                raise ConfigError(f"{text} is not the whole key", fix=f"give {_example(names)}{other}")
        if self.keys_from is not None:
            keys += _keys_from(project, self.keys_from, names)
        if not keys and not by_column:
            raise ConfigError("no key is named", fix=f"give --key {_example(names)}, or --keys-from FILE")
        return Asked(tuple(dict.fromkeys(keys)), tuple(dict.fromkeys(by_column)))


def _named(text: str, columns: Sequence[str]) -> dict[str, str] | None:
    """The columns and values of ``A=1,B=2``; None for a value alone, which may hold ``=`` and commas too."""
    known = {column.lower() for column in columns}
    values: dict[str, str] = {}
    name = ""
    for piece in text.split(","):
        before, sign, value = piece.partition("=")
        if sign and before.strip().lower() in known:
            name = before.strip()
            values[name] = value
        elif name:
            values[name] += f",{piece}"
        else:
            return None
    return values


def _alone(text: str, names: Sequence[str]) -> tuple[str, ...]:
    if len(names) == 1:
        return (text,)
    if not names:
        raise ConfigError(f"{text}: the key is no column of the table", fix="say which: --key COLUMN=VALUE")
    raise ConfigError(f"{text} is not the whole key: it has {len(names)} columns", fix=f"give --key {_example(names)}")


def _example(names: Sequence[str]) -> str:
    return ",".join(f"{name}=…" for name in names) if len(names) > 1 else "KEY"


def _keys_from(project: Project | None, source: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    if source == "-":
        return _lines(sys.stdin.read(), names)
    table = _table(project, source)
    if table is not None:
        return _rows(table, names)
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"there is no file and no table {source}", fix="name a file, a folder, CONNECTION:PATH or a node"
        )
    try:
        return _lines(path.read_text(encoding="utf-8-sig"), names)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{source} cannot be read: {error}", fix="name a text file with a key in each line"
        ) from error


def _lines(text: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    """A key in each line, its parts with tabs between them; the names of the columns may be the first line."""
    keys = []
    for number, line in enumerate(line for line in text.split("\n") if line):
        parts = tuple(line.split("\t")) if len(names) > 1 else (line,)
        if number == 0 and [part.lower() for part in parts] == [name.lower() for name in names]:
            continue
        if len(parts) != len(names):
            raise ConfigError(
                f"line {number + 1} is not the whole key: {line}",
                fix=f"write {', '.join(names)} with tabs between them",
            )
        keys.append(parts)
    return keys


def _table(project: Project | None, source: str) -> Location | None:
    connection, colon, below = source.partition(":")
    if project and colon and connection in project.config.connections:
        return project.location(connection, below)
    # What is there is meant before a node of the same name.
    if Path(source).exists():
        return Location(str(Path(source).absolute())) if Path(source).is_dir() else None
    node = project.find_node(source) if project else None
    return project.target(node) if project and node else None


def _rows(location: Location, names: Sequence[str]) -> list[tuple[str, ...]]:
    handle = TableHandle.open(location)
    known = {name.lower(): name for name in handle.columns} if handle.exists else {}
    if not handle.exists or not all(name.lower() in known for name in names):
        missing = next((name for name in names if name.lower() not in known), "")
        what = f"has no column {missing}" if handle.exists else "is no Delta table"
        raise ConfigError(f"{location.uri} {what}", fix=f"name a table with {', '.join(names)}", uri=location.uri)
    columns = [known[name.lower()] for name in names]
    with handle.reads("reading keys"):
        table = pa.table(handle.table.scan(columns=columns).read_all())
    texts = [table[name].cast(pa.string()).to_pylist() for name in columns]
    return [parts for parts in zip(*texts, strict=True) if None not in parts]
