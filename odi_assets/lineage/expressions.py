"""What an expression of Spark SQL is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.lineage.clauses import ALL
from odi_assets.lineage.made import NONE, NOTHING, Made, NotFollowed, Origins, Rows
from odi_assets.util.lazy import exp

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_GENERATORS = frozenset(
    {"explode", "posexplode", "inline", "stack", "json_tuple", "variant_explode"}
    | {"explode_outer", "posexplode_outer", "inline_outer", "variant_explode_outer"}
)
_OF_TIME = frozenset({"window", "session_window"})
_UNIT_OF_COLUMN = re.compile(r"\bdate_trunc\s*\(\s*[a-z_`]|\btrunc\s*\([^()]*,\s*[a-z_`]", re.IGNORECASE)


@dataclass
class Scope:
    """What names mean in one SELECT.

    Attributes:
        relations: what it reads, by the names that they go by, in small letters.
        star: the columns that ``*`` stands for; rows of a view with unknown columns in the place of those.
        merged: what a column of USING is, which several relations have.
        aliases: the expressions that the SELECT has named so far.
        named_windows: of the WINDOW clause.
        outer: the scope around it, of a subquery that refers to it.
        grouped_time: what the window of time is made of, by which it groups.
        bound: parameters of functions in the expression.
        outputs: what the SELECT gives, which HAVING, QUALIFY and ORDER BY see first.
        seen: columns of views with unknown columns that were met.
    """

    outer: Scope | None = None
    relations: dict[str, Rows] = field(default_factory=dict)
    star: list[tuple[str, Made] | Rows] = field(default_factory=list)
    merged: dict[str, Made] = field(default_factory=dict)
    aliases: dict[str, Made] = field(default_factory=dict)
    named_windows: dict[str, Made] = field(default_factory=dict)
    grouped_time: Made | None = None
    bound: frozenset[str] = frozenset()
    outputs: dict[str, Made] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def of_source(self, name: str) -> Made | None:
        """A column of what the SELECT reads; None if nothing has it.

        Raises:
            NotFollowed: it may be of several.
        """
        folded = name.casefold()
        if folded in self.merged:
            return self.merged[folded]
        listed = [rows for rows in self.relations.values() if rows.lists(name)]
        if len(listed) > 1:
            raise NotFollowed(f"`{name}` may be of several tables")
        if listed:
            return listed[0].column(name)
        unlisted = [made for rows in self.relations.values() if (made := rows.column(name)) is not None]
        if len(unlisted) > 1:
            raise NotFollowed(f"`{name}` may be of several tables, whose columns are not known")
        if unlisted and folded in self.aliases and folded not in self.seen:
            raise NotFollowed(f"`{name}` may be a column or an expression of that name")
        self.seen.add(folded)
        return unlisted[0] if unlisted else None

    def lists(self, name: str) -> bool:
        """Whether a column of what the SELECT reads is known to have the name."""
        return name.casefold() in self.merged or any(rows.lists(name) for rows in self.relations.values())

    def with_outer(self) -> Iterator[Scope]:
        """This scope, and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def everything(self, of: str = "") -> list[tuple[str, Made]]:
        """The columns that ``*``, or ``of.*``, stands for.

        Raises:
            NotFollowed: they are not known.
        """
        entries = self.star if not of else [self.relation(of)]
        columns: list[tuple[str, Made]] = []
        for entry in entries:
            if isinstance(entry, tuple):
                columns.append(entry)
                continue
            if entry.unlisted is not None:
                raise NotFollowed(f"`*` stands for the columns of `{entry.unlisted.view}`, which are not known")
            columns += entry.columns
        return columns

    def relation(self, name: str) -> Rows:
        """Raises NotFollowed if it reads nothing of that name."""
        if name.casefold() in self.relations:
            return self.relations[name.casefold()]
        if self.outer is not None:
            return self.outer.relation(name)
        raise NotFollowed(f"`{name}.*` is of no table that it reads")


class ExpressionReader:
    """Reads expressions.

    Args:
        rows_of: what a subquery gives.
        sql: the whole statement.
    """

    def __init__(self, rows_of: Callable[[Expr, Scope], Rows], sql: str) -> None:
        self._rows_of = rows_of
        self._has_units_of_columns = _UNIT_OF_COLUMN.search(sql) is not None
        self._special: dict[str, Callable[[Any, Scope], Made]] = {
            "Column": self._column,
            "Window": self._window,
            "Case": self._case,
            "If": self._if,
            "Nvl2": self._if,
            "Nullif": self._first_by_rest,
            "ArgMax": self._first_by_rest,
            "ArgMin": self._first_by_rest,
            "Filter": self._first_by_rest,
            "DecodeCase": self._decode,
            "WithinGroup": self._within_group,
            "Order": self._order,
            "Ordered": self._ordered,
            "Lambda": self._lambda,
            "Dot": self._field,
            "Bracket": self._field,
            "Struct": self._struct,
            "Max": self._greatest,
            "Min": self._greatest,
            **dict.fromkeys(("First", "Last", "AnyValue", "Paren"), lambda node, scope: self.made(node.this, scope)),
            "PropertyEQ": lambda node, scope: self.made(node.expression, scope),
            "Alias": lambda node, scope: self.made(node.this, scope),
            "Star": lambda _, scope: Made.of(made for _, made in scope.everything()),
            "Count": self._count,
            "Exists": self._subquery,
            "Subquery": self._subquery,
        }

    def made(self, node: Expr | None, scope: Scope) -> Made:
        """What an expression is made of.

        Raises:
            NotFollowed: that cannot be read.
        """
        if node is None or isinstance(node, exp.Identifier | exp.Literal | exp.DataType | exp.Var):
            return NOTHING
        if isinstance(node, exp.Parameter | exp.Placeholder | exp.SessionParameter):
            raise NotFollowed("it has parameters")
        if isinstance(node, exp.Anonymous) and node.name.upper() == "IDENTIFIER":
            raise NotFollowed("it names columns by IDENTIFIER")
        if scope.outputs and isinstance(node, exp.AggFunc):
            # What is aggregated is of the rows before.
            before, scope.outputs = scope.outputs, {}
            try:
                return self.made(node, scope)
            finally:
                scope.outputs = before
        special = self._special.get(type(node).__name__)
        if special is not None:
            return special(node, scope)
        if self._has_units_of_columns and isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            return Made.of([self._parts(node, scope), self._unit(node, scope)])
        if isinstance(node, exp.Query):
            return self._of_rows(self._rows_of(node, scope))
        if isinstance(node, exp.Anonymous) and str(node.this).casefold() in ("if", "iff"):
            return self._if_function(node.expressions, scope)
        return self._parts(node, scope)

    def _parts(self, node: Any, scope: Scope) -> Made:
        return Made.of(self.made(part, scope) for part in node.iter_expressions())

    def _unit(self, node: Any, scope: Scope) -> Made:
        """A unit of time that is the value of a column: the parser takes its name for the unit."""
        unit = node.args.get("unit")
        try:
            return self.resolved([unit.name], scope) if isinstance(unit, exp.Var | exp.Literal) else NOTHING
        except NotFollowed:
            # It is a unit in quotes, beside one that is a column.
            return NOTHING

    def all_of(self, nodes: Iterable[Expr | None], scope: Scope) -> Origins:
        """Every column that expressions are made of, in any way."""
        return NONE.union(*(self.made(node, scope).all for node in nodes))

    # -- columns

    def _column(self, node: Any, scope: Scope) -> Made:
        if isinstance(node.this, exp.Star):
            return Made.of(made for _, made in scope.everything(".".join(part.name for part in node.parts[:-1])))
        return self.resolved([part.name for part in node.parts], scope)

    def resolved(self, parts: list[str], scope: Scope) -> Made:
        """The column that a name means: ``a.b`` is the column ``b`` of ``a``, or the part ``b`` of the column ``a``."""
        if parts[0].casefold() in scope.bound:
            return NOTHING
        if len(parts) == 1 and parts[0].casefold() in scope.outputs:
            return scope.outputs[parts[0].casefold()]
        for inside in scope.with_outer():
            rows, fields = inside.relations.get(parts[0].casefold()) if len(parts) > 1 else None, parts[2:]
            column = None if rows is None else rows.column(parts[1])
            if column is None:
                column, fields = _of_source(parts, inside), parts[1:]
            if column is None:
                column = inside.aliases.get(parts[0].casefold())
            if column is None and parts[0].casefold() in _OF_TIME:
                column = inside.grouped_time
            if column is not None:
                return reduce(Made.part, fields, column)
        raise NotFollowed(f"`{'.'.join(parts)}` is no column of what it reads")

    # -- structs

    def _struct(self, node: Any, scope: Scope) -> Made:
        if not all(isinstance(item, exp.PropertyEQ) for item in node.expressions):
            return self._parts(node, scope)
        return Made.struct((item.name, self.made(item.expression, scope)) for item in node.expressions)

    def _field(self, node: Any, scope: Scope) -> Made:
        """``a.b``, or ``a['b']``; an item of an array or a map is made of all that is in it."""
        name = node.expression if isinstance(node, exp.Dot) else node.expressions[0]
        if not isinstance(name, exp.Identifier | exp.Literal) or (isinstance(name, exp.Literal) and not name.is_string):
            return self._parts(node, scope)
        return self.made(node.this, scope).part(name.name)

    def _greatest(self, node: Any, scope: Scope) -> Made:
        return self.made(node.this, scope).greatest() if not node.expressions else self._parts(node, scope)

    # -- what decides

    def _window(self, node: Any, scope: Scope) -> Made:
        return self.made(node.this, scope).under(self.window(node, scope).all)

    def window(self, node: Any, scope: Scope) -> Made:
        """What decides about the rows that a window has."""
        order = node.args.get("order")
        decides = [*(node.args.get("partition_by") or ()), *(order.expressions if order is not None else ())]
        own = Made(NONE, self.all_of(decides, scope))
        named = node.args.get("alias")
        if named is None:
            return own
        if named.name.casefold() not in scope.named_windows:
            raise NotFollowed(f"there is no window `{named.name}`")
        return Made.of([own, scope.named_windows[named.name.casefold()]])

    def _case(self, node: Any, scope: Scope) -> Made:
        ifs = node.args["ifs"]
        conditions = [node.this, *(branch.this for branch in ifs)]
        values = [*(branch.args["true"] for branch in ifs), node.args.get("default")]
        return self._decided(values, conditions, scope)

    def _if(self, node: Any, scope: Scope) -> Made:
        return self._decided([node.args.get("true"), node.args.get("false")], [node.this], scope)

    def _if_function(self, arguments: list[Any], scope: Scope) -> Made:
        return self._decided(arguments[1:], arguments[:1], scope)

    def _first_by_rest(self, node: Any, scope: Scope) -> Made:
        return self.made(node.this, scope).under(self.all_of([node.expression], scope))

    def _decode(self, node: Any, scope: Scope) -> Made:
        subject, *pairs = node.expressions
        searched = pairs[: len(pairs) // 2 * 2 : 2]
        others = [*pairs[1::2], *(pairs[-1:] if len(pairs) % 2 else ())]
        return self._decided(others, [subject, *searched], scope)

    def _within_group(self, node: Any, scope: Scope) -> Made:
        if isinstance(node.this, exp.PercentileCont | exp.PercentileDisc | exp.Mode):
            return Made(self.all_of([node.this, *node.expression.expressions], scope))
        return self._decided([node.this], [node.expression], scope)

    def _order(self, node: Any, scope: Scope) -> Made:
        return self._decided([node.this], node.expressions, scope)

    def _ordered(self, node: Any, scope: Scope) -> Made:
        # The parser makes no column of the name `all`.
        is_all = isinstance(node.this, exp.Var) and node.this.name.casefold() == ALL
        return self.resolved([ALL], scope) if is_all else self._parts(node, scope)

    def _decided(self, values: Iterable[Any], conditions: Iterable[Any], scope: Scope) -> Made:
        return Made.of([*(self.made(node, scope) for node in values), Made(NONE, self.all_of(conditions, scope))])

    # -- the rest

    def _lambda(self, node: Any, scope: Scope) -> Made:
        names = frozenset(parameter.name.casefold() for parameter in node.expressions)
        before, scope.bound = scope.bound, scope.bound | names
        try:
            return self.made(node.this, scope)
        finally:
            scope.bound = before

    def _count(self, node: Any, scope: Scope) -> Made:
        return NOTHING if isinstance(node.this, exp.Star) else self._parts(node, scope)

    def _subquery(self, node: Any, scope: Scope) -> Made:
        rows = self._rows_of(node.this if isinstance(node, exp.Exists) else node, scope)
        return self._of_rows(rows).deciding() if isinstance(node, exp.Exists) else self._of_rows(rows)

    @staticmethod
    def _of_rows(rows: Rows) -> Made:
        if rows.unlisted is not None:
            raise NotFollowed(f"a subquery takes all columns of `{rows.unlisted.view}`, which are not known")
        return Made.of([*(made for _, made in rows.columns), Made(NONE, rows.decided)])


def _of_source(parts: list[str], scope: Scope) -> Made | None:
    """The column of what a SELECT reads that has the first part as its name; None if there is none.

    Where columns are not known, the first part may be anything: a table's name around it is that table.

    Raises:
        NotFollowed: it may be a column of this SELECT or of one around it.
    """
    if scope.lists(parts[0]):
        return scope.of_source(parts[0])
    if len(parts) > 1 and any(parts[0].casefold() in outer.relations for outer in scope.with_outer()):
        return None
    column = scope.of_source(parts[0])
    around = list(scope.with_outer())[1:] if column is not None else []
    outer_columns = (rows.column(parts[0]) for outer in around for rows in outer.relations.values())
    if any(outer_column is not None and outer_column != column for outer_column in outer_columns):
        raise NotFollowed(
            f"`{parts[0]}` may be a column of what a subquery reads, whose columns are not known, or of what is around "
            f"it: write the table's name before it"
        )
    return column


def is_generator(node: Any) -> bool:
    """Whether an expression makes several rows of one."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).casefold() in _GENERATORS
    return isinstance(node, exp.Func) and bool(_GENERATORS.intersection(n.casefold() for n in node.sql_names()))


def windows_of_time(nodes: Iterable[Any]) -> Iterator[Any]:
    """The calls of ``window`` and ``session_window`` among expressions."""
    for node in nodes:
        for call in node.find_all(exp.Anonymous, exp.Func):
            names = [str(call.this)] if isinstance(call, exp.Anonymous) else call.sql_names()
            if _OF_TIME.intersection(name.casefold() for name in names):
                yield call
