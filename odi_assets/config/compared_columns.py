"""The columns by which a node's write knows rows that are in the table, and what they are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odi_assets.config.models import (
    CursorsIncrement,
    Increment,
    NodeConfig,
    RollingWindowIncrement,
    StatefulIncrement,
)
from odi_assets.config.sql_columns import EITHER, ColumnDefinition, definitions, plain_definition

_READ = "df"
_CALL = re.compile(r"(\w+)\s*\(")
_AS_TEXT = re.compile(rf"\bas\s+(string|varchar|char|binary)\b|::|\|\||\bcase\b|{EITHER}", re.IGNORECASE)
"""What makes a text of a value, or may: the other branch of a CASE or query of a UNION may be a text."""
_OF_VALUES = re.compile(
    "abs|cast|ceil|date|date_format|date_trunc|day|dayofmonth|floor|hour|last_day|month|quarter|to_date|trunc|try_cast|year"
)
"""Functions that give equal results for equal values, whatever their types."""


def keys_compared(node: NodeConfig) -> tuple[str, ...]:
    """The keys by which the node's write looks rows up in its table; none where it looks up none."""
    write, traits = node.write, node.write.mode.traits
    again = traits.keeps_stored_rows and any(_reads_again(increment) for increment in node.increments.values())
    return write.keys if traits.needs_keys or again else ()


def identifying_columns(node: NodeConfig) -> tuple[str, ...]:
    """The columns that say which row of the table a row is, or which partition it belongs to."""
    write, traits, keys = node.write, node.write.mode.traits, keys_compared(node)
    columns = [*keys]
    if keys and not traits.needs_keys:
        columns += [
            name for increment in node.increments.values() if _reads_again(increment) for name in _cursors(increment)
        ]
    if traits.increment == "partitions":
        columns += write.partition_by or (node.partition.columns if node.partition else ())
    return tuple(dict.fromkeys(columns))


def known_rows(node: NodeConfig) -> tuple[str, ...]:
    """The columns by which the node knows a row that it reads again and appends once: its keys and its cursor; none
    where each row that is read is another one, or the write mode itself looks up keys."""
    write = node.write
    if write.mode.traits.takes_rows_again or not keys_compared(node):
        return ()
    return identifying_columns(node)


def compared_columns(node: NodeConfig) -> tuple[str, ...]:
    """All columns whose values are compared with values of rows in the table, in a range of partitions too."""
    newer, partition = node.write.only_if_newer, node.partition
    parted = () if partition is None else partition.columns
    return tuple(dict.fromkeys([*identifying_columns(node), *parted, *([] if newer is None else [newer])]))


@dataclass(frozen=True)
class ViewColumn:
    """A column of a source, in lower case, with the view that it is of."""

    view: str
    column: str


def known_by_of(node: NodeConfig, root: Path, view: str = _READ) -> dict[str, bool]:
    """The columns of a source that say which row of the table a row is, in lower case; each with whether texts are made
    of it, which depend on its type. Of a column that is not known to be made of others, the one of its name.

    Args:
        root: the project file's folder.
        view: the source's name in the node's SQL.

    Raises:
        ConfigError: the SQL file of the transform cannot be read.
    """
    behind = _views(node).get(view, view).casefold()
    columns: dict[str, bool] = {}
    for name, definition in made_of(node, identifying_columns(node), root).items():
        sources = [column for of, column in definition.sources if of in ("", behind)]
        if not definition.sources:
            sources = [name.casefold()]
        for column in sources:
            columns[column] = columns.get(column, False) or not _is_by_value(definition)
    return columns


def _is_by_value(definition: ColumnDefinition) -> bool:
    """Whether a column depends on the values that it is made of alone, and not on their texts."""
    calls = (name.casefold() for name in _CALL.findall(definition.text))
    is_of_values = all(_OF_VALUES.fullmatch(name) for name in calls) and _AS_TEXT.search(definition.text) is None
    return bool(definition.sources) and is_of_values


def of_read(made: Mapping[str, ColumnDefinition]) -> list[str]:
    """The columns of what ``read`` names that columns are made of."""
    pairs = {pair for definition in made.values() for pair in definition.sources}
    return sorted({column for view, column in pairs if view in ("", _READ)})


def column_of_order(node: NodeConfig, root: Path) -> ViewColumn | None:
    """The column of a source that ``write.only_if_newer`` compares as it is; None if it compares anything else.

    Args:
        root: the project file's folder.

    Raises:
        ConfigError: the SQL file of the transform cannot be read.
    """
    newer = node.write.only_if_newer
    return None if newer is None else source_column(node, newer, root)


def source_column(node: NodeConfig, column: str, root: Path) -> ViewColumn | None:
    """The column of a source that a column of the node's rows is, as it is; None if it is anything else.

    Args:
        root: the project file's folder.

    Raises:
        ConfigError: the SQL file of the transform cannot be read.
    """
    definition = made_of(node, (column,), root)[column]
    is_plain = len(definition.sources) == 1 and definition.text == ".".join(definition.sources[0])
    return ViewColumn(*definition.sources[0]) if is_plain else None


def made_of(node: NodeConfig, columns: Iterable[str], root: Path) -> Mapping[str, ColumnDefinition]:
    """By column of the node's rows, what it is made of.

    Args:
        root: the project file's folder.

    Raises:
        ConfigError: the SQL file of the transform cannot be read.
    """
    names, transform, views = tuple(columns), node.transform, _views(node)
    if transform is None:
        return {name: plain_definition(next(iter(views.values()), _READ), name) for name in names}
    if transform.function is not None:
        params = f" with {json.dumps(transform.params, sort_keys=True, default=str)}" if transform.params else ""
        return {name: ColumnDefinition(f"what {transform.function} makes of it{params}") for name in names}
    return definitions(transform.sql_text(root), names, tuple(views.items()))


def _views(node: NodeConfig) -> dict[str, str]:
    """By view of the node's SQL, the name of what is behind it, which another name of the view does not change."""
    behind = {view: node_input.node.rpartition(".")[2] or view for view, node_input in node.inputs.items()}
    name_by_view = {view: name if [*behind.values()].count(name) == 1 else view for view, name in behind.items()}
    return ({_READ: _READ} if node.read is not None else {}) | name_by_view


def _reads_again(increment: Increment) -> bool:
    if isinstance(increment, RollingWindowIncrement):
        return True
    if isinstance(increment, StatefulIncrement):
        return bool(increment.watermark_lag) or increment.boundary == "closed" or increment.on_null == "include"
    return isinstance(increment, CursorsIncrement) and bool(increment.watermark_lag)


def _cursors(increment: Increment) -> Iterator[str]:
    if isinstance(increment, CursorsIncrement):
        yield from increment.columns
    if isinstance(increment, StatefulIncrement):
        yield from (name for name in (increment.column, increment.fallback_column) if name is not None)
