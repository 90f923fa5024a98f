"""What the columns of a DataFrame are made of, read from Spark's analysed plan of it.

The plan comes as one JSON text, so that a look costs one call of the JVM. A part of the plan that is an input is known
by the name that the input was given (:func:`marked`), or because it looks as the input's own plan does.

Spark Connect gives its clients no plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from odi_assets.lineage.made import NONE, NOTHING, Made, NotFollowed, Origin, Origins, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARK = "odi_view__"
_SAME = frozenset(
    {"SubqueryAlias", "View", "GlobalLimit", "LocalLimit", "Offset", "Tail", "CollectMetrics", "ResolvedHint", "Sample"}
    | {"Repartition", "RepartitionByExpression", "RebalancePartitions", "PipeOperator", "CTERelationDef"}
    | {"UnresolvedSubqueryColumnAliases", "WithWindowDefinition", "LocalLimitAndOffset", "NoopCommand"}
)
"""Operators that give the rows below them, or some of them, whatever is in these."""
_DECIDES = {
    "Filter": ("condition",),
    "Sort": ("order",),
    "Deduplicate": ("keys",),
    "DeduplicateWithinWatermark": ("keys",),
    "EventTimeWatermark": ("eventTime",),
}
"""Operators that give the rows below them, by the fields that decide which, or in which order."""
_LEFT_ONLY = ("LeftSemi", "LeftAnti")
_ONE_VALUE = frozenset(
    {"Alias", "AggregateExpression", "WindowExpression", "Max", "Min", "First", "Last", "AnyValue", "MaxBy", "MinBy"}
)
"""Expressions that give one of the values that they are of, as it is."""
_PYTHON = ("Pandas", "MapInArrow", "InArrow", "MapPartitions", "FlatMap", "TypedFilter", "AppendColumns", "WithState")


@dataclass(frozen=True)
class _Tree:
    """A node of a plan, or of an expression.

    Attributes:
        jvm: finds it in the JVM; None for a part of an expression.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[_Tree, ...]
    jvm: Any = None

    @cached_property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)

    @property
    def id(self) -> int:
        return int(self.fields["exprId"]["id"])

    def expressions(self, name: str) -> list[_Tree]:
        """The expressions in a field."""
        flat_trees = self.fields.get(name) or []
        if flat_trees and isinstance(flat_trees[0], Mapping):
            flat_trees = [flat_trees]
        return [_tree(nodes) for nodes in flat_trees]


def _tree(nodes: list[Mapping[str, Any]], root: Callable[[], Any] | None = None) -> _Tree:
    rest = iter(nodes)

    def build(jvm: Callable[[], Any] | None) -> _Tree:
        node = next(rest)
        children = tuple(build(_child(jvm, index)) for index in range(node["num-children"]))
        return _Tree(node["class"].rpartition(".")[2].rstrip("$"), node, children, jvm)

    return build(root)


def _child(jvm: Callable[[], Any] | None, index: int) -> Callable[[], Any] | None:
    return None if jvm is None else lambda: jvm().children().apply(index)


def marked(frame: DataFrame, view: str) -> DataFrame:
    """``frame`` so that its plan is known as the view's."""
    return frame.alias(_MARK + view)


def frame_rows(frame: DataFrame, views: Mapping[str, DataFrame]) -> Rows:
    """What a DataFrame that was made of others gives.

    Args:
        views: those others, by name.

    Raises:
        NotFollowed: it cannot be read from the plan, or there is no plan.
    """
    if not hasattr(frame, "_jdf"):
        raise NotFollowed("Spark Connect gives no plans")
    try:
        return _PlanReader({name: _plan_of(view) for name, view in views.items()}).rows(_plan_of(frame))
    except RecursionError:
        raise NotFollowed("its plan is too deep") from None


def _plan_of(frame: DataFrame) -> _Tree:
    plan = frame._jdf.queryExecution().analyzed()
    return _tree(json.loads(plan.toJSON()), lambda: plan)


@dataclass
class _Level:
    """What an operator gives.

    Attributes:
        output: the columns in order: name and id.
        made: by id, what columns of it and of those below are made of.
    """

    output: list[tuple[str, int]]
    made: dict[int, Made]
    decided: Origins = NONE

    def all(self) -> Origins:
        return NONE.union(*(self.made[number].all for _, number in self.output))


@dataclass
class _PlanReader:
    views: Mapping[str, _Tree]
    named: dict[int, _Level] = field(default_factory=dict)

    def rows(self, plan: _Tree) -> Rows:
        level = self._level(plan, {})
        return Rows(tuple((name, level.made[number]) for name, number in level.output), level.decided)

    # -- operators

    def _level(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        view = self._view(plan)
        if view is not None:
            output = _output(plan)
            return _Level(output, {number: Made(frozenset({Origin(view, name)})) for name, number in output})
        special = getattr(self, f"_of_{plan.kind.lower()}", None)
        if special is not None:
            level: _Level = special(plan, outer)
            return level
        if plan.kind not in _SAME and plan.kind not in _DECIDES:
            raise NotFollowed(_why(plan))
        below = self._level(plan.children[0], outer)
        for name in _DECIDES.get(plan.kind, ()):
            below.decided |= self._all(plan.expressions(name), below.made, outer)
        return below

    def _view(self, plan: _Tree) -> str | None:
        """The view that a plan is; None if it is none."""
        if plan.kind == "SubqueryAlias" and str(plan.fields["identifier"]["name"]).startswith(_MARK):
            return str(plan.fields["identifier"]["name"]).removeprefix(_MARK)
        alike = [name for name, view in self.views.items() if (view.kind, view.size) == (plan.kind, plan.size)]
        if not alike:
            return None
        ids = [number for _, number in _output(plan)]
        same = [name for name in alike if [number for _, number in _output(self.views[name])] == ids]
        if not same:
            # Where a frame is joined with itself, Spark gives its columns other ids on one side. Spark also knows
            # whether two tables with the same columns are one.
            same = [name for name in alike if _is_same(self.views[name], plan)]
        if len(same) > 1:
            raise NotFollowed(f"its inputs {' and '.join(same)} are the same rows")
        return same[0] if same else None

    def _named_columns(self, level: _Level, items: list[_Tree], outer: Mapping[int, Made]) -> list[tuple[str, int]]:
        made = {alias.id: self._made(alias, level.made, outer) for alias in items if alias.kind == "Alias"}
        level.made = {**level.made, **made}
        for node in items:
            if node.kind not in ("Alias", "AttributeReference"):
                raise NotFollowed(_why(node))
        return [(str(column.fields["name"]), column.id) for column in items]

    def _of_project(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        level.output = self._named_columns(level, plan.expressions("projectList"), outer)
        return level

    def _of_aggregate(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        level.decided |= self._all(plan.expressions("groupingExpressions"), level.made, outer)
        level.output = self._named_columns(level, plan.expressions("aggregateExpressions"), outer)
        return level

    def _of_window(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        level.output = [*level.output, *self._named_columns(level, plan.expressions("windowExpressions"), outer)]
        return level

    def _of_join(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        left, right = (self._level(child, outer) for child in plan.children)
        made = {**left.made, **right.made}
        kind = _join_kind(plan)
        level = _Level(
            [*left.output, *([] if kind in _LEFT_ONLY else right.output)], made, left.decided | right.decided
        )
        level.decided |= self._all(plan.expressions("condition"), made, outer)
        return level

    def _of_lateraljoin(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        left = self._level(plan.children[0], outer)
        (subquery,) = plan.expressions("right")
        right = self._level(_tree(subquery.fields["plan"]), {**outer, **left.made})
        made = {**left.made, **right.made}
        decided = left.decided | right.decided | self._all(plan.expressions("condition"), made, outer)
        return _Level([*left.output, *right.output], made, decided)

    def _of_union(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        levels = [self._level(child, outer) for child in plan.children]
        first = levels[0]
        for index, (_, number) in enumerate(list(first.output)):
            first.made = {**first.made, number: Made.of(level.made[level.output[index][1]] for level in levels)}
        first.decided = NONE.union(*(level.decided for level in levels))
        return first

    def _of_intersect(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        left, right = (self._level(child, outer) for child in plan.children)
        left.decided |= right.decided | left.all() | right.all()
        return left

    _of_except = _of_intersect

    def _of_distinct(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        level.decided |= level.all()
        return level

    def _of_generate(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        made = Made.of(self._made(generator, level.made, outer) for generator in plan.expressions("generator"))
        output = [(str(column.fields["name"]), column.id) for column in plan.expressions("generatorOutput")]
        level.made = {**level.made, **{number: made for _, number in output}}
        level.output = [*level.output, *output]
        level.decided |= made.all
        return level

    def _of_expand(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        level = self._level(plan.children[0], outer)
        if not plan.fields.get("projections"):
            raise NotFollowed(_why(plan))
        lines = [[_tree(nodes) for nodes in line] for line in plan.fields["projections"]]
        output = [(str(column.fields["name"]), column.id) for column in plan.expressions("output")]
        made = {}
        for index, (_, number) in enumerate(output):
            made[number] = Made.of(self._made(line[index], level.made, outer) for line in lines)
        return _Level(output, {**level.made, **made}, level.decided)

    def _of_withcte(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        *definitions, last = plan.children
        for definition in definitions:
            self.named[int(definition.fields["id"])] = self._level(definition, outer)
        return self._level(last, outer)

    def _of_cterelationref(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        del outer
        level = self.named.get(int(plan.fields["cteId"]))
        if level is None:
            raise NotFollowed("it has a recursive WITH")
        output = [(str(column.fields["name"]), column.id) for column in plan.expressions("output")]
        pairs = zip(output, level.output, strict=True)
        return _Level(output, {own: level.made[theirs] for (_, own), (_, theirs) in pairs}, level.decided)

    def _of_onerowrelation(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        del plan, outer
        return _Level([], {})

    def _of_range(self, plan: _Tree, outer: Mapping[int, Made]) -> _Level:
        del outer
        output = _output(plan)
        return _Level(output, {number: NOTHING for _, number in output})

    # -- expressions

    def _all(self, nodes: Iterable[_Tree], made: Mapping[int, Made], outer: Mapping[int, Made]) -> Origins:
        return NONE.union(*(self._made(node, made, outer).all for node in nodes))

    def _made(self, node: _Tree, made: Mapping[int, Made], outer: Mapping[int, Made]) -> Made:
        if node.kind == "AttributeReference":
            column = made.get(node.id, outer.get(node.id))
            if column is None:
                raise NotFollowed(f"its plan does not say where `{node.fields['name']}` is from")
            return column
        if node.kind == "OuterReference":
            return Made.of(self._made(child, outer, outer) for child in node.expressions("e"))
        if "plan" in node.fields:
            return self._subquery(node, {**outer, **made})
        if node.kind == "CreateNamedStruct":
            names, parts = node.children[::2], node.children[1::2]
            pairs = zip(names, parts, strict=True)
            return Made.struct((_text(name), self._made(part, made, outer)) for name, part in pairs)
        values, conditions = _split(node)
        if node.kind in _ONE_VALUE and len(values) == 1:
            value = self._made(values[0], made, outer).under(self._all(conditions, made, outer))
            return value.greatest() if node.kind in ("Max", "Min") else value
        if node.kind == "GetStructField":
            value = self._made(values[0], made, outer)
            return value.fields[int(node.fields["ordinal"])][1] if value.fields else value
        return Made.of(
            [*(self._made(child, made, outer) for child in values), Made(NONE, self._all(conditions, made, outer))]
        )

    def _subquery(self, node: _Tree, outer: Mapping[int, Made]) -> Made:
        level = self._level(_tree(node.fields["plan"]), outer)
        made = Made.of([*(level.made[number] for _, number in level.output), Made(NONE, level.decided)])
        return made.deciding() if node.kind == "Exists" else made


def _text(literal: _Tree) -> str:
    return str(literal.fields.get("value"))


def _split(node: _Tree) -> tuple[list[_Tree], list[_Tree]]:
    """The parts of an expression whose values go into it, and those that decide."""
    parts = list(node.children)
    if node.kind == "CaseWhen":
        pairs = len(parts) // 2 * 2
        return [*parts[1:pairs:2], *parts[pairs:]], parts[:pairs:2]
    if node.kind == "If":
        return parts[1:], parts[:1]
    if node.kind in ("WindowExpression", "AggregateExpression", "MaxBy", "MinBy", "ListAgg"):
        return parts[:1], parts[1:]
    if node.kind == "WindowSpecDefinition":
        return [], parts
    if node.kind == "PivotFirst":
        return parts[1:], parts[:1]
    return parts, []


def _output(plan: _Tree) -> list[tuple[str, int]]:
    """The columns that an operator gives: name and id."""
    own = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(plan.kind)
    if own is None and "output" in plan.fields:
        own = "output"
    if own is not None:
        return [(str(column.fields["name"]), column.id) for column in plan.expressions(own)]
    if plan.kind == "Join" and _join_kind(plan) not in _LEFT_ONLY:
        return [*_output(plan.children[0]), *_output(plan.children[1])]
    more = {"Window": "windowExpressions", "Generate": "generatorOutput"}.get(plan.kind)
    last = plan.children[-1] if plan.kind == "WithCTE" else plan.children[0] if plan.children else None
    below = _output(last) if last is not None else []
    return below + [(str(column.fields["name"]), column.id) for column in (plan.expressions(more) if more else ())]


def _join_kind(plan: _Tree) -> str:
    kind = plan.fields.get("joinType") or {}
    return str(kind.get("object") or kind.get("product-class") or "").rpartition(".")[2].rstrip("$")


def _is_same(view: _Tree, plan: _Tree) -> bool:
    if view.jvm is None or plan.jvm is None:
        return False
    return bool(view.jvm().sameResult(plan.jvm()))


def _why(plan: _Tree) -> str:
    if any(word in plan.kind for word in _PYTHON):
        return "its rows go through Python code"
    if not plan.children and "output" in plan.fields:
        return "it reads rows that are of none of its inputs, or were in Python's hands"
    return f"Spark's plan of it has `{plan.kind}`, which is not read"
