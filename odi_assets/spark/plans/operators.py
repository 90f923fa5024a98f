"""Reads from Spark's plan of a query what its stateful operators do with a row.

One operator is followed whole, and so are some in a row: a deduplication before a join or an aggregation; behind a join
of two streams another join, an aggregation or a deduplication. Of any other query, the way of each input up to its
first operator is followed; the operators behind it are described in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from odi_assets.errors import ConfigError
from odi_assets.spark.plans.definition import JOINED, Condition, Input, Once, QueryDefinition
from odi_assets.spark.plans.expressions import (
    Expressions,
    class_of,
    conjuncts,
    delay_ms,
    delayed,
    each,
    equality,
    is_named,
)
from odi_assets.spark.plans.sql_text import readable_sql

_SESSION = "spark.sessionWindow"
_WINDOWS = ("spark.timeWindow", _SESSION)
_STATELESS = frozenset({"Project", "Filter", "EventTimeWatermark", "Expand"})
_STREAM = "StreamingRelation"
_DEDUPLICATIONS = ("Deduplicate", "DeduplicateWithinWatermark")
_IN_WORDS = {
    "Join": "a join",
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication",
    "Union": "a union",
    "FlatMapGroupsInPandasWithState": "a function with state of its own (applyInPandasWithState)",
    "TransformWithStateInPySpark": "a processor with state of its own (transformWithState)",
}


def _operator(plan: Any) -> Any:
    """The first node on the way down that is more than a step of a single row; None if there is none up to a stream."""
    while class_of(plan) in _STATELESS:
        plan = plan.children().apply(0)
    return None if class_of(plan) == _STREAM else plan


def _steps(plan: Any) -> Iterator[Any]:
    """The steps of single rows above the first operator."""
    while class_of(plan) in _STATELESS:
        yield plan
        plan = plan.children().apply(0)


def _streams(plan: Any) -> Iterator[Any]:
    if class_of(plan) == _STREAM:
        yield plan
    for child in each(plan.children()):
        yield from _streams(child)


class Operators:
    """The operators of one query.

    Args:
        plan: the optimized plan of the whole query.
        output_mode: ``append``, ``update`` or ``complete``.
        label: the node, for messages.
    """

    def __init__(self, expressions: Expressions, plan: Any, output_mode: str, label: str) -> None:
        self._of = expressions
        self._plan = plan
        self._output_mode = output_mode
        self._label = label

    def definition(self) -> QueryDefinition:
        """What the query does with a row.

        Raises:
            ConfigError: it is not known what the query does with a row.
        """
        definition = self._followed(self._plan) or self._branches(self._plan)
        if definition.last.beyond:
            definition = replace(definition, output_key=self._by_name(definition))
        used = {pair for step in _chain(definition) for query_input in step.inputs for pair in _uses(query_input)}
        return _with_columns(definition, used)

    def _by_name(self, definition: QueryDefinition) -> tuple[str | None, ...]:
        """The columns of the result that have the key, or at least the name of its parts."""
        names = {str(item.name()) for item in each(self._plan.output())}
        own = definition.output_key or tuple(None for _ in definition.key_names)
        return tuple(
            column or (name if name in names else None) for column, name in zip(own, definition.key_names, strict=True)
        )

    def _followed(self, plan: Any) -> QueryDefinition | None:
        """What the query up to ``plan`` does with a row, as far as operators in a row can be followed; None if even the
        first cannot."""
        definition = self._understood(plan)
        if definition is not None:
            return definition
        top = _operator(plan)
        below = [child for child in each(top.children()) if any(_streams(child))]
        if len(below) != 1 or _operator(below[0]) is None:
            return None
        definition = self._followed(below[0])
        return definition and definition.not_followed(_in_words(top))

    def _understood(self, plan: Any) -> QueryDefinition | None:
        """What the query up to ``plan`` does with a row; None if its first operator cannot be followed."""
        top = _operator(plan)
        if top is None:
            return self._rows(plan)
        reader = _READERS.get(class_of(top))
        definition = None if reader is None else reader(self, top)
        if definition is None:
            return None
        conditions = [step.condition() for step in _steps(plan) if class_of(step) == "Filter"]
        return self._with_conditions(
            definition, [conjunct for condition in conditions for conjunct in conjuncts(condition)]
        )

    def _with_conditions(self, definition: QueryDefinition, following: list[Any]) -> QueryDefinition:
        """The query with the conditions that follow its last operator."""
        if not following:
            return definition
        if not self._can_be_computed(definition, following):
            texts = " and ".join(f"`{readable_sql(self._of.sql(condition))}`" for condition in following)
            return definition.not_followed(f"the condition {texts}")
        ordered = sorted(
            map(self._of.condition, following), key=lambda condition: condition.text.endswith("IS NOT NULL")
        )
        columns = {name for condition in following for _, name in self._of.columns(condition)}
        first_input = replace(definition.inputs[0], columns=tuple(sorted({*definition.inputs[0].columns, *columns})))
        return replace(definition, inputs=(first_input,), withheld=tuple(ordered))

    def _can_be_computed(self, definition: QueryDefinition, following: list[Any]) -> bool:
        """Whether conditions behind the operator can be computed from the rows of a key: those on aggregates of one
        window, and those on columns of rows that a deduplication keeps."""
        if definition.kind == "aggregation":
            is_one = len(definition.windows) <= 1 and not definition.session
            return is_one and all(self._is_of_groups(condition) for condition in following)
        return definition.kind == "deduplication" and not any(
            self._of.is_computed(condition) for condition in following
        )

    def _is_of_groups(self, expression: Any) -> bool:
        """Whether an expression is made of aggregates and constants alone."""
        kind = class_of(expression)
        if kind == "AggregateExpression":
            return True
        if kind == "AttributeReference":
            made = self._of.made_of.get(expression.exprId().id())
            return made is not None and all(self._is_of_groups(part) for part in made)
        return all(self._is_of_groups(child) for child in each(expression.children()))

    # -- the operators

    def _join(self, node: Any) -> QueryDefinition | None:
        sides = node.left(), node.right()
        joined = [self._joined(side) for side in sides]
        if not node.condition().isDefined() or all(joined):
            return None
        if not all(definition or self._is_input(side) for side, definition in zip(sides, joined, strict=True)):
            return None
        whole = node.condition().get()
        parts = list(conjuncts(whole))
        keys = [pair for pair in (equality(conjunct, *sides) for conjunct in parts) if pair]
        conditions = [self._of.condition(conjunct) for conjunct in parts if equality(conjunct, *sides) is None]
        below = next((definition for definition in joined if definition), None)
        shift = 0 if below is None else _shift(below)
        inputs = []
        for index, side in enumerate(sides):
            timed, other = delayed(side.output()), delayed(sides[1 - index].output())
            by_key = any(delayed([key]) is not None for pair in keys for key in pair if is_named(key))
            range_ms = 0 if by_key else self._of.range_ms(side, other, whole) if timed is not None else None
            own = [pair[index] for pair in keys]
            inputs.append(self._input(side, own, timed, range_ms, also=[whole], shift=shift))
        kind = str(node.joinType().toString())
        outer = {"LeftOuter": (0,), "RightOuter": (1,), "FullOuter": (0, 1)}.get(kind, ())
        join = QueryDefinition(
            "join",
            tuple(inputs),
            tuple(conditions),
            tuple(inputs[outer_index].view for outer_index in outer),
            tuple(self._of.name_of(left) for left, _ in keys),
            self._of.output_key(self._plan, [query_input.key for query_input in inputs]),
        )
        return join if below is None else below.followed_by(join)

    def _aggregate(self, node: Any) -> QueryDefinition | None:
        child = node.child()
        below = self._joined(child)
        groups = each(node.groupingExpressions())
        windows = [group for group in groups if any(group.metadata().contains(name) for name in _WINDOWS)]
        is_session = any(window.metadata().contains(_SESSION) for window in windows)
        # Rows of other keys of the join also decide which rows make a session.
        if not (self._is_input(child) or (below and not is_session)):
            return None
        timed = delayed(groups) if self._output_mode != "complete" else None
        key = [group for group in groups if group not in windows] or windows
        shift = 0 if below is None else _shift(below)
        only_input = self._input(child, key, timed, 0 if timed is not None else None, also=groups, shift=shift)
        aggregation = QueryDefinition(
            "aggregation",
            (only_input,),
            key_names=tuple(str(column.name()) for column in key),
            output_key=self._of.output_key(self._plan, [only_input.key]),
            windows=tuple(self._of.sql(choice) for choice in self._of.choices(windows[0])) if windows else (),
            session=is_session,
            waits_for_watermark=self._output_mode == "append",
        )
        return aggregation if below is None else below.followed_by(aggregation)

    def _deduplicate(self, node: Any) -> QueryDefinition | None:
        child, keys = node.child(), each(node.keys())
        below = self._joined(child)
        once = self._once(node)
        # Rows of other keys of the join would count too, were the key no part of what makes two rows the same.
        if not (self._is_input(child) or (below and _names_key(below, once.identity))):
            return None
        shown = [column for column in keys if delayed([column]) is None] or keys
        shift = 0 if below is None else _shift(below)
        only_input = self._input(child, shown, delayed(child.output()), once.state_range_ms, also=keys, shift=shift)
        deduplication = QueryDefinition(
            "deduplication",
            (only_input,),
            key_names=tuple(str(column.name()) for column in shown),
            output_key=self._of.output_key(self._plan, [only_input.key]),
            identity=once.identity,
            expires=once.expires,
        )
        return deduplication if below is None else below.followed_by(deduplication)

    def _rows(self, plan: Any) -> QueryDefinition:
        key = next((item for item in each(plan.output()) if any(self._of.columns(item))), None)
        if key is None:
            raise self._no_key_error()
        only_input = self._input(plan, [key])
        return QueryDefinition("rows", (only_input,), key_names=(str(key.name()),), output_key=(str(key.name()),))

    def _no_key_error(self) -> ConfigError:
        return ConfigError(f"{self._label} cannot be explained: its rows have no column of its input", node=self._label)

    # -- inputs

    def _is_input(self, side: Any) -> bool:
        """Whether rows of one stream come here, as they are or deduplicated."""
        operator = _operator(side)
        return operator is None or (class_of(operator) in _DEDUPLICATIONS and _operator(operator.child()) is None)

    def _joined(self, side: Any) -> QueryDefinition | None:
        """The join whose pairs come here; None if it is none that can be followed."""
        operator = _operator(side)
        if operator is None or class_of(operator) != "Join" or str(operator.joinType().toString()) != "Inner":
            return None
        return self._join(operator)

    def _input(
        self,
        side: Any,
        key: Sequence[Any],
        timed: Any = None,
        range_ms: int | None = None,
        also: Sequence[Any] = (),
        shift: int | None = 0,
    ) -> Input:
        """What comes from ``side``.

        Args:
            timed: the column that the watermark is compared with.
            range_ms: as ``state_range_ms`` of the input.
            also: expressions that need its columns, too.
            shift: how far a join below holds the watermark back; None if it gives none.
        """
        operator = _operator(side)
        parts = tuple(self._of.sql(column) for column in key)
        conditions, event_time, used = self._on_the_way(side, parts)
        if operator is not None and event_time is None and delayed(operator.output()) is not None:
            event_time = self._of.micros(delayed(operator.output()))
        once = None
        if operator is not None and class_of(operator) in _DEDUPLICATIONS:
            once = replace(self._once(operator), conditions=conditions)
            used += each(operator.keys())
            conditions, event_time, more = self._on_the_way(operator.child(), parts)
            used += more
        names = [self._of.sources[each(leaf.output())[0].exprId().id()][0] for leaf in _streams(side)]
        used += [*key, *also, *([] if timed is None else [timed])]
        columns = {pair for expression in used for pair in self._of.columns(expression) if pair[0] in names}
        late = None if timed is None or shift is None else self._of.micros(timed)
        is_joined = len(names) > 1
        return Input(
            " + ".join(names),
            JOINED if is_joined else self._of.inputs[names[0]],
            tuple(sorted(f"{name}.{column}" if is_joined else column for name, column in columns)),
            parts,
            conditions,
            late,
            None if shift is None else range_ms,
            event_time or (None if timed is None else self._of.micros(timed)),
            shift or 0,
            once,
        )

    def _on_the_way(self, plan: Any, key: tuple[str, ...]) -> tuple[tuple[Condition, ...], str | None, list[Any]]:
        """The conditions of the steps down to the first operator, SQL of the event time, and what needs columns."""
        conditions: dict[str, Condition] = {}
        event_time, used = None, []
        for node in [*_steps(plan)]:
            if class_of(node) == "Filter":
                used.append(node.condition())
                for conjunct in conjuncts(node.condition()):
                    condition = self._of.condition(conjunct, key)
                    conditions[condition.sql] = condition
            elif class_of(node) == "EventTimeWatermark":
                used.append(node.eventTime())
                event_time = self._of.micros(node.eventTime())
        # A comparison with NULL is not met, and Spark adds a condition that says so: the comparison is the reason.
        ordered = sorted(
            conditions.values(), key=lambda entry: entry.text.endswith("IS NOT NULL") and not entry.null_of_key
        )
        return tuple(ordered), event_time, used

    def _once(self, node: Any) -> Once:
        keys, timed = each(node.keys()), delayed(node.child().output())
        within = class_of(node) == "DeduplicateWithinWatermark"
        by_time = delayed(keys) is not None
        return Once(
            tuple(self._of.sql(column) for column in keys),
            None if timed is None else self._of.micros(timed),
            delay_ms(timed) if within else 0 if by_time else None,
            within,
        )

    # -- queries of which only the first steps can be followed

    def _branches(self, plan: Any) -> QueryDefinition:
        """The way of each input up to its first operator, for inputs whose rows go by the same key there."""
        ways: list[tuple[Any, tuple[str, ...], Input]] = []
        for operator, branch in self._ways(plan, None):
            self._of.branch = self._of.sources[each(next(_streams(branch)).output())[0].exprId().id()][0]
            key = self._key_at(operator, branch)
            if key:
                timed = self._compared(operator, branch)
                names = tuple(self._of.name_of(column) for column in key)
                ways.append((operator, names, self._input(branch, key, timed, also=key)))
            self._of.branch = None
        if not ways:
            raise self._no_key_error()
        first, names, _ = ways[0]
        alike = [
            query_input for at, own, query_input in ways if own == names or (first is not None and first.equals(at))
        ]
        others = [query_input.view for _, _, query_input in ways if query_input not in alike]
        steps = [_in_words(step) for step in _operators(plan)]
        if others:
            steps.append(f"where rows of {' and '.join(others)} go, which have another key")
        output_key = self._of.output_key(self._plan, [query_input.key for query_input in alike])
        is_union_alone = steps == [_IN_WORDS["Union"]]
        beyond = "" if is_union_alone else ", ".join(dict.fromkeys(steps))
        return QueryDefinition("rows", tuple(alike), key_names=names, output_key=output_key, beyond=beyond)

    def _ways(self, plan: Any, above: Any) -> Iterator[tuple[Any, Any]]:
        """The steps of each input up to its first operator, with that operator. A union is none: it has no key."""
        operator = _operator(plan)
        if operator is None:
            yield above, plan
            return
        for child in each(operator.children()):
            if any(_streams(child)):
                yield from self._ways(child, above if class_of(operator) == "Union" else operator)

    def _key_at(self, operator: Any, branch: Any) -> list[Any]:
        """What rows of a branch go by in an operator: what it joins on, groups by, or deduplicates by."""
        of, view = self._of, self._of.branch
        kind = "" if operator is None else class_of(operator)
        key: list[Any] = []
        if kind == "Join" and operator.condition().isDefined():
            pairs = [
                equality(conjunct, operator.left(), operator.right())
                for conjunct in conjuncts(operator.condition().get())
            ]
            key = [side for pair in pairs if pair for side in pair if {name for name, _ in of.columns(side)} == {view}]
        elif kind == "Aggregate":
            groups = each(operator.groupingExpressions())
            key = [group for group in groups if not any(group.metadata().contains(name) for name in _WINDOWS)]
        elif kind in _DEDUPLICATIONS:
            key = [column for column in each(operator.keys()) if delayed([column]) is None]
        elif kind == "FlatMapGroupsInPandasWithState":
            key = each(operator.groupingAttributes())
        elif kind == "TransformWithStateInPySpark":
            key = each(operator.children().apply(0).output())[: operator.groupingAttributesLen()]
        if key and all(any(name == view for name, _ in of.columns(column)) for column in key):
            return key
        output = [*(each(self._plan.output()) if operator is None else []), *each(branch.output())]
        return [column for column in output if any(name == view for name, _ in of.columns(column))][:1]

    def _compared(self, operator: Any, branch: Any) -> Any:
        """The column of a branch that an operator compares with the watermark; None if it drops no row as late."""
        kind = "" if operator is None else class_of(operator)
        if kind == "Aggregate":
            return delayed(each(operator.groupingExpressions())) if self._output_mode != "complete" else None
        if kind == "FlatMapGroupsInPandasWithState":
            compares = str(operator.timeout().toString()).startswith("EventTime")
        elif kind == "TransformWithStateInPySpark":
            compares = str(operator.timeMode().toString()).startswith("EventTime")
        else:
            compares = kind in ("Join", *_DEDUPLICATIONS)
        return delayed(branch.output()) if compares else None


def _operators(plan: Any) -> list[Any]:
    """The operators of a plan, those that a row comes to first before the others."""
    above = [operator for child in each(plan.children()) for operator in _operators(child)]
    is_one = class_of(plan) not in (*_STATELESS, _STREAM) and any(_streams(plan))
    return [*above, plan] if is_one else above


def _in_words(operator: Any) -> str:
    kind = class_of(operator)
    return _IN_WORDS.get(kind, kind)


def _chain(definition: QueryDefinition) -> Iterator[QueryDefinition]:
    yield definition
    if definition.then is not None:
        yield from _chain(definition.then)


def _shift(below: QueryDefinition) -> int | None:
    """How far the watermark behind a join is behind the query's own: no pair that is still to come may be late there.
    None if there is none."""
    ranges = [query_input.state_range_ms for query_input in below.last.inputs]
    known_ranges = [range_ms for range_ms in ranges if range_ms is not None]
    return max(known_ranges) + below.last.inputs[0].shift_ms if len(known_ranges) == len(ranges) else None


def _names_key(below: QueryDefinition, identity: Sequence[str]) -> bool:
    return all(
        any(part in identity for part in parts)
        for parts in zip(*(query_input.key for query_input in below.inputs), strict=True)
    )


def _uses(query_input: Input) -> Iterator[tuple[str, str]]:
    for column in query_input.columns if query_input.source == JOINED else ():
        view, _, name = column.partition(".")
        yield view, name


def _with_columns(definition: QueryDefinition, used: set[tuple[str, str]]) -> QueryDefinition:
    """The query with the columns that later operators need."""
    inputs = []
    for query_input in definition.inputs:
        more = {name for view, name in used if view == query_input.view and query_input.source != JOINED}
        inputs.append(
            replace(query_input, columns=tuple(sorted({*query_input.columns, *more}))) if more else query_input
        )
    then = None if definition.then is None else _with_columns(definition.then, used)
    return replace(definition, inputs=tuple(inputs), then=then)


_READERS: dict[str, Callable[[Operators, Any], QueryDefinition | None]] = {
    "Join": Operators._join,
    "Aggregate": Operators._aggregate,
    "Deduplicate": Operators._deduplicate,
    "DeduplicateWithinWatermark": Operators._deduplicate,
}
