"""Reads the state of a stateful query through Spark's data sources ``state-metadata`` and ``statestore``.

Nothing here needs a JVM in this process: all of it works through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from odi_assets.errors import CheckpointError
from odi_assets.streaming.checkpoint import Checkpoint, inspect, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JoinSide: TypeAlias = Literal["left", "right"]

_REPORT_LAG = "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
_UPLOAD_ON_LAG = "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag"


def state_metadata(spark: SparkSession, checkpoint: Checkpoint | str | Path) -> DataFrame:
    """A row for each state store of each stateful operator, as Spark's source ``state-metadata`` gives it.

    Columns: operatorId, operatorName, stateStoreName, numPartitions, minBatchId, maxBatchId, operatorProperties.
    ``minBatchId`` is the oldest batch that is still kept, and says nothing about what the query purged.

    Raises:
        CheckpointError: there is no checkpoint; Spark itself would return no rows.
    """
    location = _location(spark, checkpoint, _known(checkpoint))
    with asked_of(location):
        return spark.read.format("state-metadata").load(location)


def read_state(
    spark: SparkSession,
    checkpoint: Checkpoint | str | Path,
    *,
    operator_id: int = 0,
    batch_id: int | None = None,
    store_name: str | None = None,
    join_side: JoinSide | None = None,
    state_variable: str | None = None,
    change_feed: bool = False,
    change_start: int | None = None,
    change_end: int | None = None,
) -> DataFrame:
    """The state of one operator, with columns key, value and partition_id.

    Args:
        spark: the session to read with; it need not have run a streaming query.
        checkpoint: its folder, or the result of :func:`~odi_assets.streaming.inspect`.
        operator_id: which stateful operator.
        batch_id: the state after that batch; the last committed one if None.
        store_name: which of the operator's stores; a join has four, such as ``left-keyWithIndexToValue``.
        join_side: all rows of one side of a join, without the flag ``matched`` that ``store_name`` gives.
        state_variable: which variable of an operator that has named ones (transformWithState).
        change_feed: what each batch did instead of what is there: adds the columns batch_id and change_type
            (``update``, ``append``, ``delete``). With RocksDB this needs changelog checkpointing.
        change_start: first batch of the change feed; the oldest one kept if None.
        change_end: last batch of the change feed; the last committed one if None.

    Raises:
        CheckpointError: there is no checkpoint, or no such operator, store or batch in it.
    """
    known = _known(checkpoint)
    if known:
        _check(known, operator_id, batch_id if batch_id is not None else change_end, store_name, join_side, change_feed)
    if change_feed and change_start is None:
        change_start = known.batches[0].batch_id if known else 0
    options = {
        "operatorId": operator_id,
        "batchId": batch_id,
        "storeName": store_name,
        "joinSide": join_side,
        "stateVarName": state_variable,
        "readChangeFeed": True if change_feed else None,
        "changeStartBatchId": change_start,
        "changeEndBatchId": change_end,
    }
    location = _location(spark, checkpoint, known)
    with asked_of(location), _without_coordinator(spark):
        reader = spark.read.format("statestore")
        for name, value in options.items():
            if value is not None:
                reader = reader.option(name, value)
        frame = reader.load(location)
        frame.schema  # noqa: B018  through Connect, this is the first call that can raise an error
        return frame


@contextmanager
def asked_of(location: str) -> Iterator[None]:
    """Turns an error of Spark while it reads a checkpoint into a CheckpointError with Spark's message."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if "[" in line), lines[0] if lines else type(error).__name__)
        raise CheckpointError(
            f"Spark cannot read the state in {location}: {said[:500]}",
            fix=(
                "state_metadata lists the operators, stores and batches there are; a change feed of RocksDB state "
                "needs spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true in each run"
            ),
            path=location,
        ) from error


@contextmanager
def _without_coordinator(spark: SparkSession) -> Iterator[None]:
    """Reads without the state store coordinator, which only a streaming query starts (SPARK-58973, Spark 4.2).

    The first setting turns the coordinator off; it is read when a DataFrame is made. The second has to be set before it
    and restored after it: a streaming query with RocksDB fails if only the first is set. Spark Connect makes DataFrames
    on the server at each use, so there both settings stay.
    """
    before = {key: spark.conf.get(key, None) for key in (_UPLOAD_ON_LAG, _REPORT_LAG)}
    for key in (_UPLOAD_ON_LAG, _REPORT_LAG):
        spark.conf.set(key, "false")
    try:
        yield
    finally:
        if not type(spark).__module__.startswith("pyspark.sql.connect"):
            for key in (_REPORT_LAG, _UPLOAD_ON_LAG):
                value = before[key]
                if value is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, value)


def _known(checkpoint: Checkpoint | str | Path) -> Checkpoint | None:
    """The content of its files; None for a checkpoint that is not on this machine."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    return inspect(checkpoint) if local_path(checkpoint) else None


def _location(spark: SparkSession, checkpoint: Checkpoint | str | Path, known: Checkpoint | None) -> str:
    """The location of the checkpoint, as Spark takes it; it is known to exist."""
    if known:
        return str(known.path.resolve())
    location = str(checkpoint).rstrip("/")
    with asked_of(location):
        spark.read.text(f"{location}/metadata").take(1)
    return location


def _check(
    known: Checkpoint,
    operator_id: int,
    batch_id: int | None,
    store_name: str | None,
    join_side: str | None,
    change_feed: bool,
) -> None:
    """Raises CheckpointError for requests to which Spark gives an unclear error, or none."""
    last = known.last_committed
    fault = fix = None
    if last is None:
        fault, fix = "has no committed batch yet", "let its query finish a batch"
    elif batch_id is not None and batch_id > last.batch_id:
        fault, fix = f"has no committed batch {batch_id}", f"the last one is {last.batch_id}"
    else:
        operator = known.operator(operator_id)
        stores = ", ".join(store.name for store in operator.stores)
        if join_side and not operator.is_join:
            fault, fix = f"has no join in operator {operator_id}, which is {operator.name}", "leave join_side out"
        elif join_side and (store_name or change_feed):
            fault = "cannot be asked for a join side together with a store or a change feed"
            fix = f"give store_name={join_side}-keyWithIndexToValue alone"
        elif operator.is_join and not (join_side or store_name):
            fault, fix = f"has a join in operator {operator_id}", "say which side: join_side or store_name"
        elif store_name and not operator.is_join and store_name not in stores.split(", "):
            fault, fix = f"has no store {store_name} in operator {operator_id}", f"its stores are {stores}"
    if fault:
        raise CheckpointError(f"{known.path} {fault}.", fix=fix, path=str(known.path))
