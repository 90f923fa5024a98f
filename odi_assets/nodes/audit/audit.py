"""Compares a node's table with what its sources hold up to its marks, by ranges; each that differs has its repair.

The source goes through the node's transform, so both sides have the table's columns. Only columns that the transform
leaves as they are in the source are compared: what it computes may come out otherwise today.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args

from odi_assets.config.compared_columns import known_rows
from odi_assets.config.graph import NodeKey
from odi_assets.config.models import (
    CursorsIncrement,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
    WriteMode,
)
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.audit.applied import audit_applied
from odi_assets.nodes.audit.found import Audit, AuditRange
from odi_assets.nodes.audit.rows import (
    BUCKETS,
    KeyRule,
    RangeDifference,
    RangeOf,
    Unit,
    as_stored,
    by_keys,
    by_rows,
    without,
)
from odi_assets.nodes.execution.errors import errors_named
from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import unmarked_rows
from odi_assets.nodes.planning.partition_calendar import PartitionCalendar, time_text
from odi_assets.nodes.planning.range import range_way
from odi_assets.nodes.planning.same_history import in_same_history
from odi_assets.nodes.planning.start import Start, marks_of, table_and_start
from odi_assets.nodes.planning.target_check import require_target
from odi_assets.nodes.planning.writers import quarantine_of
from odi_assets.nodes.project import Project
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.marks import Mark
from odi_assets.sources.reads import Read, UnresolvedRead
from odi_assets.sources.source import Source
from odi_assets.spark.own_session import own_session
from odi_assets.spark.plans.plan import read_outline
from odi_assets.state.backend import StateBackend
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.spark.plans.plan import Outline

_TIMES = {"date", "timestamp", "timestamp_ntz"}
_UNITS = {"week": "day", "year": "month"}
"""The ranges that rows of partitions of other lengths are put into."""
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}
_ROW_BY_ROW = {"Project", "Filter", "StreamingRelation", "Generate", "Union"}
"""Operators that make rows of one row each."""
WIDTH = 1_000_000
"""The length of a range of numbers, unless it is named."""


def audit(project: Project, spark: SparkSession, state: StateBackend, key: NodeKey, by: str | None = None) -> Audit:
    """Compare the table of ``key`` with what its sources hold up to its marks. Changes nothing.

    Args:
        by: ``hour``, ``day`` or ``month``, or the length of a range of numbers.

    Raises:
        ConfigError: it is a stream, has no table, or nothing of it can be compared so.
        IdentityMismatchError: its marks are of other sources or of another history.
        TargetBehindStateError: its table lacks rows that state says are there, and nobody has accepted that.
        SourceError, TableError: a side cannot be read.
    """
    node = Node.of(project, key)
    with remedies_named(node):
        target, start = table_and_start(node, state)
    _require_auditable(node, target)
    with remedies_named(node), own_session(spark), errors_named(node, ()):
        if node.config.apply is not None:
            return audit_applied(node, target, spark, state, by)
        return _compared(node, target, start, spark, by)


def _compared(node: Node, target: TableHandle, start: Start, spark: SparkSession, by: str | None) -> Audit:
    marks = _marks(node, start, target)
    frames = {source.name: _loaded(source, marks, spark) for source in node.sources}
    transformed_rows = transformed(spark, node.config, node.project.root, frames, str(node))
    rows = engine_of(target).read(spark, target)
    source, table = (as_stored(frame, rows.schema, target.partition_columns) for frame in (transformed_rows, rows))
    scope = _scope(node, frames, source, table, spark)
    ranges = _ranges(node, scope, table, by)
    quarantined = _quarantined(node, rows)
    if quarantined is not None:
        quarantined = as_stored(quarantined, rows.schema, target.partition_columns)
        # Rows that are known by keys: the table may hold an earlier row of the same key.
        if scope.rule is not None:
            source = without(source, quarantined, table, (*scope.rule.keys, *scope.compared))
        else:
            table = table.unionByName(quarantined)
    if scope.rule is not None:
        differences = by_keys(source, table, ranges, scope.compared, scope.rule)
    else:
        differences = by_rows(source, table, ranges, scope.compared, distinct=scope.keys_only)
    if any(difference.versions for difference in differences):
        scope = replace(scope, versions=True)
    return Audit(
        node.key,
        _by_text(ranges),
        scope.compared,
        (*scope.notes, *_not_loaded(node, marks), *_of_parts(node, target, differences)),
        tuple(
            AuditRange(difference, _name(difference, ranges), _command(node, difference, ranges, scope))
            for difference in differences
        ),
        groups_only=scope.regroups and set(scope.compared) < set(table.columns),
    )


def _quarantined(node: Node, table: DataFrame) -> DataFrame | None:
    """The rows of the node's quarantine, with the columns of its table: both together are what the sources gave."""
    location = quarantine_of(node)
    held = None if location is None else TableHandle.open(location)
    if held is None or not held.exists:
        return None
    rows = engine_of(held).read(table.sparkSession, held)
    present = [quoted(name) for name in table.columns if name in rows.columns]
    return table.limit(0).unionByName(rows.select(*present), allowMissingColumns=True)


def _require_auditable(node: Node, target: TableHandle) -> None:
    node.kind.require_auditable(node)
    if node.captures:
        appliers = [str(key) for key in node.project.graph.downstream(node.key) if _applies(node, key)]
        audits = "; ".join(f"odi audit {name}" for name in appliers)
        raise ConfigError(
            f"{node} holds changes, which are not the rows of a table",
            fix=f"compare what is made of them: {audits or 'add a node that applies it'}",
            node=str(node),
        )
    rolling = [source.label for source in node.sources if isinstance(source.increment, RollingWindowIncrement)]
    if rolling:
        raise ConfigError(
            f"{node} reads a rolling window of {' and '.join(rolling)}: no mark says which of the source's rows its "
            "table is to hold",
            fix="a `mode: stateful` increment leaves a mark to audit up to, and its `watermark_lag` reads late rows",
            node=str(node),
        )
    if not target.exists:
        raise ConfigError(f"{node} has no table yet", fix=f"odi run {node.command}", node=str(node))


def _applies(capture: Node, key: NodeKey) -> bool:
    return Node.of(capture.project, key).applies == capture.key


def _marks(node: Node, start: Start, target: TableHandle) -> dict[str, Mark]:
    """The marks that the next run starts from: nothing below them is ever loaded again."""
    if node.following:
        require_target(node, start, target)
    return in_same_history(node, marks_of(node, start, target), target)


def _loaded(source: Source, marks: Mapping[str, Mark], spark: SparkSession) -> DataFrame:
    """The rows of a source that the table was made of."""
    mark = marks.get(source.name)
    read = source.whole() if mark is None else source.loaded(mark)
    if isinstance(read, UnresolvedRead):
        read = read.resolve(spark)
    assert isinstance(read, Read)
    rows = read.load(spark)
    return rows.limit(0) if source.follows and mark is None else rows


# -- what can be compared ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scope:
    """What of a node can be compared.

    Attributes:
        compared: the columns whose values are.
        places: by column of the table, the columns of sources that it is, unchanged.
        keys_only: rows of the table stand for several of the source: only which ones there are is compared.
        rule: of a write by keys, how it chooses one row of a key.
        regroups: a row is not made of one row of the source alone.
        versions: the source has several rows of a key.
    """

    compared: tuple[str, ...]
    places: Mapping[str, tuple[tuple[str, str], ...]]
    keys_only: bool = False
    rule: KeyRule | None = None
    regroups: bool = False
    versions: bool = False
    notes: tuple[str, ...] = ()


def _scope(
    node: Node, frames: Mapping[str, DataFrame], source: DataFrame, table: DataFrame, spark: SparkSession
) -> _Scope:
    shared = [name for name in table.columns if name in source.columns]
    notes = [f"`{name}` is in the table alone" for name in table.columns if name not in source.columns]
    places, regroups = _places(node, frames, shared, spark)
    compared = tuple(name for name in shared if name in places)
    if made := [name for name in shared if name not in places]:
        names = ", ".join(f"`{name}`" for name in made)
        notes.append(f"the transform makes {names}: {'its' if len(made) == 1 else 'their'} values are not compared")
    traits, keys = node.config.write.mode.traits, tuple(node.config.write.keys)
    by_increments = traits.increment == "rows"
    if by_increments and (regroups or _appends_versions(node)):
        compared = keys if keys and set(keys) <= set(shared) else () if not regroups else compared
        if not compared:
            what = (
                "its rows are made of several rows of its sources, increment by increment, and no column of them is "
                "left as it is"
                if regroups
                else "it has each version of rows that are updated above it, and no `write.keys` say which are one row"
            )
            raise ConfigError(
                f"{node}: {what}",
                fix=f"compare it with odi run {node.command} --full-refresh into a copy of the project",
                node=str(node),
            )
        why = "joins or aggregates rows" if regroups else "has each version of rows that are updated above it"
        notes.append(f"it {why}: only which {', '.join(compared)} there are is compared")
        return _Scope(compared, places, keys_only=True, regroups=regroups, notes=tuple(notes))
    rule = None
    if traits.needs_keys:
        rule = KeyRule(keys, _order(node, source), node.config.write.delete_when)
        notes.append("of the rows of a key, the newest counts" if rule.order else "of the rows of a key, any counts")
    elif (known := known_rows(node.config)) and set(known) <= set(shared):
        rule = KeyRule(known)
        notes.append(f"of the rows with the same {', '.join(known)}, one counts")
    return _Scope(compared, places, rule=rule, regroups=regroups, notes=tuple(notes))


def _places(
    node: Node, frames: Mapping[str, DataFrame], shared: list[str], spark: SparkSession
) -> tuple[dict[str, tuple[tuple[str, str], ...]], bool]:
    """The columns copied from a source unchanged; and whether a row is made of several rows of the sources."""
    if node.config.transform is None:
        (only,) = frames
        return {name: ((only, name),) for name in shared}, False
    outline = _outline(node, frames, spark)
    if outline is None:
        return {}, True
    by_name = {name.lower(): origins for name, origins in outline.columns.items()}
    origins_by_name = {name: by_name[name.lower()] for name in shared if by_name.get(name.lower())}
    return origins_by_name, bool(outline.operators - _ROW_BY_ROW)


def _outline(node: Node, frames: Mapping[str, DataFrame], spark: SparkSession) -> Outline | None:
    """What the transform does; None where no plan can be had (Spark Connect, a function of rows)."""
    if not hasattr(spark, "_jsparkSession"):
        return None
    schemas = {name: frame.schema for name, frame in frames.items()}
    try:
        return read_outline(
            spark, schemas, lambda streams: transformed(spark, node.config, node.project.root, streams, str(node))
        )
    except Exception as error:  # noqa: BLE001  a user's function may raise anything when it is given streams
        logging.getLogger(__name__).debug("no plan of %s: %s", node, error)
        return None


def _appends_versions(node: Node) -> bool:
    """Whether it appends what a table above updates: rows as they were stay in its table."""
    if node.config.write.mode is not WriteMode.APPEND:
        return False
    tables = [
        source
        for source in node.sources
        if isinstance(source, DeltaTableSource) and isinstance(source.increment, VersionIncrement)
    ]
    stamps = (stamp for table in tables for stamp in TableHandle.open(table.location).stamps())
    return any(stamp.facts.get("rows_updated") for stamp in stamps)


def _order(node: Node, source: DataFrame) -> str | None:
    """The column by which the newest row of a key is the one that an upsert leaves; None if nothing says so."""
    write = node.config.write
    if write.mode is not WriteMode.UPSERT:
        return None
    if write.only_if_newer:
        return write.only_if_newer
    cursors = [
        node_source.cursor
        for node_source in node.sources
        if node_source.follows and node_source.cursor in source.columns
    ]
    plain = all(
        not (isinstance(node_source.increment, StatefulIncrement) and node_source.increment.date_format)
        for node_source in node.sources
    )
    return cursors[0] if len(cursors) == 1 and plain else None


def _not_loaded(node: Node, marks: Mapping[str, Mark]) -> list[str]:
    """What lies above the marks: it is no difference."""
    not_loaded = []
    for source in node.sources:
        if source.follows:
            read = source.plan(marks.get(source.name))
            if not read.nothing_new:
                not_loaded.append(f"not loaded yet of {source.label}: {read.summary}")
    return not_loaded


def _of_parts(node: Node, target: TableHandle, differences: Iterable[RangeDifference]) -> list[str]:
    """Rows above the marks that a part has loaded: a run of their range would load them again, and change nothing."""
    if not any(difference.extra for difference in differences) or unmarked_rows(node.key, target) is None:
        return []
    return ["rows above the HWM of a part that was run by itself are too many until an increment has read them"]


# -- ranges ------------------------------------------------------------------------------------------------------------


def _ranges(node: Node, scope: _Scope, table: DataFrame, by: str | None) -> RangeOf:
    """What the rows are put into ranges by: the node's partition, its cursor, its keys.

    Raises:
        ConfigError: ``by`` does not fit that.
    """
    window = _window(node, scope)
    if window is None:
        if by is not None:
            raise ConfigError(
                f"{node} has no cursor or partition that its table keeps, so it is compared by the hash of its keys",
                fix="leave --by out",
                node=str(node),
            )
        keys = tuple(name for name in node.config.write.keys if name in table.columns)
        return RangeOf(keys=keys or scope.compared)
    kind = table.schema[window.column].dataType.simpleString()
    if window.date_format is not None or kind in _TIMES:
        return RangeOf(window, unit=_unit(node, by), kind=kind)
    if kind in _NUMBERS or kind.startswith("decimal"):
        return RangeOf(window, width=_width(by))
    if by is not None:
        raise ConfigError(f"`{window.column}` of {node} is {kind}, which --by does not cut", fix="leave --by out")
    if window.column in node.partition_by:
        return RangeOf(window)
    return RangeOf(keys=tuple(node.config.write.keys) or (window.column,))


def _window(node: Node, scope: _Scope) -> Window | None:
    partition = node.config.partition
    if partition is not None:
        return Window(partition.column)
    for source in node.sources:
        columns = [_column_of(scope, source.name, name) for name in _cursors(source)]
        if columns and None not in columns:
            written = source.increment.date_format if isinstance(source.increment, StatefulIncrement) else None
            return Window(str(columns[0]), columns[1] if len(columns) > 1 else None, date_format=written)
    return Window(node.partition_by[0]) if node.partition_by else None


def _cursors(source: Source) -> tuple[str, ...]:
    """The cursor of a source, and its fallback. Several cursors have no order in common."""
    increment = source.increment
    if isinstance(increment, StatefulIncrement):
        return tuple(filter(None, (increment.column, increment.fallback_column)))
    if isinstance(increment, CursorsIncrement):
        return increment.columns if len(increment.columns) == 1 else ()
    return () if source.cursor is None else (source.cursor,)


def _column_of(scope: _Scope, source: str, column: str) -> str | None:
    """The column of the table that a column of a source is."""
    return next((name for name, origins in scope.places.items() if (source, column) in origins), None)


def _unit(node: Node, by: str | None) -> Unit:
    partition = node.config.partition
    unit: Any = by or ("day" if partition is None else _UNITS.get(partition.every, partition.every))
    if unit not in get_args(Unit):
        raise ConfigError(f"--by {by} is no length of time", fix="give hour, day or month", node=str(node))
    valid_unit: Unit = unit
    return valid_unit


def _width(by: str | None) -> int:
    if by is not None and not re.fullmatch("[1-9][0-9]*", by):
        raise ConfigError(f"--by {by} is no length of a range of numbers", fix="give a whole number, as in 1000000")
    return int(by or WIDTH)


def _by_text(ranges: RangeOf) -> str:
    if ranges.window is None:
        return f"hash of {', '.join(ranges.keys)}" if ranges.keys else "all rows"
    if ranges.unit is not None:
        return f"{ranges.unit} of {ranges.window.column}"
    return f"{ranges.width:,} of {ranges.window.column}" if ranges.width else ranges.window.column


def _name(difference: RangeDifference, ranges: RangeOf) -> str:
    if difference.range is None:
        return "without a value"
    if ranges.window is None:
        return f"bucket {int(difference.range) + 1} of {BUCKETS}"
    return f"{difference.range} to {int(difference.range) + ranges.width - 1}" if ranges.width else difference.range


# -- repair ------------------------------------------------------------------------------------------------------------


def _command(node: Node, difference: RangeDifference, ranges: RangeOf, scope: _Scope) -> str | None:
    """The command that makes a range agree."""
    if difference.agrees:
        return None
    if _a_range_repairs(node, difference, scope):
        bounds = _bounds(node, difference, ranges)
        if bounds is not None:
            return f"odi run {node.command} --from {bounds[0]} --to {bounds[1]}"
        if _is_partition(node, difference, ranges):
            return f"odi run {node.command} --partition {shlex.quote(str(difference.range))}"
    return f"odi run {node.command} --full-refresh"


def _is_partition(node: Node, difference: RangeDifference, ranges: RangeOf) -> bool:
    """Whether a range is one value of a column whose values are partitions."""
    partition = node.config.partition
    is_value = ranges.window is not None and not ranges.unit and not ranges.width
    if partition is None or partition.is_timed or not is_value or difference.range is None:
        return False
    return difference.range in (partition.values or (difference.range,))


def _a_range_repairs(node: Node, difference: RangeDifference, scope: _Scope) -> bool:
    """Whether a bounded run makes it agree. One that writes by keys leaves rows of other keys there, and would put an
    older row of a key in the place of a newer one."""
    try:
        mode = range_way(node).mode
    except ConfigError:
        return False
    if mode.traits.increment == "partitions":
        return True
    newest_wins = bool(node.config.write.only_if_newer)
    if mode is not WriteMode.UPSERT:
        return not (difference.extra or difference.repeated or difference.changed)
    return (
        not difference.extra
        and not (newest_wins and (difference.changed or difference.repeated))
        and not ((scope.versions or scope.regroups) and not newest_wins)
    )


def _bounds(node: Node, difference: RangeDifference, ranges: RangeOf) -> tuple[str, str] | None:
    """Where a range begins and ends, whole partitions, as a run takes it; None if it is no range of time, if one of its
    bounds is outside the years 1 to 9999, or in an hour that a clock shows twice."""
    partition = node.config.partition
    if ranges.unit is None or difference.range is None or (partition is not None and not partition.is_timed):
        return None
    try:
        start = datetime.fromisoformat(f"{difference.range}-01" if ranges.unit == "month" else difference.range)
        last = _end(start, ranges.unit) - timedelta(microseconds=1)
        if partition is None:
            return time_text(start), time_text(_end(start, ranges.unit))
        calendar = PartitionCalendar(partition)
        partitions = [calendar.partition_of(str(moment), ranges.kind) for moment in (start, last)]
    except (ValueError, OverflowError):
        return None
    return (
        None
        if partitions[0] is None or partitions[1] is None
        else (calendar.text(partitions[0].start), calendar.text(partitions[1].end))
    )


def _end(start: datetime, unit: Unit) -> datetime:
    if unit == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start + (timedelta(hours=1) if unit == "hour" else timedelta(days=1))
