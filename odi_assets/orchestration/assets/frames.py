"""Tables of assets that are not nodes: ``@dg.asset(io_manager_key="delta_io_manager", metadata={…})``.

The function returns a frame of Spark, pandas, pyarrow or polars. It is committed in one Delta commit with a fence, and
exactly once: a step that is tried again after its commit commits nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

from odi_assets.config.models import SchemaPolicy, WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.retry import raced
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, FencedError, TableConflictError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.arrow_frames import arrow_of, package_of
from odi_assets.orchestration.assets.attempts import StepAttempt, noted_reads
from odi_assets.orchestration.assets.chosen_partitions import ChosenPartitions
from odi_assets.tables.engine import WriteResult, WriteSpec, engine_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    OpenSpark = Callable[[], SparkSession]

CONNECTION, PATH, MODE, KEYS, SCHEMA = "connection", "path", "mode", "keys", "schema"
PARTITION_COLUMN, PARTITION_BY = "partition_column", "partition_by"


@dataclass(frozen=True)
class AssetTable:
    """Where an asset's table is and how it is written, as the asset's metadata says.

    Attributes:
        key: the asset's, as text.
        partition_columns: by dimension of the asset's partitions, the column that decides to which of them a row
            belongs; the name of the dimension is empty for partitions of one.
    """

    key: str
    location: Location
    mode: WriteMode
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    schema: SchemaPolicy = "fail"

    @classmethod
    def of(cls, project: Project, key: dg.AssetKey, metadata: Mapping[str, Any]) -> AssetTable:
        """The table of an asset with this metadata.

        Raises:
            ConfigError: the metadata is not right, or the table is a node's.
        """
        name, columns = key.to_user_string(), partition_columns(metadata)
        mode = _mode(name, _plain(metadata.get(MODE)), has_column=bool(columns))
        location = project.location(
            _connection(project, name, metadata), _plain(metadata.get(PATH)) or "/".join(key.path)
        )
        keys, by = _names(metadata.get(KEYS)), _names(metadata.get(PARTITION_BY))
        if mode.traits.needs_keys and not keys:
            raise ConfigError(f"asset {name} is written by `{mode}` and names no keys", fix=_fix(KEYS, '["id"]'))
        taken = next((str(node) for node in project.graph.nodes if project.target(node).uri == location.uri), None)
        if taken is not None:
            raise ConfigError(
                f"asset {name} would write the table of the node {taken}, at {location.uri}", fix=_fix(PATH, '"…"')
            )
        policy: Any = _plain(metadata.get(SCHEMA)) or "fail"
        if policy not in get_args(SchemaPolicy):
            known = ", ".join(get_args(SchemaPolicy))
            raise ConfigError(f"asset {name} has the schema policy `{policy}`", fix=f"it is one of {known}")
        if not by or mode is WriteMode.PARTITION_OVERWRITE:
            by = tuple(dict.fromkeys([*columns.values(), *by]))
        return cls(name, location, mode, keys, by, columns, policy)


def _connection(project: Project, name: str, metadata: Mapping[str, Any]) -> str:
    known = list(project.config.connections)
    connection = _plain(metadata.get(CONNECTION)) or (
        project.config.system.connection if project.config.system else None
    )
    if connection is None and len(known) == 1:
        connection = known[0]
    if connection not in known:
        raise ConfigError(
            f"asset {name} names no connection of the project file"
            if connection is None
            else f"there is no connection {connection}",
            fix=f"{_fix(CONNECTION, repr(known[0]))}; there are: {', '.join(known)}",
        )
    return str(connection)


def _mode(name: str, mode_name: str | None, *, has_column: bool) -> WriteMode:
    if mode_name is None:
        return WriteMode.PARTITION_OVERWRITE if has_column else WriteMode.OVERWRITE
    write_mode = next((mode for mode in WriteMode if mode.value == str(mode_name)), None)
    if write_mode is None:
        modes = ", ".join(mode.value for mode in WriteMode)
        raise ConfigError(f"asset {name} has the write mode `{mode_name}`", fix=f"it is one of {modes}")
    return write_mode


def _fix(key: str, value: str) -> str:
    return f'add it to the metadata of the asset: metadata={{"{key}": {value}}}'


def _names(value: Any) -> tuple[str, ...]:
    value = _plain(value)
    return () if value is None else (value,) if isinstance(value, str) else tuple(map(str, value))


def _plain(value: Any) -> Any:
    """What was written in the decorator; Dagster wraps some values."""
    return getattr(value, "value", value) if isinstance(value, dg.MetadataValue) else value


def write_frame(
    table: AssetTable,
    frame: Any,
    attempt: StepAttempt,
    open_spark: OpenSpark,
    began: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> tuple[WriteResult | None, int]:
    """Commit ``frame``, unless an earlier attempt has.

    Args:
        began: by incremental input, up to where the table had read it when ``frame`` was made.

    Returns:
        What the commit did, None if an earlier attempt made it; and its version.

    Raises:
        FencedError: another run committed at the same time; nothing was written.
        TableError: the table cannot take the rows.
    """

    def write() -> tuple[WriteResult | None, int]:
        handle = TableHandle.open(table.location)
        earlier = attempt.earlier(table.key, handle, once=not table.mode.traits.takes_rows_again)
        if earlier is not None:
            return None, earlier
        _require_read_since(table, handle, began or {})
        stamp = attempt.stamp(table.key, handle)
        result = _written(table, frame, handle, _spec(table, attempt), stamp, open_spark)
        return result, result.version

    return raced(write, lost=lambda error: isinstance(error, TableConflictError))


def _require_read_since(table: AssetTable, handle: TableHandle, began: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Raises FencedError if another run has committed what an incremental input gained, since this one read it."""
    noted = noted_reads(table.key, handle) if began else {}
    other = next((upstream for upstream, reads in began.items() if noted.get(upstream) != reads), None)
    if other is not None:
        raise FencedError(
            f"asset {table.key}: another run committed what {other} gained while this one was at work; nothing was "
            "written",
            fix=f"materialize it again: it reads what {other} gained since",
        )


def _spec(table: AssetTable, attempt: StepAttempt) -> WriteSpec:
    spec = WriteSpec(table.mode, table.keys, table.partition_by, schema_policy=table.schema)
    if table.mode is WriteMode.PARTITION_OVERWRITE and attempt.chosen is not None:
        spec = replace(spec, replace=(), span=attempt.chosen)
    if not attempt.full_refresh:
        return spec
    return replace(spec, mode=WriteMode.OVERWRITE, declared=table.mode, replace=None, span=None)


def _written(
    table: AssetTable, frame: Any, handle: TableHandle, spec: WriteSpec, stamp: Stamp, open_spark: OpenSpark
) -> WriteResult:
    engine = engine_of(handle)
    if package_of(frame) == "pyspark":
        return engine.write(frame, handle, spec, stamp)
    return engine.write_arrow(arrow_of(frame, table.key), handle, spec, stamp, open_spark)


def partition_columns(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """By dimension, the column of which an asset's metadata say that it decides to which partition a row belongs."""
    columns = _plain(metadata.get(PARTITION_COLUMN))
    if columns is None:
        return {}
    return (
        {str(name): str(column) for name, column in columns.items()}
        if isinstance(columns, Mapping)
        else {"": str(columns)}
    )


def chosen_partitions(context: dg.OutputContext, table: AssetTable) -> ChosenPartitions | None:
    """The partitions that a run writes; None for an asset without any, and where nothing says which rows are theirs.

    Raises:
        ConfigError: the asset has partitions, and nothing says which rows belong to which.
    """
    if not context.has_asset_partitions:
        return None
    if not table.partition_columns and table.mode in (WriteMode.OVERWRITE, WriteMode.PARTITION_OVERWRITE):
        raise ConfigError(
            f"asset {table.key} has partitions, and `{table.mode}` would replace the others",
            fix=_fix(PARTITION_COLUMN, '"day"'),
        )
    if table.mode is WriteMode.OVERWRITE:
        raise ConfigError(
            f"asset {table.key} has partitions, and `{table.mode}` would erase those that a run does not write",
            fix='leave `mode` out of the metadata of the asset, or write `"mode": "partition_overwrite"`: '
            "a run then replaces its own partitions",
        )
    if not table.partition_columns:
        return None
    return ChosenPartitions.of(table.partition_columns, context.asset_partitions_def, context.asset_partition_keys)
