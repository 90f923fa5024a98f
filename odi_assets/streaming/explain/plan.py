"""Reads what a streaming query does with a row from Spark's plan of it.

The plan is the optimized one: SQL and functions of DataFrames look alike there, filters stand at the inputs that they
are about, and what a join compares is one list of conditions. Spark itself is asked how long a join keeps a row
(``StreamingJoinHelper``). The plan is made of empty sources with the inputs' columns, so nothing is read.

Needs a session in this process: Spark Connect does not give plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from odi_assets.errors import ConfigError
from odi_assets.streaming.explain.definition import Condition, Definition, Input
from odi_assets.streaming.explain.sql_text import readable_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_DELAY = "spark.watermarkDelayMs"
_SESSION = "spark.sessionWindow"
_WINDOWS = ("spark.timeWindow", _SESSION)
_FAR = 10**12
"""A watermark, to see how far below it a join removes rows."""

_COMPARISONS = frozenset({"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"})
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True)
class InputShape:
    """An input as the definition is read with it: its columns, what is left out before the watermark, the watermark.

    Attributes:
        watermark: the column and Spark's text of the delay; None where the input has none.
    """

    schema: StructType
    where: str | None = None
    watermark: tuple[str, str] | None = None


def read_definition(
    spark: SparkSession,
    inputs: Mapping[str, InputShape],
    transform: Callable[[Mapping[str, DataFrame]], DataFrame],
    output_mode: str,
    label: str,
) -> Definition:
    """What the query of the node ``label`` does with a row.

    Args:
        inputs: by view.
        transform: makes the query of streams with the names of the inputs.

    Raises:
        ConfigError: the query is none that can be explained.
    """
    return _read(spark, inputs, transform, label, output_mode).definition()


def _read(
    spark: SparkSession,
    inputs: Mapping[str, InputShape],
    transform: Callable[[Mapping[str, DataFrame]], DataFrame],
    label: str,
    output_mode: str,
) -> _Reader:
    with TemporaryDirectory(prefix="odi-explain-") as folder:
        frames = {}
        for view, shape in inputs.items():
            place = Path(folder, view)
            place.mkdir()
            frames[view] = _stream(spark, shape, place)
        analyzed = _jvm_plan(transform(frames))
        plan = spark._jsparkSession.sessionState().optimizer().execute(analyzed)
        reader = _Reader(spark._jvm, folder, label, output_mode, plan)
        for node in _below(plan):
            reader.learn(node)
        return reader


@dataclass(frozen=True)
class Equality:
    """Two columns that a join compares.

    Attributes:
        kind: Spark's name of the join: ``Inner``, ``LeftOuter`` …
        views: the inputs on the left and on the right.
        sides: SQL of what is compared, likewise.
    """

    kind: str
    views: tuple[str, str]
    sides: tuple[str, str]

    def other(self, view: str) -> int | None:
        """The place of the side that a row of ``view`` needs a counterpart on; None if it needs none."""
        needs = {"Inner": (0, 1), "LeftSemi": (0,), "RightOuter": (0,), "LeftOuter": (1,)}.get(self.kind, ())
        return next((1 - place for place in needs if self.views[place] == view), None)


@dataclass(frozen=True)
class Outline:
    """What a query does with the rows of its inputs, as far as it can be told of any query.

    Attributes:
        columns: by column of the result, the columns of inputs that it is, unchanged.
        conditions: by input, what its rows must meet.
        equalities: what its joins compare.
        choices: conditions on what is computed of several rows: on ranks, on sums.
    """

    columns: Mapping[str, tuple[tuple[str, str], ...]]
    conditions: Mapping[str, tuple[Condition, ...]]
    equalities: tuple[Equality, ...]
    choices: tuple[str, ...]


def read_outline(
    spark: SparkSession,
    schemas: Mapping[str, StructType],
    transform: Callable[[Mapping[str, DataFrame]], DataFrame],
    label: str,
) -> Outline:
    """What the query of the node ``label`` does with the rows of its inputs, by view. Nothing is read or run."""
    return _read(spark, {view: InputShape(schema) for view, schema in schemas.items()}, transform, label, "").outline()


def _stream(spark: SparkSession, shape: InputShape, place: Path) -> DataFrame:
    found = spark.readStream.schema(shape.schema).parquet(str(place))
    if shape.where:
        found = found.where(shape.where)
    return found if shape.watermark is None else found.withWatermark(*shape.watermark)


def _jvm_plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _below(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _below(child)


@dataclass
class _Reader:
    jvm: Any
    folder: str
    label: str
    output_mode: str
    plan: Any
    made_of: dict[int, Any] = field(default_factory=dict)
    """By the id of a column that the plan computes, the expression; several of a sliding window."""
    sources: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the id of a column of an input, the name of the input and of the column."""
    inputs: dict[str, str] = field(default_factory=dict)
    """By that name of the input, its name in the node."""

    def definition(self) -> Definition:
        plan = self.plan
        stateful = [node for node in _below(plan) if _class(node) in _READERS]
        others = [_class(n) for n in _below(plan) if _class(n) not in _READERS and _class(n) not in _STATELESS]
        if others or len(stateful) > 1:
            found = ", ".join([_class(node) for node in stateful] + others)
            raise ConfigError(
                f"{self.label} cannot be explained: its query is made of {found}",
                fix="rows are explained for one join of two streams, one aggregation or one deduplication, and for "
                "queries without state; split the node in two, or look into its state: odi checkpoint read",
                node=self.label,
            )
        if not stateful:
            return self._rows(plan)
        node = stateful[0]
        definition = _READERS[_class(node)](self, plan, node)
        above = [one.condition() for one in self._above(plan, node) if _class(one) == "Filter"]
        following = [one for condition in above for one in self._conjuncts(condition)]
        if not following:
            return definition
        if not self._can_be_told(definition, following):
            raise ConfigError(
                f"{self.label} cannot be explained: a condition follows its {_class(node).lower()}",
                fix="put the condition into a node of its own below this one",
                node=self.label,
            )
        ordered = sorted(map(self._condition, following), key=lambda one: one.text.endswith("IS NOT NULL"))
        columns = {name for one in following for _, name in self._columns(one)}
        given = replace(definition.inputs[0], columns=tuple(sorted({*definition.inputs[0].columns, *columns})))
        return replace(definition, inputs=(given,), withheld=tuple(ordered))

    def _can_be_told(self, found: Definition, following: list[Any]) -> bool:
        """Whether conditions behind the operator can be computed from the rows of a key: those on aggregates of one
        window, and those on columns of rows that a deduplication keeps."""
        if found.kind == "aggregation":
            is_one = len(found.windows) <= 1 and not found.session
            return is_one and all(self._is_of_groups(one) for one in following)
        return found.kind == "deduplication" and not any(self._is_computed(one) for one in following)

    def _is_of_groups(self, expression: Any) -> bool:
        """Whether an expression is made of aggregates and constants alone."""
        kind = _class(expression)
        if kind == "AggregateExpression":
            return True
        if kind == "AttributeReference":
            made = self.made_of.get(expression.exprId().id())
            return made is not None and all(self._is_of_groups(one) for one in made)
        return all(self._is_of_groups(one) for one in _each(expression.children()))

    @staticmethod
    def _above(plan: Any, node: Any) -> Iterator[Any]:
        while not plan.equals(node):
            yield plan
            plan = plan.children().apply(0)

    def learn(self, node: Any) -> None:
        kind = _class(node)
        if kind in ("Project", "Aggregate"):
            for item in _each(node.projectList() if kind == "Project" else node.aggregateExpressions()):
                if _class(item) == "Alias":
                    self.made_of[item.exprId().id()] = [item.child()]
        elif kind == "Expand":
            for place, item in enumerate(_each(node.output())):
                self._choose(item, [_each(one)[place] for one in _each(node.projections())])
        elif kind == "Union":
            for place, item in enumerate(_each(node.output())):
                self._choose(item, [_each(child.output())[place] for child in _each(node.children())])
        elif kind == "StreamingRelation":
            found = re.search(rf"{re.escape(self.folder)}/(\w+)", node.toString())
            assert found is not None
            view, number = found.group(1), 2
            name = view
            while name in self.inputs:
                # A stream that is joined with itself stands in the plan twice.
                name, number = f"{view}_{number}", number + 1
            self.inputs[name] = view
            for item in _each(node.output()):
                self.sources[item.exprId().id()] = name, item.name()

    def _choose(self, item: Any, choices: list[Any]) -> None:
        others = [one for one in choices if not self._is(one, item)]
        if others:
            self.made_of[item.exprId().id()] = others

    @staticmethod
    def _is(one: Any, attribute: Any) -> bool:
        return _class(one) == "AttributeReference" and bool(one.exprId().id() == attribute.exprId().id())

    # -- any query

    def outline(self) -> Outline:
        """What the query does with the rows of its inputs."""
        conditions: dict[str, list[Condition]] = {name: [] for name in self.inputs.values()}
        choices: list[str] = []
        equalities: list[Equality] = []
        for node in _below(self.plan):
            kind = _class(node)
            if kind == "Filter":
                for one in self._conjuncts(node.condition()):
                    views = {view for view, _ in self._columns(one)}
                    if len(views) == 1 and not self._is_computed(one):
                        conditions[self.inputs[views.pop()]].append(self._condition(one))
                    else:
                        choices.append(readable_sql(self._sql(one)))
            elif kind == "Join" and node.condition().isDefined():
                equalities += self._equalities(node)
        in_order = {
            view: tuple(sorted(found, key=lambda one: one.text.endswith("IS NOT NULL")))
            for view, found in conditions.items()
        }
        columns = {str(item.name()): tuple(self._origins(item)) for item in _each(self.plan.output())}
        return Outline(columns, in_order, tuple(equalities), tuple(choices))

    def _equalities(self, node: Any) -> Iterator[Equality]:
        kind = str(node.joinType().toString())
        for one in self._conjuncts(node.condition().get()):
            pair = self._equality(one, node.left(), node.right())
            views = [{view for view, _ in self._columns(side)} for side in pair or ()]
            if pair and all(len(found) == 1 for found in views):
                left, right = (self.inputs[found.pop()] for found in views)
                yield Equality(kind, (left, right), (self._sql(pair[0]), self._sql(pair[1])))

    def _is_computed(self, expression: Any) -> bool:
        """Whether a part of it is no column of an input, nor made of one row's columns."""
        for item in _each(expression.references().toSeq()):
            number = item.exprId().id()
            if number not in self.sources:
                made = self.made_of.get(number)
                if made is None or any(self._is_computed(one) or _aggregates(one) for one in made):
                    return True
        return False

    def _origins(self, expression: Any) -> Iterator[tuple[str, str]]:
        """The columns of inputs that an expression is, unchanged but for a type that keeps its text."""
        while _class(expression) == "Alias" or (_class(expression) == "Cast" and _keeps_text(expression)):
            expression = expression.child()
        if _class(expression) != "AttributeReference":
            return
        number = expression.exprId().id()
        if number in self.sources:
            view, column = self.sources[number]
            yield self.inputs[view], column
        for made in self.made_of.get(number, ()):
            yield from self._origins(made)

    # -- the kinds of streaming queries

    def _join(self, plan: Any, node: Any) -> Definition:
        sides = node.left(), node.right()
        whole = node.condition().get()
        keys: list[tuple[Any, Any]] = []
        conditions = []
        for one in self._conjuncts(whole):
            pair = self._equality(one, *sides)
            if pair:
                keys.append(pair)
            else:
                conditions.append(self._condition(one))
        inputs = []
        for place, side in enumerate(sides):
            own = [pair[place] for pair in keys]
            delayed, other = self._delayed(side.output()), self._delayed(sides[1 - place].output())
            by_key = any(self._delayed([key]) is not None for pair in keys for key in pair if _is_named(key))
            range_ms = 0 if by_key else self._range(side, other, whole) if delayed is not None else None
            inputs.append(self._input(side, own, delayed, range_ms, also=[whole]))
        names = tuple(self._name_of(left) for left, _ in keys)
        kind = str(node.joinType().toString())
        outer = {"LeftOuter": (0,), "RightOuter": (1,), "FullOuter": (0, 1)}.get(kind, ())
        return Definition(
            "join",
            tuple(inputs),
            tuple(conditions),
            tuple(inputs[place].view for place in outer),
            names,
            self._output_key(plan, [one.key for one in inputs]),
        )

    def _rows(self, plan: Any) -> Definition:
        key = next((item for item in _each(plan.output()) if any(self._columns(item))), None)
        if key is None:
            raise ConfigError(
                f"{self.label} cannot be explained: its rows have no column of its input", node=self.label
            )
        found = self._input(plan, [key])
        return Definition("rows", (found,), key_names=(str(key.name()),), output_key=(str(key.name()),))

    def _aggregate(self, plan: Any, node: Any) -> Definition:
        child = node.child()
        groups = _each(node.groupingExpressions())
        delayed = self._delayed(groups)
        windows = [one for one in groups if any(one.metadata().contains(name) for name in _WINDOWS)]
        key = [one for one in groups if one not in windows] or windows
        mode = self.output_mode
        late = delayed if mode != "complete" else None
        found = self._input(child, key, late, 0 if late is not None else None, also=groups)
        return Definition(
            "aggregation",
            (found,),
            key_names=tuple(str(one.name()) for one in key),
            output_key=self._output_key(plan, [found.key]),
            windows=tuple(self._sql(one) for one in self._choices(windows[0])) if windows else (),
            session=any(one.metadata().contains(_SESSION) for one in windows),
            waits_for_watermark=mode == "append",
        )

    def _deduplicate(self, plan: Any, node: Any) -> Definition:
        child, keys = node.child(), _each(node.keys())
        delayed = self._delayed(child.output())
        within = _class(node) == "DeduplicateWithinWatermark"
        timed = self._delayed(keys) is not None
        range_ms = int(delayed.metadata().getLong(_DELAY)) if within else 0 if timed else None
        shown = [one for one in keys if self._delayed([one]) is None] or keys
        found = self._input(child, shown, delayed, range_ms, also=keys)
        return Definition(
            "deduplication",
            (found,),
            key_names=tuple(str(one.name()) for one in shown),
            output_key=self._output_key(plan, [found.key]),
            identity=tuple(self._sql(one) for one in keys),
            expires=within,
        )

    # -- inputs and conditions

    def _input(
        self,
        side: Any,
        key: list[Any] | None = None,
        delayed: Any = None,
        range_ms: int | None = None,
        also: list[Any] | None = None,
    ) -> Input:
        view = next(
            self.sources[item.exprId().id()][0] for leaf in _each(side.collectLeaves()) for item in _each(leaf.output())
        )
        parts = tuple(self._sql(one) for one in key or ())
        found: dict[str, Condition] = {}
        event_time = None
        for node in _below(side):
            if _class(node) == "Filter":
                for one in self._conjuncts(node.condition()):
                    condition = self._condition(one, parts)
                    found[condition.sql] = condition
            elif _class(node) == "EventTimeWatermark":
                event_time = self._micros(node.eventTime())
        # A comparison with NULL is not met, and Spark adds a condition that says so: the comparison is the reason.
        ordered = sorted(found.values(), key=lambda one: one.text.endswith("IS NOT NULL") and not one.null_of_key)
        late = None if delayed is None else self._micros(delayed)
        used = [*(key or ()), *(also or ()), *([delayed] if delayed is not None else [])]
        used += [node.condition() for node in _below(side) if _class(node) == "Filter"]
        used += [node.eventTime() for node in _below(side) if _class(node) == "EventTimeWatermark"]
        columns = sorted({column for one in used for name, column in self._columns(one) if name == view})
        return Input(view, self.inputs[view], tuple(columns), parts, tuple(ordered), late, range_ms, event_time or late)

    def _conjuncts(self, condition: Any) -> Iterator[Any]:
        if _class(condition) == "And":
            yield from self._conjuncts(condition.left())
            yield from self._conjuncts(condition.right())
        else:
            yield condition

    def _equality(self, one: Any, left: Any, right: Any) -> tuple[Any, Any] | None:
        if _class(one) != "EqualTo":
            return None
        a, b = one.left(), one.right()
        if a.references().subsetOf(left.outputSet()) and b.references().subsetOf(right.outputSet()):
            return a, b
        if b.references().subsetOf(left.outputSet()) and a.references().subsetOf(right.outputSet()):
            return b, a
        return None

    def _condition(self, one: Any, key: tuple[str, ...] = ()) -> Condition:
        sql = self._sql(one)
        sides, kind = None, ""
        if _class(one) in _COMPARISONS:
            kind = _kind_of(one.left())
            if kind:
                take = self._micros if kind == "time" else self._sql
                sides = take(one.left()), take(one.right())
        is_null_check = _class(one) == "IsNotNull" and self._sql(one.child()) in key
        return Condition(sql, readable_sql(sql), sides, kind, is_null_check)

    def _delayed(self, attributes: Any) -> Any:
        found = attributes if isinstance(attributes, list) else _each(attributes)
        return next((one for one in found if _is_named(one) and one.metadata().contains(_DELAY)), None)

    def _range(self, side: Any, other: Any, condition: Any) -> int | None:
        """How far the watermark has to pass a row's time before Spark removes the row, in milliseconds."""
        if other is None:
            return None
        expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        helper = self.jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
        some = self.jvm.scala.Some
        found = helper.getStateValueWatermark(
            side.outputSet(), expressions.AttributeSet.apply(other), some(condition), some(_FAR)
        )
        return _FAR - int(found.get()) if found.isDefined() else None

    # -- expressions as SQL

    def _choices(self, attribute: Any) -> list[Any]:
        return list(self.made_of.get(attribute.exprId().id(), [attribute]))

    def _sql(self, expression: Any) -> str:
        return str(self._over_sources(expression).sql())

    def _micros(self, expression: Any) -> str:
        """SQL of a time as microseconds since 1970; of a window, of its end."""
        sql, kind = self._sql(expression), str(expression.dataType().typeName())
        if kind == "struct":
            sql, kind = f"({sql}).end", "timestamp"
        return f"unix_micros({sql})" if kind == "timestamp" else f"unix_micros(CAST({sql} AS TIMESTAMP))"

    def _columns(self, expression: Any) -> Iterator[tuple[str, str]]:
        for item in _each(expression.references().toSeq()):
            number = item.exprId().id()
            if number in self.sources:
                yield self.sources[number]
            else:
                for made in self.made_of.get(number, ()):
                    yield from self._columns(made)

    def _over_sources(self, expression: Any) -> Any:
        """An expression over the columns of the inputs, of functions that SQL knows."""
        kind = _class(expression)
        to_seq = self.jvm.org.apache.spark.api.python.PythonUtils.toSeq
        if kind == "AttributeReference":
            number = expression.exprId().id()
            if number in self.sources:
                view, column = self.sources[number]
                return expression.withName(column).withQualifier(to_seq([view]))
            made = self.made_of.get(number)
            return self._over_sources(made[0]) if made else expression.withQualifier(to_seq([]))
        if kind in ("KnownNullable", "KnownNotNull", "Alias"):
            return self._over_sources(expression.child())
        if kind == "PreciseTimestampConversion":
            functions = self.jvm.org.apache.spark.sql.catalyst.expressions
            to_time = expression.toType().typeName() == "timestamp"
            convert = functions.MicrosToTimestamp if to_time else functions.UnixMicros
            return convert(self._over_sources(expression.child()))
        children = [self._over_sources(one) for one in _each(expression.children())]
        return expression.withNewChildren(to_seq(children)) if children else expression

    def _name_of(self, key: Any) -> str:
        columns = list(self._columns(key))
        return columns[0][1] if len(columns) == 1 else readable_sql(self._sql(key))

    def _output_key(self, plan: Any, keys: list[tuple[str, ...]]) -> tuple[str | None, ...]:
        shown = {self._sql(item): str(item.name()) for item in reversed(_each(plan.output()))}
        return tuple(next((shown[part] for part in parts if part in shown), None) for parts in zip(*keys, strict=True))


def _is_named(expression: Any) -> bool:
    return _class(expression) in ("AttributeReference", "Alias")


def _keeps_text(cast: Any) -> bool:
    """Whether a value reads the same before and after a cast: a day is not the time it was made of."""
    before, after = str(cast.child().dataType().typeName()), str(cast.dataType().typeName())
    return after in (before, "string") or {before, after} <= {"byte", "short", "integer", "long"}


def _aggregates(expression: Any) -> bool:
    return any(_class(one) == "AggregateExpression" for one in _below(expression))


def _kind_of(expression: Any) -> str:
    name = str(expression.dataType().catalogString())
    if name in ("timestamp", "timestamp_ntz", "date"):
        return "time"
    return "number" if name.startswith(_NUMBERS) else ""


_READERS: dict[str, Callable[[_Reader, Any, Any], Definition]] = {
    "Join": _Reader._join,
    "Aggregate": _Reader._aggregate,
    "Deduplicate": _Reader._deduplicate,
    "DeduplicateWithinWatermark": _Reader._deduplicate,
}
_STATELESS = frozenset({"Project", "Filter", "EventTimeWatermark", "StreamingRelation", "Expand"})
