"""Runs a stream node's query: starts it, hands out its batches, and waits for its end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.verdict import newest_whole_batch, why_unusable
from odi_assets.config.models import StreamSettings
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError, FencedError, OdiError, SourceError, TransformError
from odi_assets.state.delta.batches import OperatorFigures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    OnBatch = Callable[[DataFrame, int], None]

_STORES = "org.apache.spark.sql.execution.streaming.state"
_PROVIDERS = {"rocksdb": f"{_STORES}.RocksDBStateStoreProvider", "hdfs": f"{_STORES}.HDFSBackedStateStoreProvider"}
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_LATEST_MS = 2**62
_LOOK = 0.5
"""Seconds between two looks at the query's progress."""
_MOST_LINES = 12
_NO_STATE = "CANNOT_LOAD_STATE_STORE"
_NO_STATE_FOLDER = "STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
_FIXES = {
    "DUPLICATE_SOURCE_NAMES": "a stream can be used once: give the node a second input that reads the same, and join "
    "the two",
    "STREAMING_OUTPUT_MODE": "let the groups end: give the input a `watermark`, and group by its time, too; or write "
    "groups as they change: `stream.output_mode: update` and `write.mode: upsert` with the groups' columns as `keys`; "
    "or all of them with each batch: `output_mode: complete` and `mode: overwrite`",
}
_CORRECT = "correct it, and run the node again: the batch that failed is computed again"
_TWO_RUNS = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected", "already active")


def checkpoint_conf(checkpoint: Location) -> dict[str, str]:
    """The settings by which Spark reaches a checkpoint: a query has no options for that."""
    if not checkpoint.is_local:
        return dict(checkpoint.reader_options)
    # By its default, Hadoop starts `readlink` eight times for each file that it puts there: without its native library
    # that takes longer than many a batch. Both ways rename a finished file, and refuse a batch that is there.
    return {"spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER}


def query_conf(settings: StreamSettings) -> dict[str, str]:
    """The settings of Spark that a stream node's query runs under."""
    conf = {
        # Inputs go by their names in the checkpoint: SQL may join them in another order.
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        "spark.sql.streaming.stateStore.providerClass": _PROVIDERS[settings.state_store],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # With it, reading state fails in sessions that ran no stream (SPARK-58973).
        "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag": "false",
        "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
        **settings.conf,
    }
    if settings.state_partitions is not None:
        conf["spark.sql.shuffle.partitions"] = str(settings.state_partitions)
    if settings.retain_batches is not None:
        conf["spark.sql.streaming.minBatchesToRetain"] = str(settings.retain_batches)
    return conf


@dataclass(frozen=True)
class BatchProgress:
    """What Spark reports of a batch that ended.

    Attributes:
        rows_in: by input, the rows that it gave.
    """

    batch: int
    rows_in: Mapping[str, int]
    operators: tuple[OperatorFigures, ...]
    durations_ms: Mapping[str, int]

    @classmethod
    def of(cls, progress: Mapping[str, Any], names: Sequence[str]) -> BatchProgress:
        """The progress of a batch, from Spark's JSON; ``names`` are the sources, in the order of this JSON."""
        counts = [int(source.get("numInputRows") or 0) for source in progress.get("sources") or ()]
        rows_in = dict(zip(names, counts, strict=True)) if len(names) == len(counts) else {}
        operators = tuple(
            _figures(index, operator) for index, operator in enumerate(progress.get("stateOperators") or ())
        )
        durations = {name: int(ms) for name, ms in (progress.get("durationMs") or {}).items()}
        return cls(int(progress["batchId"]), rows_in, operators, durations)


def _figures(number: int, reported: Mapping[str, Any]) -> OperatorFigures:
    def count(name: str) -> int:
        return int(reported.get(name) or 0)

    custom = {name: int(value) for name, value in (reported.get("customMetrics") or {}).items()}
    return OperatorFigures(
        operator=number,
        name=str(reported.get("operatorName")),
        rows_total=count("numRowsTotal"),
        rows_updated=count("numRowsUpdated"),
        rows_removed=count("numRowsRemoved"),
        rows_dropped=count("numRowsDroppedByWatermark"),
        state_bytes=count("memoryUsedBytes"),
        update_ms=count("allUpdatesTimeMs"),
        removal_ms=count("allRemovalsTimeMs"),
        commit_ms=count("commitTimeMs"),
        partitions=count("numShufflePartitions"),
        # A figure of each store and partition is no figure of the operator.
        custom={name: value for name, value in custom.items() if not name.startswith("SnapshotLastUploaded.")},
    )


class _Stopped(Exception):
    """Ends a query before a batch that is not to be run any more."""


class RunningQuery:
    """A stream node's query while it runs.

    Args:
        rows: the streaming DataFrame that it computes.
        settings: of the node.
        checkpoint: the folder of its checkpoint.
        on_batch: gets the rows of each batch, and its number.
        names: of the node's inputs.
        interval: how often it looks for new data, as Spark takes it (``10 seconds``); None: it takes what is there, and
            ends.
    """

    def __init__(
        self,
        rows: DataFrame,
        settings: StreamSettings,
        checkpoint: str,
        on_batch: OnBatch,
        names: Sequence[str],
        interval: str | None = None,
    ) -> None:
        self._on_batch = on_batch
        self._names = list(names)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._seen = -1
        self._runs_without_data = rows.sparkSession.conf.get(_NO_DATA, "true") == "true"
        is_connect = not hasattr(rows, "_jdf")
        writer = rows.writeStream.foreachBatch(on_batch if is_connect else self._handle)
        writer = writer.outputMode(settings.output_mode).option("checkpointLocation", checkpoint)
        writer = writer.trigger(processingTime=interval) if interval else writer.trigger(availableNow=True)
        self.query: StreamingQuery | None = None
        self.query = writer.start()

    def _handle(self, rows: DataFrame, batch: int) -> None:
        try:
            if self._stopping.is_set():
                raise _Stopped
            self._on_batch(rows, batch)
        except BaseException as error:
            # Spark passes on its text alone.
            self._error = error
            raise

    def stop_after_batch(self) -> None:
        """End the query once the batch that it runs is committed. May be called in a signal handler."""
        self._stopping.set()

    def batches(self) -> Iterator[BatchProgress]:
        """The batches as they end, until the query does.

        Raises:
            OdiError: what ended the query.
        """
        query = self.query
        assert query is not None
        try:
            while True:
                ended = self._has_ended(query)
                yield from self._new_progress(query)
                if ended:
                    return
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
        finally:
            if query.isActive:
                query.stop()

    def _has_ended(self, query: StreamingQuery) -> bool:
        try:
            return bool(query.awaitTermination(_LOOK))  # type: ignore[arg-type]
        except Exception as error:
            if isinstance(self._error, _Stopped):
                return True
            if self._error is not None:
                raise self._error from None
            known = known_error(error)
            if known is None:
                raise
            raise known from error

    def _new_progress(self, query: StreamingQuery) -> Iterator[BatchProgress]:
        for progress in query.recentProgress:
            reported = progress if isinstance(progress, dict) else _as_json(progress)
            # While there is nothing to do, Spark reports the next batch, which it has not run.
            if int(reported["batchId"]) > self._seen and "addBatch" in (reported.get("durationMs") or {}):
                self._seen = int(reported["batchId"])
                yield BatchProgress.of(reported, self._names)

    def rows_dropped(self) -> tuple[int, ...] | None:
        """Rows that came too late in the batch whose rows were just computed, by stateful operator; None if Spark
        does not know yet."""
        plan = self._plan()
        return None if plan is None else tuple(int(metric.value()) for _, metric in _operators(plan))

    def evicts(self) -> bool:
        """Whether Spark runs another batch, without new rows, once the batch whose rows were just computed has moved
        the watermark."""
        plan = self._plan()
        if plan is None or not self._runs_without_data:
            return False
        return any(bool(operator.shouldRunAnotherBatch(_LATEST_MS)) for operator, _ in _operators(plan))

    def _plan(self) -> Any:
        wrapper = getattr(self.query, "_jsq", None)
        execution = None if wrapper is None else wrapper.streamingQuery().lastExecution()
        return None if execution is None else execution.executedPlan()


def _as_json(progress: Any) -> dict[str, Any]:
    return dict(json.loads(progress.json))


def _operators(plan: Any) -> Iterator[tuple[Any, Any]]:
    """The stateful operators of a physical plan, each with its count of rows that came too late."""
    # The topmost operator is number 0, as in Spark's progress and in the checkpoint.
    metric = plan.metrics().get("numRowsDroppedByWatermark")
    if metric.isDefined():
        yield plan, metric.get()
    children = plan.children()
    for index in range(children.length()):
        yield from _operators(children.apply(index))


def known_error(error: BaseException) -> OdiError | None:
    """What ended a query, as an error of ours; None if it is one of Spark's that may be about anything."""
    text = str(error)
    if any(sign in text for sign in _TWO_RUNS):
        return FencedError(
            "another run of this node has the same checkpoint: this one stopped, and the rows of each batch are in the "
            "table once",
            fix="let the other run end, or stop it: a stream node runs once at a time",
        )
    for line in text.splitlines():
        # Raised in the process that plans the batches of a table.
        kind, colon, message = line.strip().partition(": ")
        if colon and kind in ("odi_assets.errors.SourceError", "odi_assets.errors.TableError"):
            return SourceError(message)
    return None


def query_error(node: str, command: str, checkpoint: Location, error: BaseException) -> OdiError:
    """What ended a query, where nothing more is known than what Spark says.

    Args:
        command: the arguments of ``odi run`` that run the node.
        checkpoint: no query runs on it any more.
    """
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    fields = {"path": checkpoint.uri, "node": node}
    if _NO_STATE in str(error):
        causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
        return CheckpointError(
            f"{node}: Spark cannot load the state that its checkpoint keeps: {(causes or lines)[-1]}",
            fix=f"`odi checkpoint files {node}` names what is missing or damaged: put it back from a copy; or "
            f"{_way_back(node, checkpoint)}; or start over: odi run {command} --full-refresh",
            **fields,
        )
    why = why_unusable(checkpoint)
    if why is None and _NO_STATE_FOLDER in str(error):
        why = "its folder `state` is missing or empty, and the query keeps state there"
    if why is not None:
        return CheckpointError(
            f"{node}: its query cannot go on from {checkpoint.uri}: {why}",
            fix=f"`odi tables repair {node}` sets aside what keeps the query from going on, and says what to run next; "
            f"or put it back from a copy; or start over: odi run {command} --full-refresh",
            **fields,
        )
    fix = next((fix for condition, fix in _FIXES.items() if condition in str(error)), _CORRECT)
    return TransformError(f"{node}: its query failed: {chr(10).join(lines[:_MOST_LINES])}", fix=fix, node=node)


def _way_back(node: str, checkpoint: Location) -> str:
    """How to go back to a batch after which the state is whole: the newest one, where its files can be looked at."""
    batch = newest_whole_batch(checkpoint)
    if batch is None:
        return f"go back to a batch after which the state is whole (odi state rewind {node} --list)"
    return f"go back to the newest batch after which the state is whole: odi state rewind {node} --to-batch {batch}"
