"""Rows that stream joins gave up without a match, found in what the batches changed in the joins' state.

The state of a side of a join holds, by key and index, the row and whether it found a match. A row leaves when the
watermark passes it: the last row of its key takes its index, so an index that is deleted does not tell which row left.
So the rows of each index that a batch changed are compared before and after: those that are no longer there left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window

from odi_assets.checkpoints.copies import copy_of_remote
from odi_assets.checkpoints.files import state_files
from odi_assets.checkpoints.inspect import JOIN, inspect, rows_store, torn_descriptions
from odi_assets.checkpoints.reader import spark_path
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.sources.streamed import StreamedSource
from odi_assets.spark.lazy import F
from odi_assets.streams.execution.kept_shape import GivenUp, moment
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MATCHED = "matched"


def require_descriptions(checkpoint: Location, node: str) -> None:
    """Stop before a batch if the rows that joins give up in it could not be found after it.

    Raises:
        CheckpointError: the description of a stateful operator is torn. Spark would go on without it.
    """
    torn = torn_descriptions(checkpoint.local_path) if checkpoint.is_local else {}
    for error in torn.values():
        raise CheckpointError(
            f"{node}: its unmatched rows cannot be found: {error}",
            fix=f"`odi tables repair {node}` sets it aside, and the next batch writes it again; or put it back from a "
            "copy",
            path=checkpoint.uri,
            node=node,
        )


def evidence_from(log: ProgressLog, after: int, upto: int, *, look_inside: bool = False) -> int:
    """The first batch, not before ``after``, after whose state the checkpoint has every change up to ``upto``.

    It is -1 where the query's first batch is still there, and ``upto`` where changes are missing.

    Args:
        look_inside: read the files, for some are damaged; else their names are enough.

    Raises:
        CheckpointError: the checkpoint does not describe an operator, so rows that it gave up may not be found.
    """
    # Spark reads the last two plans; of others, the number counts.
    since = upto - 1
    with copy_of_remote(log.location, logs_only=not look_inside, since=since) as copy:
        known = inspect(copy or log.location.uri, since=since)
        undescribed = [str(operator.operator_id) for operator in known.operators if operator.name is None]
        if undescribed:
            raise CheckpointError(
                f"{log.location.uri}: nothing describes its state {', '.join(undescribed)}, so nobody knows which rows "
                f"its joins gave up",
                fix="put state/NUMBER/_metadata back from a copy; or run it again once new data is there: the next "
                "batch writes it",
                path=log.location.uri,
            )
        names = [rows_store(side) for side in ("left", "right")]
        stores = [
            files for operator in known.operators if operator.is_join for files in state_files(known, operator, names)
        ]
        committed = [batch.batch_id for batch in known.batches if batch.committed]
        bases = [base for base in [*([-1] if committed[:1] == [0] else []), *committed] if after <= base < upto]
        follows = (base for base in bases if all(files.covers(base + 1, upto + 1, look_inside) for files in stores))
        return next(follows, upto)


def unmatched_rows(
    spark: SparkSession, log: ProgressLog, after: int, upto: int, inputs: Sequence[StreamedSource]
) -> Iterator[GivenUp]:
    """The rows that joins gave up in the batches ``after < batch <= upto``, which are all committed.

    Args:
        after: -1 for a query's first batches; else the checkpoint has to hold this batch.
    """
    path = spark_path(Path(log.location.uri)) if log.location.is_local else log.location.uri
    described = spark.read.format("state-metadata").load(path).where(f"operatorName = '{JOIN}'")
    operators = sorted(row[0] for row in described.select("operatorId").distinct().collect())
    watermarks = {number: log.watermark_ms(number) for number in range(after + 1, upto + 1)}
    for operator in operators:
        for side in ("left", "right"):
            store = {"operatorId": str(operator), "storeName": f"{side}-keyWithIndexToValue"}
            yield _of_side(spark, path, store, side, after, upto, watermarks, inputs)


def _of_side(
    spark: SparkSession,
    path: str,
    store: dict[str, str],
    side: str,
    after: int,
    upto: int,
    watermarks: dict[int, int],
    inputs: Sequence[StreamedSource],
) -> GivenUp:
    def read(**options: Any) -> DataFrame:
        reader = spark.read.format("statestore").options(**store)
        return reader.options(**{name: str(value).lower() for name, value in options.items()}).load(path)

    feed = read(readChangeFeed=True, changeStartBatchId=after + 1, changeEndBatchId=upto)
    columns = [field.name for field in feed.schema["value"].dataType.fields if field.name != _MATCHED]  # type: ignore[attr-defined]
    row = F.struct(*[F.col(f"value.{quoted(name)}") for name in columns])
    time = _time_column(columns, inputs)
    event = F.col(f"value.{quoted(time)}").cast("timestamp") if time else F.lit(None).cast("timestamp")
    shaped = [F.col("key"), row.alias("row"), event.alias("event_time"), F.col(f"value.{_MATCHED}").alias(_MATCHED)]

    # One task reads a partition of the state in the order in which it was written.
    changed = feed.select("batch_id", "change_type", *shaped, F.monotonically_increasing_id().alias("seq"))
    state = F.when(F.col("change_type") != "delete", F.struct("row", "event_time", _MATCHED))
    last = changed.groupBy("batch_id", "key").agg(F.max_by(state, "seq").alias("now"))
    if after >= 0:
        base = read(batchId=after).select(F.lit(after).cast("bigint").alias("batch_id"), *shaped)
        last = base.select("batch_id", "key", F.struct("row", "event_time", _MATCHED).alias("now")).unionByName(last)
    before = F.lag("now").over(Window.partitionBy("key").orderBy("batch_id"))
    slots = last.withColumn("before", before).where(F.col("batch_id") > after)
    left = slots.where("before IS NOT NULL").select("batch_id", "before.*", F.lit(1).alias("gone"))
    stays = slots.where("now IS NOT NULL").select("batch_id", "now.*", F.lit(-1).alias("gone"))
    # A row may find its match in the very batch that gives it up.
    seen = changed.where("change_type <> 'delete'").select(
        "batch_id", "row", "event_time", _MATCHED, F.lit(0).alias("gone")
    )
    of_row = left.unionByName(stays).unionByName(seen).groupBy("batch_id", "row")
    given_up = of_row.agg(
        F.sum("gone").alias("gone"), F.max("event_time").alias("event_time"), F.max(_MATCHED).alias(_MATCHED)
    ).where(f"gone > 0 AND NOT {_MATCHED}")
    repeated = given_up.withColumn("copy", F.explode(F.sequence(F.lit(1), F.col("gone").cast("int"))))
    return GivenUp(
        _input_of(columns, inputs) or side,
        repeated.select(
            "event_time",
            F.col("batch_id").cast("bigint").alias("batch"),
            _watermark(watermarks).alias("watermark"),
            "row",
        ),
    )


def _watermark(watermarks: dict[int, int]) -> Column:
    watermark = F.lit(None).cast("timestamp")
    for number, ms in watermarks.items():
        watermark = F.when(F.col("batch_id") == number, moment(ms)).otherwise(watermark)
    return watermark


def _input_of(columns: Sequence[str], inputs: Sequence[StreamedSource]) -> str | None:
    """The input whose rows have these columns; None if several do, or none: the join is of what a transform made."""
    by_time = [source for source in inputs if source.settings.watermark and source.settings.watermark.column in columns]
    names = [source.name for source in by_time]
    if len(names) > 1:
        # Their times have one name: the other columns may tell.
        wanted = {column.lower() for column in columns}
        names = [source.name for source in by_time if wanted <= {name.lower() for name in source.schema().names}]
    return names[0] if len(names) == 1 else None


def _time_column(columns: Sequence[str], inputs: Sequence[StreamedSource]) -> str | None:
    time_columns = {source.settings.watermark.column.lower() for source in inputs if source.settings.watermark}
    matches = [column for column in columns if column.lower() in time_columns]
    return matches[0] if len(matches) == 1 else None
