"""How a stateful query is doing: its state over the batches, its watermark, and what its checkpoint takes.

What the files say costs no Spark. Keys by partition, the heaviest keys and the oldest event time are read from the
state through Spark. Rows dropped, and the times that commits and loads take, are in no checkpoint: they come from the
rows of ``meta_batches``, which outlive the checkpoint's retention too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.files import CheckpointFiles, check_files
from odi_assets.checkpoints.inspect import Checkpoint, MicroBatch, Operator, inspect, rows_store
from odi_assets.checkpoints.reader import CheckpointReader
from odi_assets.checkpoints.schemas import StateSchema, event_time_column, read_schemas
from odi_assets.config.models.stream import HealthLimits
from odi_assets.spark.lazy import F
from odi_assets.state.delta.batches import BatchRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOAD_TIME = "rocksdbLoadLatencyMs"
_HEAVIEST = 5
_SEVERAL_PER_KEY = ("ListState", "MapState")


@dataclass(frozen=True)
class StoreHealth:
    """One store, or variable, of a stateful operator after the last batch.

    Attributes:
        name: of the store; of the variable for ``transformWithState``.
        rows: what it holds, by partition; None if it was not read.
        heaviest: the keys with most rows and how many these are, if any has several: in joins, and in variables that
            are lists or maps.
        oldest: the oldest event time in it; None if it holds none.
    """

    operator_id: int
    operator: str
    name: str
    rows: Mapping[int, int] | None = None
    heaviest: tuple[tuple[str, int], ...] = ()
    oldest: datetime | None = None

    @property
    def label(self) -> str:
        """The name, with the operator's name where it is not unique by itself."""
        return f"{self.operator_id} {self.name if self.name != 'default' else self.operator}"

    @property
    def total(self) -> int | None:
        """Rows in all partitions."""
        return None if self.rows is None else sum(self.rows.values())

    @property
    def skew(self) -> float | None:
        """The rows of the fullest partition over the mean: 1 is even. None without rows."""
        if not self.rows or not self.total:
            return None
        return max(self.rows.values()) * len(self.rows) / self.total


@dataclass(frozen=True)
class BatchHealth:
    """One batch. What is not known is None, or missing in the mappings.

    Attributes:
        watermark: the one it ran with.
        seconds: from its planning to its commit.
        rows: rows in the state after it, by :attr:`StoreHealth.label`; by operator if they come from ``meta_batches``.
        bytes: the state's size in memory, by operator, if it comes from ``meta_batches``; else the size of what the
            batch wrote into the checkpoint's files, by store.
        changed: rows that it put into the state and removed from it, by store.
        rows_dropped: rows that came too late.
        commit_ms: what its state stores' commits took, over all partitions.
        load_ms: what loading them took, likewise.
        oldest: the oldest event time in the state after it.
    """

    batch_id: int
    planned_at: datetime | None
    committed_at: datetime | None
    watermark: datetime | None
    seconds: float | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    rows_removed: int | None = None
    commit_ms: int | None = None
    load_ms: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    oldest: datetime | None = None

    @property
    def state_rows(self) -> int | None:
        """Rows in the state after it; None if it was not read."""
        return sum(self.rows.values()) if self.rows else None


@dataclass(frozen=True)
class Health:
    """How a query is doing.

    Attributes:
        watermark: of the next batch.
        stuck_batches: how many of the newest batches that read something left the watermark where it was.
        stalled_sources: the sources that gave nothing in these batches: one holds the watermark of all back.
        overridden: settings whose value is the checkpoint's and not the one wanted: wanted and in force, by name.
    """

    path: Path
    query_id: str
    batches: tuple[BatchHealth, ...]
    stores: tuple[StoreHealth, ...]
    watermark: datetime | None
    stuck_batches: int
    stalled_sources: tuple[str, ...]
    overridden: Mapping[str, tuple[str, str]]
    files: int
    bytes: int
    snapshot_lag: int | None
    lost_batches: tuple[int, ...]

    @property
    def last(self) -> BatchHealth | None:
        """The newest batch that finished."""
        return next((batch for batch in reversed(self.batches) if batch.committed_at), None)

    @property
    def oldest(self) -> datetime | None:
        """The oldest event time in the state."""
        return min((store.oldest for store in self.stores if store.oldest), default=None)

    @property
    def skew(self) -> float | None:
        """The skew of the most uneven store."""
        return max((store.skew for store in self.stores if store.skew), default=None)

    @property
    def rows_dropped(self) -> int | None:
        """Rows that came too late in the batches that are known; None if that is not known of any."""
        known = [batch.rows_dropped for batch in self.batches if batch.rows_dropped is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class Excess:
    """A figure that is beyond its limit, and in words what it means."""

    limit: str
    allowed: float
    found: float
    message: str


def measure(
    checkpoint: CheckpointReader | str | Path,
    *,
    read_state: bool = True,
    records: Sequence[BatchRecord] = (),
    settings: Mapping[str, str] | None = None,
    most_batches: int = 4,
) -> Health:
    """Measure how a query is doing. It should not be running: what it cleans away would count as missing.

    Args:
        checkpoint: a reader, or the folder of a checkpoint on this machine.
        read_state: read the state through Spark; without it, nothing is known of partitions, heavy keys and the oldest
            event time.
        records: the query's rows of ``meta_batches``, if it is a stream node's.
        settings: those the query is to run with; the session's if None and the state is read.
        most_batches: read the state of at most this many of the retained batches, spread evenly.

    Raises:
        CheckpointError: there is no checkpoint, or its logs are damaged.
    """
    known = checkpoint.inspect() if isinstance(checkpoint, CheckpointReader) else inspect(checkpoint)
    files = check_files(known)
    batches = {batch.batch_id: _of_files(batch, known, files) for batch in known.batches}
    stores = _unread_stores(known)
    reader = checkpoint if isinstance(checkpoint, CheckpointReader) else None
    if read_state and files.readable:
        reader = reader or CheckpointReader(known.path)
        stores = _read_stores(reader, known, files, stores, batches, most_batches)
        settings = settings if settings is not None else _session_settings(reader, known)
    for record in records:
        if record.query == known.query_id:
            batches[record.batch] = _with_record(batches.get(record.batch), record)
    stuck = _stuck(known)
    return Health(
        path=known.path,
        query_id=known.query_id,
        batches=tuple(batches[number] for number in sorted(batches)),
        stores=tuple(stores),
        watermark=known.watermark,
        stuck_batches=len(stuck),
        stalled_sources=_stalled(known, stuck),
        overridden=known.overrides(settings or {}),
        files=files.files,
        bytes=files.bytes,
        snapshot_lag=files.snapshot_lag,
        lost_batches=tuple(batch for batch in files.lost if batch not in files.cleaned),
    )


def _unread_stores(known: Checkpoint) -> list[StoreHealth]:
    return [
        StoreHealth(operator.operator_id, operator.name or "?", name)
        for operator in known.operators
        for name in _parts(operator)
    ]


def excesses(health: Health, limits: HealthLimits, now: datetime | None = None) -> list[Excess]:
    """The figures that are beyond their limits; one that is not known is within them.

    Args:
        limits: as the project file gives them.
        now: the time to compare the watermark with; the clock's if None.
    """
    last = health.last or BatchHealth(-1, None, None, None)
    lag = ((now or datetime.now(UTC)) - health.watermark).total_seconds() if health.watermark else None
    figures: dict[str, tuple[float | None, str]] = {
        "max_state_rows": (last.state_rows, "rows are in the state"),
        "max_rows_dropped": (last.rows_dropped, "rows of the last batch came too late"),
        "max_watermark_lag": (lag, "seconds lie between the watermark and now"),
        "max_stuck_batches": (health.stuck_batches, f"batches left the watermark where it was{_stall(health)}"),
        "max_skew": (health.skew, "times the mean of its partitions is in the fullest"),
        "max_snapshot_lag": (health.snapshot_lag, "versions were written since the last snapshot of a state store"),
        "max_files": (health.files, "files are in the checkpoint"),
        "max_bytes": (health.bytes, "bytes are in the checkpoint"),
        "max_commit_ms": (last.commit_ms, "ms went into the commits of the last batch's state"),
    }
    beyond = []
    for name, (value, words) in figures.items():
        limit: Any = getattr(limits, name)
        allowed = limit.total_seconds() if isinstance(limit, timedelta) else limit
        if allowed is not None and value is not None and value > allowed:
            number = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
            beyond.append(Excess(name, allowed, value, f"{number} {words}; `{name}` allows {allowed:,}"))
    return beyond


# -- from the files ----------------------------------------------------------------------------------------------------


def _of_files(batch: MicroBatch, known: Checkpoint, files: CheckpointFiles) -> BatchHealth:
    names = {operator.operator_id: operator.name or "?" for operator in known.operators}
    sizes: dict[str, int] = defaultdict(int)
    changed: dict[str, tuple[int, int]] = {}
    for store in files.stores:
        label = StoreHealth(store.operator_id, names[store.operator_id], store.store).label
        sizes[label] += store.bytes.get(batch.batch_id + 1, 0)
        if batch.batch_id + 1 in store.changes:
            puts, removals = store.changes[batch.batch_id + 1]
            before = changed.get(label, (0, 0))
            changed[label] = (before[0] + puts, before[1] + removals)
    took = (batch.committed_at - batch.planned_at) if batch.committed_at and batch.planned_at else None
    return BatchHealth(
        batch.batch_id,
        batch.planned_at,
        batch.committed_at,
        batch.watermark,
        # A copied checkpoint has the times of its copying.
        seconds=took.total_seconds() if took is not None and timedelta() <= took < timedelta(days=1) else None,
        written={label: size for label, size in sizes.items() if size},
        changed=changed,
    )


def _stuck(known: Checkpoint) -> list[MicroBatch]:
    """The newest batches that read something and left the watermark where it was, oldest first."""
    committed = [batch for batch in known.batches if batch.committed]
    after = [*(batch.watermark for batch in committed[1:]), known.watermark]
    stuck: list[MicroBatch] = []
    for index in range(len(committed) - 1, 0, -1):
        batch = committed[index]
        if batch.offsets == committed[index - 1].offsets:
            continue
        if batch.watermark is None or after[index] != batch.watermark:
            break
        stuck.insert(0, batch)
    return stuck


def _stalled(known: Checkpoint, stuck: Sequence[MicroBatch]) -> tuple[str, ...]:
    if not stuck:
        return ()
    before = known.batch(stuck[0].batch_id - 1)
    if before is None:
        return ()
    return tuple(name for name, offset in stuck[-1].offsets.items() if before.offsets.get(name) == offset)


def _stall(health: Health) -> str:
    if not health.stalled_sources:
        return ""
    return f": source {', '.join(health.stalled_sources)} gave nothing, and the slowest source sets it"


def _session_settings(reader: CheckpointReader, known: Checkpoint) -> dict[str, str]:
    conf = known.batches[-1].conf if known.batches else {}
    values = {name: reader.spark.conf.get(name, None) for name in conf}
    return {name: value for name, value in values.items() if value is not None}


# -- from the state ----------------------------------------------------------------------------------------------------


def _parts(operator: Operator) -> tuple[str, ...]:
    """The stores, or variables, that hold an operator's rows."""
    if operator.is_join:
        return rows_store("left"), rows_store("right")
    if operator.has_variables:
        return tuple(variable.name for variable in operator.variables)
    return operator.store_names


def _read_stores(
    reader: CheckpointReader,
    known: Checkpoint,
    files: CheckpointFiles,
    stores: Sequence[StoreHealth],
    batches: dict[int, BatchHealth],
    most: int,
) -> list[StoreHealth]:
    """Read the state after some batches; what is found of each goes into ``batches``."""
    schemas = {operator.operator_id: read_schemas(operator) for operator in known.operators}
    chosen = _spread(files.readable, most)
    frames = []
    for number, store in enumerate(stores):
        schema = schemas[store.operator_id].get(store.name)
        frames += [_counted(_state_of(reader, known, store, batch), schema, number, batch) for batch in chosen]
    with reader.errors():
        counts = reduce(lambda united, frame: united.union(frame), frames).collect() if frames else []
    rows: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    oldest: dict[tuple[int, int], datetime] = {}
    for number, batch, partition, count, millis in counts:
        rows[number, batch][partition] = count
        if millis is not None:
            time = datetime.fromtimestamp(millis / 1000, UTC)
            oldest[number, batch] = min(time, oldest.get((number, batch), time))
    for batch in chosen:
        held = {store.label: sum(rows[number, batch].values()) for number, store in enumerate(stores)}
        times = [time for (_, at), time in oldest.items() if at == batch]
        batches[batch] = replace(batches[batch], rows=held, oldest=min(times, default=None))
    last = chosen[-1]
    measured = []
    for number, store in enumerate(stores):
        partitions = known.operator(store.operator_id).stores[0].partitions
        by_partition = {partition: rows[number, last].get(partition, 0) for partition in range(partitions)}
        heaviest = _heaviest(reader, known, store, last) if sum(by_partition.values()) else ()
        measured.append(replace(store, rows=by_partition, oldest=oldest.get((number, last)), heaviest=heaviest))
    return measured


def _spread(readable: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the batches, the first and the last among them."""
    if len(readable) <= most:
        return list(readable)
    step = (len(readable) - 1) / (most - 1) if most > 1 else 0
    return sorted({readable[-1], *(readable[round(number * step)] for number in range(most) if most > 1)})


def _state_of(reader: CheckpointReader, known: Checkpoint, store: StoreHealth, batch: int) -> DataFrame:
    operator = known.operator(store.operator_id)
    if operator.has_variables:
        return reader.read(batch=batch, operator=store.operator_id, variable=store.name)
    return reader.read(store.name, batch=batch, operator=store.operator_id)


def _counted(state: DataFrame, schema: StateSchema | None, number: int, batch: int) -> DataFrame:
    """Rows and oldest event time by partition, with the number of the store and of the batch before them."""
    column = event_time_column(schema) if schema else None
    time = F.unix_millis(F.col(column).cast("timestamp")) if column else F.lit(None).cast("long")
    grouped = state.groupBy("partition_id").agg(F.count(F.lit(1)).alias("rows"), F.min(time).alias("oldest"))
    return grouped.select(F.lit(number), F.lit(batch), "partition_id", "rows", "oldest")


def _heaviest(
    reader: CheckpointReader, known: Checkpoint, store: StoreHealth, batch: int
) -> tuple[tuple[str, int], ...]:
    operator = known.operator(store.operator_id)
    kinds = {variable.name: variable.kind for variable in operator.variables}
    if not operator.is_join and kinds.get(store.name) not in _SEVERAL_PER_KEY:
        return ()
    state = _state_of(reader, known, store, batch)
    # The last field of a join's key is Spark's own: it counts the rows of one key.
    key = F.col("key").dropFields("index") if operator.is_join else F.col("key")
    with reader.errors():
        rows = (
            state.groupBy(F.to_json(key, {"ignoreNullFields": "false"}).alias("key"))
            .count()
            .where("count > 1")
            .orderBy(F.desc("count"), "key")
            .limit(_HEAVIEST)
            .collect()
        )
    return tuple((row["key"], row["count"]) for row in rows)


# -- from meta_batches -------------------------------------------------------------------------------------------------


def _with_record(batch: BatchHealth | None, record: BatchRecord) -> BatchHealth:
    """A batch with its figures in ``meta_batches``; these count where both have a figure."""
    health = batch or BatchHealth(record.batch, record.planned_at, record.committed_at, record.watermark)
    figures = {f"{operator.operator} {operator.name}": operator for operator in record.operators}
    took = record.durations_ms.get("triggerExecution")
    return replace(
        health,
        seconds=health.seconds if took is None else took / 1000,
        rows_in=sum(record.rows_in.values()) if record.rows_in else None,
        rows_out=record.rows_out,
        rows_dropped=record.rows_dropped,
        rows_removed=record.rows_removed,
        commit_ms=sum(operator.commit_ms for operator in record.operators) if record.operators else None,
        load_ms=sum(operator.custom.get(_LOAD_TIME, 0) for operator in record.operators) or None,
        rows=health.rows or {label: operator.rows_total for label, operator in figures.items()},
        bytes={label: operator.state_bytes for label, operator in figures.items()},
    )


def health_rows(health: Health) -> Iterator[dict[str, Any]]:
    """A flat row for each batch, for a DataFrame: ``pandas.DataFrame(health_rows(health))``."""
    for batch in health.batches:
        yield {
            "batch": batch.batch_id,
            "planned_at": batch.planned_at,
            "committed_at": batch.committed_at,
            "seconds": batch.seconds,
            "watermark": batch.watermark,
            "oldest_event_time": batch.oldest,
            "rows_in": batch.rows_in,
            "rows_out": batch.rows_out,
            "rows_dropped": batch.rows_dropped,
            "rows_removed": batch.rows_removed,
            "state_rows": batch.state_rows,
            "state_bytes": sum(batch.bytes.values()) if batch.bytes else None,
            "bytes_written": sum(batch.written.values()) if batch.written else None,
            "commit_ms": batch.commit_ms,
            "load_ms": batch.load_ms,
        }
