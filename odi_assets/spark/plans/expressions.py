"""Columns and expressions of Spark's plan of a query, written in the columns of its inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odi_assets.spark.plans.definition import Condition
from odi_assets.spark.plans.sql_text import readable_sql

_DELAY = "spark.watermarkDelayMs"
_FAR = 10**12
"""A watermark, to see how far below it a join removes rows."""

_COMPARISONS = frozenset({"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"})
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def each(sequence: Any) -> list[Any]:
    """The elements of a sequence of Scala."""
    return [sequence.apply(index) for index in range(sequence.size())]


def class_of(node: Any) -> str:
    """The name of the class of a node or an expression."""
    return str(node.getClass().getSimpleName())


def below(plan: Any) -> Iterator[Any]:
    """A node, and all that are below it."""
    yield plan
    for child in each(plan.children()):
        yield from below(child)


def conjuncts(condition: Any) -> Iterator[Any]:
    """The conditions that a condition is made of by AND."""
    if class_of(condition) == "And":
        yield from conjuncts(condition.left())
        yield from conjuncts(condition.right())
    else:
        yield condition


def is_named(expression: Any) -> bool:
    """Whether it is a column, or has a name given."""
    return class_of(expression) in ("AttributeReference", "Alias")


def delayed(attributes: Any) -> Any:
    """The column with a watermark, among columns; None if there is none."""
    columns = attributes if isinstance(attributes, list) else each(attributes)
    return next((column for column in columns if is_named(column) and column.metadata().contains(_DELAY)), None)


def delay_ms(attribute: Any) -> int:
    """The delay of the watermark of a column."""
    return int(attribute.metadata().getLong(_DELAY))


def equality(conjunct: Any, left: Any, right: Any) -> tuple[Any, Any] | None:
    """What a condition of a join says is equal on both sides; None if it says something else."""
    if class_of(conjunct) != "EqualTo":
        return None
    a, b = conjunct.left(), conjunct.right()
    if a.references().subsetOf(left.outputSet()) and b.references().subsetOf(right.outputSet()):
        return a, b
    if b.references().subsetOf(left.outputSet()) and a.references().subsetOf(right.outputSet()):
        return b, a
    return None


@dataclass
class Expressions:
    """What the columns of a plan are made of.

    Attributes:
        folder: the empty sources of the plan are in folders of it that have the names of the inputs.
        made_of: by the id of a column that the plan computes, the expression; several of a sliding window or a union.
        sources: by the id of a column of an input, the name of the input and of the column.
        inputs: by that name of the input, its name in the node.
        branch: of columns that a union has of several inputs, this input's are meant.
    """

    jvm: Any
    folder: str
    made_of: dict[int, Any] = field(default_factory=dict)
    sources: dict[int, tuple[str, str]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    branch: str | None = None

    def learn(self, node: Any) -> None:
        """Take in a node of the plan; nodes above come before nodes below."""
        kind = class_of(node)
        if kind in ("Project", "Aggregate"):
            for item in each(node.projectList() if kind == "Project" else node.aggregateExpressions()):
                if class_of(item) == "Alias":
                    # A union has the columns of its first branch.
                    self.made_of[item.exprId().id()] = [item.child(), *self.made_of.get(item.exprId().id(), ())]
        elif kind == "Expand":
            for index, item in enumerate(each(node.output())):
                self._choose(item, [each(projection)[index] for projection in each(node.projections())])
        elif kind == "Union":
            for index, item in enumerate(each(node.output())):
                self._choose(item, [each(child.output())[index] for child in each(node.children())])
        elif kind == "StreamingRelation":
            match = re.search(rf"{re.escape(self.folder)}/(\w+)", node.toString())
            assert match is not None
            view, number = match.group(1), 2
            name = view
            while name in self.inputs:
                # A stream that is joined with itself stands in the plan twice.
                name, number = f"{view}_{number}", number + 1
            self.inputs[name] = view
            for item in each(node.output()):
                self.sources[item.exprId().id()] = name, item.name()

    def _choose(self, item: Any, choices: list[Any]) -> None:
        others = [choice for choice in choices if not self._is(choice, item)]
        if others:
            self.made_of[item.exprId().id()] = others

    @staticmethod
    def _is(expression: Any, attribute: Any) -> bool:
        return class_of(expression) == "AttributeReference" and bool(
            expression.exprId().id() == attribute.exprId().id()
        )

    def is_computed(self, expression: Any) -> bool:
        """Whether a part of it is no column of an input, nor made of one row's columns."""
        for item in each(expression.references().toSeq()):
            number = item.exprId().id()
            if number not in self.sources:
                made = self.made_of.get(number)
                if made is None or any(self.is_computed(part) or _aggregates(part) for part in made):
                    return True
        return False

    def origins(self, expression: Any) -> Iterator[tuple[str, str]]:
        """The columns of inputs that an expression is, unchanged but for a type that keeps its text."""
        while class_of(expression) == "Alias" or (class_of(expression) == "Cast" and _keeps_text(expression)):
            expression = expression.child()
        if class_of(expression) != "AttributeReference":
            return
        number = expression.exprId().id()
        if number in self.sources:
            view, column = self.sources[number]
            yield self.inputs[view], column
        for made in self.made_of.get(number, ()):
            yield from self.origins(made)

    def condition(self, conjunct: Any, key: tuple[str, ...] = ()) -> Condition:
        """A condition; ``key`` is SQL of the parts of the key."""
        sql = self.sql(conjunct)
        sides, kind = None, ""
        if class_of(conjunct) in _COMPARISONS:
            kind = _kind_of(conjunct.left())
            if kind:
                take = self.micros if kind == "time" else self.sql
                sides = take(conjunct.left()), take(conjunct.right())
        is_null_check = class_of(conjunct) == "IsNotNull" and self.sql(conjunct.child()) in key
        return Condition(sql, readable_sql(sql), sides, kind, is_null_check)

    def range_ms(self, side: Any, other: Any, condition: Any) -> int | None:
        """How far the watermark has to pass a row's time before Spark removes the row, in milliseconds."""
        if other is None:
            return None
        expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        helper = self.jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
        some = self.jvm.scala.Some
        watermark = helper.getStateValueWatermark(
            side.outputSet(), expressions.AttributeSet.apply(other), some(condition), some(_FAR)
        )
        return _FAR - int(watermark.get()) if watermark.isDefined() else None

    def choices(self, attribute: Any) -> list[Any]:
        """What a column is made of: one expression for each window of a sliding one."""
        return list(self.made_of.get(attribute.exprId().id(), [attribute]))

    def sql(self, expression: Any) -> str:
        """SQL over columns named ``input.column``."""
        return str(self._over_sources(expression).sql())

    def micros(self, expression: Any) -> str:
        """SQL of a time as microseconds since 1970; of a window, of its end."""
        sql, kind = self.sql(expression), str(expression.dataType().typeName())
        if kind == "struct":
            sql, kind = f"({sql}).end", "timestamp"
        return f"unix_micros({sql})" if kind == "timestamp" else f"unix_micros(CAST({sql} AS TIMESTAMP))"

    def columns(self, expression: Any) -> Iterator[tuple[str, str]]:
        """The inputs and columns that an expression is made of."""
        for item in each(expression.references().toSeq()):
            number = item.exprId().id()
            made = self._of_branch(number)
            if made is None and number in self.sources:
                yield self.sources[number]
            else:
                for part in made or self.made_of.get(number, ()):
                    yield from self.columns(part)

    def _of_branch(self, number: int) -> list[Any] | None:
        """What a column is made of in the branch of a union; None if it is not made there."""
        if self.branch is None or self.sources.get(number, ("",))[0] == self.branch:
            return None
        made = self.made_of.get(number, ())
        return [part for part in made if any(view == self.branch for view, _ in self.columns(part))] or None

    def _over_sources(self, expression: Any) -> Any:
        """An expression over the columns of the inputs, of functions that SQL knows."""
        kind = class_of(expression)
        to_seq = self.jvm.org.apache.spark.api.python.PythonUtils.toSeq
        if kind == "AttributeReference":
            number = expression.exprId().id()
            made = self._of_branch(number)
            if made is None and number in self.sources:
                view, column = self.sources[number]
                return expression.withName(column).withQualifier(to_seq([view]))
            made = made or self.made_of.get(number)
            return self._over_sources(made[0]) if made else expression.withQualifier(to_seq([]))
        if kind in ("KnownNullable", "KnownNotNull", "Alias"):
            return self._over_sources(expression.child())
        if kind == "PreciseTimestampConversion":
            functions = self.jvm.org.apache.spark.sql.catalyst.expressions
            to_time = expression.toType().typeName() == "timestamp"
            convert = functions.MicrosToTimestamp if to_time else functions.UnixMicros
            return convert(self._over_sources(expression.child()))
        children = [self._over_sources(child) for child in each(expression.children())]
        return expression.withNewChildren(to_seq(children)) if children else expression

    def name_of(self, key: Any) -> str:
        """A part of a key, for people."""
        columns = list(self.columns(key))
        return columns[0][1] if len(columns) == 1 else readable_sql(self.sql(key))

    def output_key(self, plan: Any, keys: list[tuple[str, ...]]) -> tuple[str | None, ...]:
        """By part of the key, the column of a plan's result that has it; None where none has."""
        shown = {self.sql(item): str(item.name()) for item in reversed(each(plan.output()))}
        return tuple(next((shown[part] for part in parts if part in shown), None) for parts in zip(*keys, strict=True))


def _keeps_text(cast: Any) -> bool:
    """Whether a value reads the same before and after a cast: a day is not the time it was made of."""
    before, after = str(cast.child().dataType().typeName()), str(cast.dataType().typeName())
    return after in (before, "string") or {before, after} <= {"byte", "short", "integer", "long"}


def _aggregates(expression: Any) -> bool:
    return any(class_of(node) == "AggregateExpression" for node in below(expression))


def _kind_of(expression: Any) -> str:
    name = str(expression.dataType().catalogString())
    if name in ("timestamp", "timestamp_ntz", "date"):
        return "time"
    return "number" if name.startswith(_NUMBERS) else ""
