"""Tables as arguments of assets: whole, the rows of some partitions or of a range, or what was gained since last time.

They come as Spark, pandas, pyarrow or polars frames, as the argument is annotated. Without Spark, no JVM is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa

from odi_assets.config.models import VersionIncrement, WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import ConfigError, IncrementError
from odi_assets.nodes.request import FULL_REFRESH_TAG, Bounds
from odi_assets.orchestration.assets.arrow_frames import frame_as, wants_arrow
from odi_assets.orchestration.assets.attempts import noted_reads
from odi_assets.orchestration.assets.chosen_partitions import ChosenPartitions
from odi_assets.orchestration.assets.frames import AssetTable
from odi_assets.sources.delta.source import DeltaTableSource, NewVersions
from odi_assets.sources.marks import History, VersionMark
from odi_assets.sources.source import Target
from odi_assets.spark.lazy import F
from odi_assets.tables.engine import engine_of
from odi_assets.util.lazy import pq

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

INCREMENTAL, FROM, TO, COLUMN, COLUMNS = "incremental", "from", "to", "column", "columns"
"""Metadata of an ``AssetIn``."""


@dataclass(frozen=True)
class ColumnRange:
    """Rows with ``start <= column < end``, both as texts of that column's type."""

    column: str
    start: str
    end: str


@dataclass(frozen=True)
class Wanted:
    """What an argument asks of a table.

    Attributes:
        annotation: the type it is annotated with.
        window: only rows in it; None: all.
        chosen: only rows of these partitions; None: all.
        columns: only these; None: all.
    """

    annotation: Any
    window: ColumnRange | None = None
    columns: tuple[str, ...] | None = None
    chosen: ChosenPartitions | None = None

    @classmethod
    def by(cls, context: dg.InputContext, partition_columns: Mapping[str, str]) -> Wanted:
        """What the argument's annotation, its asset's partitions and the metadata of its ``AssetIn`` say.

        Raises:
            ConfigError: the metadata is not right.
        """
        metadata = context.definition_metadata or {}
        columns = metadata.get(COLUMNS)
        window, chosen = None, None
        if FROM in metadata or TO in metadata:
            window = _range(metadata, partition_columns.get(""))
        elif context.has_asset_partitions and partition_columns:
            keys = context.asset_partition_keys
            chosen = ChosenPartitions.of(partition_columns, context.asset_partitions_def, keys)
        return cls(context.dagster_type.typing_type, window, tuple(columns) if columns else None, chosen)


def _range(metadata: Mapping[str, Any], partition_column: str | None) -> ColumnRange:
    column = metadata.get(COLUMN) or partition_column
    if column is None or FROM not in metadata or TO not in metadata:
        raise ConfigError(
            "a range of an input needs its column and both of its ends",
            fix='AssetIn(metadata={"column": "day", "from": "2024-01-01", "to": "2024-02-01"})',
        )
    bounds = Bounds.of(metadata[FROM], metadata[TO])
    return ColumnRange(str(column), _text(bounds.start), _text(bounds.end))


def _text(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return moment.strftime("%Y-%m-%d")
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def load_whole(handle: TableHandle, wanted: Wanted, open_spark: Callable[[], SparkSession]) -> Any:
    """The rows of a table that an argument asks for."""
    if not wants_arrow(wanted.annotation):
        return _by_spark(engine_of(handle).read(open_spark(), handle), wanted, handle)
    return frame_as(_by_arrow(handle, wanted), wanted.annotation)


def _by_spark(rows: DataFrame, wanted: Wanted, handle: TableHandle) -> DataFrame:
    if wanted.chosen is not None:
        rows = rows.where(wanted.chosen.condition(rows, handle.columns))
    if wanted.window is not None:
        column = F.col(wanted.window.column)
        rows = rows.where((column >= F.lit(wanted.window.start)) & (column < F.lit(wanted.window.end)))
    return rows if wanted.columns is None else rows.select(*wanted.columns)


def _by_arrow(handle: TableHandle, wanted: Wanted) -> pa.Table:
    predicates = [None] if wanted.chosen is None else wanted.chosen.predicates(handle.columns)
    if wanted.window is not None:
        name = '"' + wanted.window.column.replace('"', '""') + '"'
        start, end = (text.replace("'", "''") for text in (wanted.window.start, wanted.window.end))
        predicates = [f"{name} >= '{start}' AND {name} < '{end}'"]
    with handle.reads("reading the table"):
        rows = pa.concat_tables([pa.table(handle.table.scan(predicate=predicate)) for predicate in predicates])
    return rows.select(list(wanted.columns or handle.columns))


def _has_partitions(context: dg.InputContext) -> bool:
    """Whether the asset that takes the input has partitions."""
    step = context.step_context
    keys = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
    own = [key for key in keys if isinstance(key, dg.AssetKey)]
    return any(step.job_def.asset_layer.get(key).partitions_def is not None for key in own)


@dataclass(frozen=True)
class Increment:
    """What a table gained since an asset read it last.

    Attributes:
        began: the version up to which it was read before, as the asset's last commit notes it; None if it was not.
        reads: the version up to which it is read now, as the asset's next commit notes it.
    """

    rows: Any
    began: Mapping[str, Any] | None
    reads: Mapping[str, Any]


def require_increment(context: dg.InputContext) -> None:
    """Raises ConfigError where the metadata of an input ask for an increment and for something that it is not."""
    metadata = context.definition_metadata or {}
    if FROM in metadata or TO in metadata:
        raise ConfigError(
            f"the input {context.name} asks for an increment and for a range",
            fix=f"leave out `{INCREMENTAL}`, or `{FROM}` and `{TO}`, in the metadata of its AssetIn",
        )
    if _has_partitions(context):
        raise ConfigError(
            f"the input {context.name} asks for an increment, and the asset that takes it has partitions: "
            "what it has not read yet belongs to none of them",
            fix=f"leave out `{INCREMENTAL}`, and each run gets the rows of its partitions; or take the partitions off",
        )


def load_increment(
    upstream: str,
    location: Location,
    reader: AssetTable,
    wanted: Wanted,
    tags: Mapping[str, str],
    open_spark: Callable[[], SparkSession],
) -> Increment:
    """What the table at ``location`` gained since the last commit of the asset that reads it.

    Args:
        upstream: the key of the asset whose table it is.
        reader: the table of the asset that reads it. Its commits note up to where they have read.
        tags: the tags of the run; with a full refresh, all rows are read.

    Raises:
        IncrementError: rows that were read before were changed or removed, so that reading the new ones is not enough.
    """
    began = noted_reads(reader.key, TableHandle.open(reader.location)).get(upstream)
    noted = None if tags.get(FULL_REFRESH_TAG) == "true" else began
    target = Target(reader.key, reader.location, WriteMode.APPEND.traits, tuple(reader.keys))
    source = DeltaTableSource(
        name=upstream, label=upstream, target=target, increment=VersionIncrement(mode="version"), location=location
    )
    mark = None
    if noted:
        commit, version = noted.get("commit"), int(noted["version"])
        history = None if commit is None else History(version, str(commit))
        mark = VersionMark(version, noted.get("table_id"), replace(source.identity, history=history))
    other = None if mark is None else source.other_history(mark)
    read = source.plan(mark if other is None else None)
    if noted and read.rewrites:
        raise IncrementError(
            f"asset {reader.key} reads what {upstream} gained since version {noted['version']}, and "
            f"{other or read.summary}",
            fix=f"materialize it with the run tag {FULL_REFRESH_TAG}: true; its table is then replaced",
        )
    after = read.after
    reads = {**after.value, "commit": read.snapshot.position.get("commit")} if isinstance(after, VersionMark) else {}
    gained = read.step.changes if isinstance(read, NewVersions) else None
    # What upserts replaced among the new rows, Spark leaves out.
    if gained is not None and not gained.replacing and wants_arrow(wanted.annotation):
        rows = _rows_of(location, TableHandle.open(location, read.snapshot.table_version), gained.files)
        if rows is not None:
            chosen = rows if wanted.columns is None else rows.select(list(wanted.columns))
            return Increment(frame_as(chosen, wanted.annotation), began, reads)
    if not noted:
        whole = load_whole(TableHandle.open(location, read.snapshot.table_version), wanted, open_spark)
        return Increment(whole, began, reads)
    if read.nothing_new and wants_arrow(wanted.annotation):
        empty = _by_arrow(TableHandle.open(location, read.snapshot.table_version), wanted).slice(0, 0)
        return Increment(frame_as(empty, wanted.annotation), began, reads)
    frame = _by_spark(read.load(open_spark()), wanted, TableHandle.open(location))  # type: ignore[attr-defined]
    if not wants_arrow(wanted.annotation):
        return Increment(frame, began, reads)
    return Increment(frame_as(frame.toArrow(), wanted.annotation), began, reads)


def _rows_of(location: Location, handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table | None:
    """The rows of these files; None where they are not plain files of the table's columns."""
    if not location.is_local or handle.partition_columns:
        return None
    schema = _by_arrow(handle, Wanted(pa.Table)).schema
    tables = [pq.ParquetFile(location.local_path / file.path).read() for file in files]
    if any(table.schema.names != schema.names for table in tables):
        return None
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
