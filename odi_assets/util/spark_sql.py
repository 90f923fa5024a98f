"""Spark SQL read without Spark, by sqlglot, whose errors are of many kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.util.lazy import sqlglot

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


def parsed(sql: str) -> Expr | None:
    """The syntax tree of a statement; None if sqlglot cannot read it, which does not mean that Spark cannot.

    Example:
        >>> parsed("SELECT a FROM") is None
        True
    """
    try:
        return sqlglot.parse_one(sql, dialect="spark")
    except Exception:  # noqa: BLE001  it makes functions while it parses, and they raise what they like at odd arguments
        return None
