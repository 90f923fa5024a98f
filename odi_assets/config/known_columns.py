"""The columns of a node's source and of its rows, as far as the project file alone names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.config.models import NodeConfig, ReadConfig
from odi_assets.errors import ConfigError
from odi_assets.util.lazy import exp
from odi_assets.util.spark_sql import parsed

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

READ = "df"
"""The view of what a node reads."""

_KINDS = {
    **dict.fromkeys(("TINYINT", "BYTE"), "byte"),
    **dict.fromkeys(("SMALLINT", "SHORT"), "short"),
    **dict.fromkeys(("INT", "INTEGER"), "integer"),
    **dict.fromkeys(("BIGINT", "LONG"), "long"),
    **dict.fromkeys(("FLOAT", "REAL"), "float"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), "decimal"),
    **dict.fromkeys(("STRING", "CHAR", "CHARACTER", "VARCHAR"), "string"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "timestamp"),
    **dict.fromkeys(("DOUBLE", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP_NTZ", "ARRAY", "MAP", "STRUCT"), None),
}
"""Types of the project file by the names that Delta's log has for them; None: the same, in small letters."""


@dataclass(frozen=True)
class KnownColumns:
    """The columns of some rows: all of them.

    Attributes:
        types: by name, the type as Delta's log has it (``long``, ``array``); None where it is not known.
    """

    types: Mapping[str, str | None]

    @property
    def names(self) -> list[str]:
        return list(self.types)

    def has(self, name: str) -> bool:
        return any(name.casefold() == column.casefold() for column in self.types)

    def kind(self, name: str) -> str | None:
        """The type of a column; None if it is not there or its type is not known."""
        return next((kind for column, kind in self.types.items() if column.casefold() == name.casefold()), None)


def columns_read(read: ReadConfig | None) -> KnownColumns | None:
    """The columns that a read gives; None if the project file does not name them all."""
    columns = None if read is None else read.all_columns
    return None if columns is None else KnownColumns({name: _kind(text) for name, text in columns.items()})


def columns_written(node: NodeConfig, root: Path) -> KnownColumns | None:
    """The columns of the rows that a node writes; None if the project file does not tell them all.

    Args:
        root: the project file's folder.
    """
    read_columns = columns_read(node.read)
    if node.transform is None:
        return read_columns if not node.inputs else None
    if node.transform.function is not None:
        return None
    try:
        query = parsed(node.transform.sql_text(root))
    except (ConfigError, UnicodeDecodeError):
        # Another check says that the query cannot be read.
        return None
    return None if query is None else _columns_of_query(query, read_columns)


def _kind(text: str) -> str | None:
    word = re.split(r"\W", text, maxsplit=1)[0]
    if "WITHOUT TIME ZONE" in text:
        return "timestamp_ntz" if word == "TIMESTAMP" else None
    return (_KINDS[word] or word.lower()) if word in _KINDS else None


def _columns_of_query(query: Expr, read_columns: KnownColumns | None) -> KnownColumns | None:
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    plain = _reads_df_alone(query)
    types: dict[str, str | None] = {}
    for expression in query.expressions:
        if isinstance(expression, exp.Star) and plain and read_columns is not None and not _changes(expression):
            types |= read_columns.types
        elif isinstance(expression, exp.Alias | exp.Column) and not expression.is_star:
            inner = expression.unalias()
            is_taken = plain and isinstance(inner, exp.Column) and len(inner.parts) == 1 and read_columns is not None
            types[expression.alias_or_name] = (
                read_columns.kind(inner.name) if is_taken and read_columns is not None else None
            )
        else:
            return None
    return KnownColumns(types)


def _changes(star: Expr) -> bool:
    """Whether ``*`` leaves columns out, or puts others in their place."""
    return any(star.args.get(key) for key in ("except_", "except", "replace", "rename"))


def _reads_df_alone(query: Expr) -> bool:
    from_ = query.args.get("from_") or query.args.get("from")
    others = ("joins", "laterals", "pivots", "with_", "with")
    if from_ is None or any(query.args.get(key) for key in others) or not isinstance(from_.this, exp.Table):
        return False
    table = from_.this
    return table.name.casefold() == READ and not (table.db or table.args.get("pivots") or table.args.get("joins"))


def unknown_views(sql: str, views: frozenset[str]) -> list[str]:
    """The tables of a query that are neither among its ``views`` nor named by itself nor have a place of their own."""
    query = parsed(sql)
    if query is None:
        return []
    named = {common_table.alias.casefold() for common_table in query.find_all(exp.CTE)} | {
        view.casefold() for view in views
    }
    names = []
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not table.db and table.name.casefold() not in named:
            names.append(table.name)
    return list(dict.fromkeys(names))
