"""Reads what a streaming query does with a row from Spark's plan of it.

The plan is the optimized one: SQL and functions of DataFrames look alike there, filters stand at the inputs that they
are about, and what a join compares is one list of conditions. Spark itself is asked how long a join keeps a row
(``StreamingJoinHelper``). The plan is made of empty sources with the inputs' columns, so nothing is read.

Needs a session in this process: Spark Connect does not give plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from odi_assets.spark.plans.definition import Condition, QueryDefinition
from odi_assets.spark.plans.expressions import Expressions, below, class_of, conjuncts, each, equality
from odi_assets.spark.plans.operators import Operators
from odi_assets.spark.plans.sql_text import readable_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
) -> QueryDefinition:
    """What the query of the node ``label`` does with a row.

    Args:
        inputs: by view.
        transform: makes the query of streams with the names of the inputs.

    Raises:
        ConfigError: it is not known what the query does with a row.
    """
    expressions, plan = _read(spark, inputs, transform)
    return Operators(expressions, plan, output_mode, label).definition()


def _read(
    spark: SparkSession,
    inputs: Mapping[str, InputShape],
    transform: Callable[[Mapping[str, DataFrame]], DataFrame],
) -> tuple[Expressions, Any]:
    """The optimized plan of the query, and what its columns are made of."""
    with TemporaryDirectory(prefix="odi-explain-") as folder:
        frames = {}
        for view, shape in inputs.items():
            input_folder = Path(folder, view)
            input_folder.mkdir()
            frames[view] = _stream(spark, shape, input_folder)
        analyzed = _jvm_plan(transform(frames))
        plan = spark._jsparkSession.sessionState().optimizer().execute(analyzed)
        expressions = Expressions(spark._jvm, folder)
        for node in below(plan):
            expressions.learn(node)
        return expressions, plan


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
        return next((1 - index for index in needs if self.views[index] == view), None)


@dataclass(frozen=True)
class Outline:
    """What a query does with the rows of its inputs, as far as the plan of any query shows it.

    Attributes:
        columns: by column of the result, the columns of inputs that it is, unchanged.
        conditions: by input, what its rows must meet.
        equalities: what its joins compare.
        choices: conditions on what is computed of several rows: on ranks, on sums.
        operators: the classes of the plan's nodes.
    """

    columns: Mapping[str, tuple[tuple[str, str], ...]]
    conditions: Mapping[str, tuple[Condition, ...]]
    equalities: tuple[Equality, ...]
    choices: tuple[str, ...]
    operators: frozenset[str] = frozenset()


def read_outline(
    spark: SparkSession,
    schemas: Mapping[str, StructType],
    transform: Callable[[Mapping[str, DataFrame]], DataFrame],
) -> Outline:
    """What a query does with the rows of its inputs, by view. Nothing is read or run."""
    of, plan = _read(spark, {view: InputShape(schema) for view, schema in schemas.items()}, transform)
    conditions: dict[str, list[Condition]] = {name: [] for name in of.inputs.values()}
    choices: list[str] = []
    equalities: list[Equality] = []
    for node in below(plan):
        kind = class_of(node)
        if kind == "Filter":
            for conjunct in conjuncts(node.condition()):
                views = {view for view, _ in of.columns(conjunct)}
                if len(views) == 1 and not of.is_computed(conjunct):
                    conditions[of.inputs[views.pop()]].append(of.condition(conjunct))
                else:
                    choices.append(readable_sql(of.sql(conjunct)))
        elif kind == "Join" and node.condition().isDefined():
            equalities += _equalities(of, node)
    in_order = {
        view: tuple(sorted(view_conditions, key=lambda condition: condition.text.endswith("IS NOT NULL")))
        for view, view_conditions in conditions.items()
    }
    columns = {str(item.name()): tuple(of.origins(item)) for item in each(plan.output())}
    operators = frozenset(class_of(node) for node in below(plan))
    return Outline(columns, in_order, tuple(equalities), tuple(choices), operators)


def _equalities(of: Expressions, node: Any) -> Iterator[Equality]:
    kind = str(node.joinType().toString())
    for conjunct in conjuncts(node.condition().get()):
        pair = equality(conjunct, node.left(), node.right())
        views = [{view for view, _ in of.columns(side)} for side in pair or ()]
        if pair and all(len(side_views) == 1 for side_views in views):
            left, right = (of.inputs[side_views.pop()] for side_views in views)
            yield Equality(kind, (left, right), (of.sql(pair[0]), of.sql(pair[1])))


def _stream(spark: SparkSession, shape: InputShape, folder: Path) -> DataFrame:
    frame = spark.readStream.schema(shape.schema).parquet(str(folder))
    if shape.where:
        frame = frame.where(shape.where)
    return frame if shape.watermark is None else frame.withWatermark(*shape.watermark)


def _jvm_plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
