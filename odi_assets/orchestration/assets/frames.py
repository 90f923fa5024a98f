"""Tables of assets that are not nodes: ``@dg.asset(io_manager_key="delta_io_manager", metadata={…})``.

The function returns a frame of Spark, pandas, pyarrow or polars. It is committed in one Delta commit with a fence, and
exactly once: a step that is tried again after its commit commits nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

from odi_assets.config.models import SchemaPolicy, WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.retry import raced
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, TableConflictError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.arrow_frames import arrow_of, package_of
from odi_assets.orchestration.assets.attempts import StepAttempt
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
        partition_column: the column that decides to which of the asset's partitions a row belongs.
    """

    key: str
    location: Location
    mode: WriteMode
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    partition_column: str | None = None
    schema: SchemaPolicy = "fail"

    @classmethod
    def of(cls, project: Project, key: dg.AssetKey, metadata: Mapping[str, Any]) -> AssetTable:
        """The table of an asset with this metadata.

        Raises:
            ConfigError: the metadata is not right, or the table is a node's.
        """
        name, column = key.to_user_string(), _plain(metadata.get(PARTITION_COLUMN))
        mode = _mode(name, _plain(metadata.get(MODE)), column)
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
        return cls(name, location, mode, keys, by or ((column,) if column else ()), column, policy)


def _connection(project: Project, name: str, metadata: Mapping[str, Any]) -> str:
    known = list(project.config.connections)
    given = _plain(metadata.get(CONNECTION)) or (project.config.system.connection if project.config.system else None)
    if given is None and len(known) == 1:
        given = known[0]
    if given not in known:
        raise ConfigError(
            f"asset {name} names no connection of the project file"
            if given is None
            else f"there is no connection {given}",
            fix=f"{_fix(CONNECTION, repr(known[0]))}; there are: {', '.join(known)}",
        )
    return str(given)


def _mode(name: str, given: str | None, column: str | None) -> WriteMode:
    if given is None:
        return WriteMode.PARTITION_OVERWRITE if column else WriteMode.OVERWRITE
    found = next((mode for mode in WriteMode if mode.value == str(given)), None)
    if found is None:
        modes = ", ".join(mode.value for mode in WriteMode)
        raise ConfigError(f"asset {name} has the write mode `{given}`", fix=f"it is one of {modes}")
    return found


def _fix(key: str, value: str) -> str:
    return f'add it to the metadata of the asset: metadata={{"{key}": {value}}}'


def _names(value: Any) -> tuple[str, ...]:
    value = _plain(value)
    return () if value is None else (value,) if isinstance(value, str) else tuple(map(str, value))


def _plain(value: Any) -> Any:
    """What was written in the decorator; Dagster wraps some values."""
    return getattr(value, "value", value) if isinstance(value, dg.MetadataValue) else value


def write_frame(
    table: AssetTable, frame: Any, attempt: StepAttempt, open_spark: OpenSpark
) -> tuple[WriteResult | None, int]:
    """Commit ``frame``, unless an earlier attempt has.

    Returns:
        What the commit did, None if an earlier attempt made it; and its version.

    Raises:
        FencedError: another run committed at the same time; nothing was written.
        TableError: the table cannot take the rows.
    """

    def write() -> tuple[WriteResult | None, int]:
        handle = TableHandle.open(table.location)
        earlier = attempt.earlier(table.key, handle)
        if earlier is not None:
            return None, earlier.version
        stamp = attempt.stamp(table.key, handle)
        result = _written(table, frame, handle, _spec(table, attempt), stamp, open_spark)
        return result, result.version

    return raced(write, lost=lambda error: isinstance(error, TableConflictError))


def _spec(table: AssetTable, attempt: StepAttempt) -> WriteSpec:
    replaced = None
    if table.mode is WriteMode.PARTITION_OVERWRITE and table.partition_column and attempt.partitions:
        replaced = tuple({table.partition_column: value} for value in attempt.partitions)
    spec = WriteSpec(table.mode, table.keys, table.partition_by, replaced, table.schema)
    if not attempt.full_refresh:
        return spec
    return replace(spec, mode=WriteMode.OVERWRITE, declared=table.mode, replace=None)


def _written(
    table: AssetTable, frame: Any, handle: TableHandle, spec: WriteSpec, stamp: Stamp, open_spark: OpenSpark
) -> WriteResult:
    engine = engine_of(handle)
    if package_of(frame) == "pyspark":
        return engine.write(frame, handle, spec, stamp)
    return engine.write_arrow(arrow_of(frame, table.key), handle, spec, stamp, open_spark)


def partition_values(context: dg.OutputContext, table: AssetTable) -> tuple[str, ...] | None:
    """The partitions that a run writes, as values of the table's partition column; None for an asset without any.

    Raises:
        ConfigError: the asset has partitions, and nothing says which rows belong to which.
    """
    if not context.has_asset_partitions:
        return None
    if table.partition_column is None and table.mode in (WriteMode.OVERWRITE, WriteMode.PARTITION_OVERWRITE):
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
    definition = context.asset_partitions_def
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        starts = (definition.time_window_for_partition_key(key).start for key in context.asset_partition_keys)
        return tuple(map(_moment, starts))
    return tuple(map(str, context.asset_partition_keys))


def _moment(start: datetime) -> str:
    """As Delta writes it: a day without its time."""
    return start.strftime("%Y-%m-%d") if (start.hour, start.minute) == (0, 0) else start.strftime("%Y-%m-%d %H:%M:%S")
