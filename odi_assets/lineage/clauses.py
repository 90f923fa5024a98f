"""GROUP BY and ORDER BY of a query: a number in them, and ALL, mean columns of its list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odi_assets.lineage.made import NONE, Made, NotFollowed, Origins, Rows
from odi_assets.util.lazy import exp

_ORDERS = ("order", "sort", "cluster", "distribute")
ALL = "all"


def ordered_by(query: Any, rows: Rows, made: Callable[[Any], Made], *, has_all: bool = False) -> Origins:
    """What ORDER BY, SORT BY, CLUSTER BY and DISTRIBUTE BY of a query look at.

    Args:
        rows: what the query gives.
        made: what an expression is made of.
        has_all: whether what the query reads has a column of the name ``all``, which comes before ORDER BY ALL.

    Raises:
        NotFollowed: that is not known.
    """
    origins = NONE
    for key in _ORDERS:
        clause = query.args.get(key)
        items = clause.expressions if clause is not None else []
        if key == "order" and len(items) == 1 and _is_all(items[0]) and not (has_all or rows.lists(ALL)):
            origins |= all_columns(rows, "ORDER BY ALL")
            continue
        origins |= NONE.union(*(_of_item(node, rows, made).all for node in items))
    return origins


def grouped_by(group: Any, rows: Rows, made: Callable[[Any], Made]) -> Origins:
    """What the items of a GROUP BY look at, in ROLLUP, CUBE and GROUPING SETS too.

    Raises:
        NotFollowed: that is not known.
    """
    return NONE.union(*(_of_group(node, rows, made) for node in group.iter_expressions()))


def all_columns(rows: Rows, word: str) -> Origins:
    """What all columns of a query are made of.

    Args:
        word: the clause that looks at them.

    Raises:
        NotFollowed: they are not known.
    """
    if rows.unlisted is not None:
        raise NotFollowed(f"its {word} is of all columns of `{rows.unlisted.view}`, which are not known")
    return NONE.union(*(made.all for _, made in rows.columns))


def _of_group(node: Any, rows: Rows, made: Callable[[Any], Made]) -> Origins:
    if not isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
        return _of_item(node, rows, made).all
    origins = NONE
    for expression in node.expressions:
        for part in expression.expressions if isinstance(expression, exp.Tuple) else [expression]:
            origins |= _of_group(part, rows, made)
    return origins


def _of_item(node: Any, rows: Rows, made: Callable[[Any], Made]) -> Made:
    """What an item of GROUP BY or ORDER BY is made of: a number is the column at that place."""
    inner = (node.this if isinstance(node, exp.Ordered) else node).unnest()
    if _is_all(node):
        return made(exp.column(ALL))
    if isinstance(inner, exp.Identifier):
        # sqlglot's form of `|> AGGREGATE … GROUP BY x AS name`: the name of a column that is selected.
        named = [column for name, column in rows.columns if name.casefold() == inner.name.casefold()]
        if len(named) != 1:
            raise NotFollowed(f"`{inner.name}` is not one of its columns")
        return named[0]
    if not (isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit()):
        return made(inner)
    if rows.unlisted is not None:
        raise NotFollowed(f"column {inner.name} may be one of `{rows.unlisted.view}`, whose columns are not known")
    position = int(inner.name)
    if not 1 <= position <= len(rows.columns):
        raise NotFollowed(f"there is no column {position}")
    return rows.columns[position - 1][1]


def _is_all(node: Any) -> bool:
    """Whether an item of ORDER BY is ALL: the parser makes no column of the word."""
    return isinstance(node, exp.Ordered) and isinstance(node.this, exp.Var) and node.this.name.casefold() == ALL
