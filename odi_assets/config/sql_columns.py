"""What columns of a query are made of, as far as that can be read from its text.

A definition is text in which layout, comments, capitals and the names of views and subqueries do not matter: of
``SELECT upper(id) AS k FROM (SELECT * FROM df)``, ``k`` is ``UPPER(df.id)``. Where the text is not understood, each
column is made of the whole query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from odi_assets.util.lazy import exp
from odi_assets.util.spark_sql import parsed

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Expression

_RANDOM = frozenset(
    {"uuid", "rand", "random", "randn", "randstr", "uniform", "shuffle"}
    | {"monotonically_increasing_id", "spark_partition_id"}
)
_CLOCK = frozenset(
    {"now", "curdate", "current_timestamp", "current_date", "current_time", "localtimestamp"}
    | {"currenttimestamp", "currentdate"}
)
_PLACES = frozenset(
    {"row_number", "rownumber", "rank", "dense_rank", "denserank", "percent_rank", "percentrank", "cume_dist", "ntile"}
)
_OTHER_SPELLINGS = {"currenttimestamp": "current_timestamp", "currentdate": "current_date", "rownumber": "row_number"}
_DEPTH = 20
EITHER = " or "
"""Between the texts of a column that is made of one of them: of the queries of a UNION, say."""


@dataclass(frozen=True)
class ColumnDefinition:
    """What a column is made of.

    Attributes:
        text: its expression, over columns of the sources.
        sources: the columns of the sources in it, each with the view that it is of; empty where that is not clear.
        random: a function in it whose value changes with each call.
        clock: a function in it that reads the clock.
        place: a function in it that depends on the place of a row among the rows that are read together.
    """

    text: str
    sources: tuple[tuple[str, str], ...] = ()
    random: str | None = None
    clock: str | None = None
    place: str | None = None


def plain_definition(view: str, name: str) -> ColumnDefinition:
    """The definition of a column that is taken from a view as it is."""
    return ColumnDefinition(f"{view}.{name}".casefold(), ((view.casefold(), name.casefold()),))


@lru_cache(maxsize=512)
def definitions(
    sql: str, names: tuple[str, ...], views: tuple[tuple[str, str], ...] = ()
) -> Mapping[str, ColumnDefinition]:
    """By name, what these columns of a query are made of.

    Args:
        views: views that the query may read, each with the name that it has in the definitions.
    """
    query = parsed(sql)
    if query is None:
        return {name: ColumnDefinition(" ".join(sql.split())) for name in names}
    shown = {view.casefold(): shown_name.casefold() for view, shown_name in views}
    return {name: _definition(query, name, shown) for name in names}


def _definition(query: Expression, name: str, views: Mapping[str, str]) -> ColumnDefinition:
    trail = _Found(views)
    try:
        text = trail.column(query, name, _Scope(query, {}), 0)
    except (_NotUnderstood, RecursionError):
        # Which of its functions make this column is not known.
        trail, text = _Found(views), _text(query)
    return ColumnDefinition(
        text, tuple(sorted(trail.sources)), *(trail.first(kind) for kind in (_RANDOM, _CLOCK, _PLACES))
    )


class _NotUnderstood(Exception):
    """The column cannot be followed through this query."""


@dataclass(frozen=True)
class _Scope:
    """A query, and the queries that names in its FROM may mean."""

    query: Expression
    named: Mapping[str, _Scope]


@dataclass
class _Found:
    """What was met on the way: columns of sources, and functions."""

    views: Mapping[str, str]
    sources: set[tuple[str, str]] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)

    def first(self, kind: frozenset[str]) -> str | None:
        name = next(iter(sorted(self.functions & kind)), None)
        return None if name is None else _OTHER_SPELLINGS.get(name, name)

    def note(self, expression: Expression) -> None:
        self.functions |= set(_functions(expression))

    def column(self, query: Expression, name: str, scope: _Scope, depth: int) -> str:
        """The definition of the column ``name`` of ``query``."""
        if depth > _DEPTH:
            raise _NotUnderstood
        query, scope = _opened(query, scope)
        if isinstance(query, exp.SetOperation):
            index = _place_of(_leftmost(query), name)
            sides = [self._nth(side, index, name, scope, depth) for side in (query.left, query.right)]
            return EITHER.join(sides)
        if not isinstance(query, exp.Select):
            raise _NotUnderstood
        selected = next(
            (expression for expression in query.expressions if expression.alias_or_name.casefold() == name.casefold()),
            None,
        )
        if selected is not None and not isinstance(selected, exp.Star) and selected.alias_or_name != "*":
            return self._expanded(selected.unalias(), query, scope, depth)
        stars = [star for star in query.expressions if star.is_star]
        if not stars or any(_is_left_out(name, star) for star in stars):
            raise _NotUnderstood
        views = {star.table.casefold() for star in stars if isinstance(star, exp.Column) and star.table}
        sources = {view: source for view, source in _sources(query).items() if not views or view in views}
        return self._of_sources(name, sources, query, scope, depth)

    def _nth(self, side: Expression, index: int | None, name: str, scope: _Scope, depth: int) -> str:
        inner, of = _opened(side, scope)
        if index is not None and isinstance(inner, exp.Select) and index < len(inner.expressions):
            selected = inner.expressions[index]
            if not selected.is_star:
                return self._expanded(selected.unalias(), inner, of, depth + 1)
        return self.column(side, name, scope, depth + 1)

    def _expanded(self, expression: Expression, query: Expression, scope: _Scope, depth: int) -> str:
        """``expression`` of ``query`` as text, its columns followed to their sources."""
        self.note(expression)
        sources = _sources(query)

        def follow(node: Expression) -> Expression:
            if not isinstance(node, exp.Column) or node.is_star:
                return node
            view, parts = node.parts[0].name.casefold(), [part.name for part in node.parts]
            # `a.b` is the column `b` of the view `a`, or the part `b` of the column `a`.
            chosen, parts = ({view: sources[view]}, parts[1:]) if view in sources and parts[1:] else (sources, parts)
            text = self._of_sources(parts[0], chosen, query, scope, depth)
            return exp.Var(this=".".join([text, *(part.casefold() for part in parts[1:])]))

        if expression.find(exp.Query) is not None:
            return _text(expression)
        return _text(expression.copy().transform(follow))

    def _of_sources(
        self, name: str, sources: Mapping[str, Expression], query: Expression, scope: _Scope, depth: int
    ) -> str:
        other = _alias_before(query, name)
        if len(sources) != 1:
            self.sources.add(("", name.casefold()))
            return name.casefold()
        (source,) = sources.values()
        if isinstance(source, exp.Table):
            inner = scope.named.get(source.name.casefold())
            if inner is not None:
                return self.column(inner.query, name, inner, depth + 1)
            view = self.views.get(source.name.casefold(), source.name.casefold())
            self.sources.add((view, name.casefold()))
            plain = f"{view}.{name.casefold()}"
            # A column that is named in this very list may be meant, or one of the source.
            return plain if other is None else f"{plain}{EITHER}{_text(other)}"
        if isinstance(source, exp.Subquery):
            return self.column(source.this, name, scope, depth + 1)
        raise _NotUnderstood


def _is_left_out(name: str, star: Expression) -> bool:
    """Whether ``* EXCEPT (…)`` leaves a column out, or something else is put in its place."""
    inner = star.find(exp.Star)
    expressions = (
        [expression for key in ("except_", "replace", "rename") for expression in (inner.args.get(key) or ())]
        if inner
        else []
    )
    return any(
        name.casefold() == part.name.casefold()
        for expression in expressions
        for part in expression.find_all(exp.Identifier)
    )


def _opened(query: Expression, scope: _Scope) -> tuple[Expression, _Scope]:
    """``query`` without brackets around it, and with what its WITH names."""
    while isinstance(query, exp.Subquery):
        query = query.this
    named = dict(scope.named)
    with_ = query.args.get("with_") or query.args.get("with")
    for common_table in with_.expressions if with_ is not None else ():
        named[common_table.alias.casefold()] = _Scope(common_table.this, dict(named))
    return query, _Scope(query, named)


def _leftmost(query: Expression) -> Expression:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    return query


def _place_of(query: Expression, name: str) -> int | None:
    names = [expression.alias_or_name.casefold() for expression in getattr(query, "expressions", ())]
    return names.index(name.casefold()) if name.casefold() in names and "*" not in names else None


def _sources(query: Expression) -> dict[str, Expression]:
    """What a SELECT reads, by the name that it goes by there."""
    if query.args.get("laterals") or query.args.get("pivots"):
        raise _NotUnderstood
    from_ = query.args.get("from_") or query.args.get("from")
    sources = [] if from_ is None else [from_.this, *(join.this for join in query.args.get("joins") or ())]
    if any(not isinstance(source, exp.Table | exp.Subquery) or source.args.get("pivots") for source in sources):
        raise _NotUnderstood
    return {source.alias_or_name.casefold(): source for source in sources}


def _alias_before(query: Expression, name: str) -> Expression | None:
    """The expression that this SELECT gives ``name`` to; None if it gives it to none but the column itself."""
    for expression in query.expressions:
        if isinstance(expression, exp.Alias) and expression.alias.casefold() == name.casefold():
            inner = expression.this
            own = any(column.name.casefold() == name.casefold() for column in inner.find_all(exp.Column))
            return None if own else inner
    return None


def _functions(expression: Expression) -> Iterator[str]:
    for node in expression.walk():
        if isinstance(node, exp.Anonymous):
            yield str(node.this).casefold()
        elif isinstance(node, exp.Func):
            yield from _names(node)


def _names(node: Any) -> Iterable[str]:
    return {type(node).__name__.casefold(), *(name.casefold() for name in node.sql_names())}


def _text(expression: Expression) -> str:
    return str(expression.sql(dialect="spark", comments=False, normalize=True))
