"""Plans of single sources: files, Delta tables read from outside, and tables of upstream nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.config.models import (
    FileFormat,
    FilesIncrement,
    OnChange,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
    WriteMode,
)
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError, SourceError
from odi_assets.sources.cursor import rolling_window as rolling
from odi_assets.sources.cursor import window as stateful
from odi_assets.sources.cursor.window import Memory
from odi_assets.sources.delta.versions import VersionStep, step
from odi_assets.sources.files.arrivals import arrivals
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.model import ReadPlan, Window
from odi_assets.sources.position import files_position, table_position

AnyIncrement = StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement


@dataclass(frozen=True)
class SourceSpec:
    """One source of a node as the project file has it, with its places resolved.

    Attributes:
        base: the connection's root, to which file paths (and their HWM) are relative.
        path: path or glob below ``base``.
        location: the table itself, for Delta.
        target: the node's table, beside which a files increment keeps its ledger; None remembers nothing.
        mode: how the node writes.
    """

    name: str
    label: str
    format: FileFormat
    base: Location
    path: str
    location: Location
    schema_ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    incremental: AnyIncrement | None = None
    target: Location | None = None
    mode: WriteMode = WriteMode.OVERWRITE


@dataclass(frozen=True)
class SourceRead:
    """The plan of a source, and for a version increment the step behind it."""

    plan: ReadPlan
    step: VersionStep | None = None


def plan_source(spec: SourceSpec, hwm: Any, memory: Memory | None = None) -> SourceRead:
    """What to read of ``spec`` above ``hwm``, decided without Spark.

    Args:
        memory: what the commit that set the HWM remembers of this source besides.

    Raises:
        SourceError: the source does not exist or cannot be listed.
        IncrementError: the HWM does not fit the source.
        TableError: an upstream table cannot be read as asked.
    """
    if spec.format is FileFormat.DELTA:
        return _plan_table(spec, hwm, memory or Memory())
    listed = list_files(spec.base, spec.path)
    planned = _plan_files(spec, listed, hwm, memory or Memory())
    return SourceRead(replace(planned, position=files_position(listed)))


def _plan_files(spec: SourceSpec, listed: Sequence[SourceFile], hwm: Any, memory: Memory) -> ReadPlan:
    if isinstance(spec.incremental, FilesIncrement):
        return _plan_arrivals(spec, spec.incremental, listed, hwm)
    files = tuple(file for file in listed if file.size)
    if not listed:
        raise SourceError(
            f"{spec.label}: no file matches {spec.path} in {spec.base.uri}",
            fix="check `read.path`, or land a file there first",
            path=spec.path,
        )
    if isinstance(spec.incremental, RollingWindowIncrement):
        window = rolling.window(spec.incremental)
        return _file_plan(spec, files=files, window=window, summary=_rolling_text(spec.incremental, window))
    whole = _file_plan(spec, files=files, summary=f"whole: {_files_text(len(files))}")
    if isinstance(spec.incremental, StatefulIncrement):
        return stateful.plan(whole, spec.incremental, hwm, memory)
    return whole


def _plan_arrivals(spec: SourceSpec, increment: FilesIncrement, listed: Sequence[SourceFile], hwm: Any) -> ReadPlan:
    if spec.target is None:
        files = tuple(file for file in listed if file.size)
        return _file_plan(spec, files=files, every_file=files, incremental=True, summary=_files_text(len(files)))
    rule = increment.on_change or (OnChange.RAISE if spec.mode is WriteMode.APPEND else OnChange.RELOAD)
    found = arrivals(spec.base, spec.target, listed, hwm, spec.label, on_change=rule, settle=increment.settle)
    text = _files_text(len(found.new), new=True) if listed else f"no file matches {spec.path}"
    return _file_plan(
        spec,
        files=found.new,
        summary=f"{text}; {found.notes}" if found.notes else text,
        incremental=True,
        hwm_before=hwm,
        hwm_after=found.hwm,
        nothing_new=not found.new,
        every_file=tuple(sorted((*found.known, *found.new))),
        ledger=found.part,
        lost_files=found.gone,
        reloads=bool(found.changed),
    )


def _file_plan(spec: SourceSpec, **facts: Any) -> ReadPlan:
    return ReadPlan(
        name=spec.name,
        label=spec.label,
        format=spec.format.value,
        location=spec.base,
        schema_ddl=spec.schema_ddl,
        options=spec.options,
        **facts,
    )


def _plan_table(spec: SourceSpec, hwm: Any, memory: Memory) -> SourceRead:
    handle = TableHandle.open(spec.location)
    increment = spec.incremental
    if not handle.exists:
        if isinstance(increment, VersionIncrement) and hwm is None:
            return SourceRead(
                _table_plan(
                    spec, handle, summary=f"{spec.label} does not exist yet", incremental=True, nothing_new=True
                )
            )
        raise SourceError(
            f"{spec.label}: there is no Delta table at {spec.location.uri}",
            fix="run the node that writes it first",
            path=spec.location.uri,
        )
    if isinstance(increment, VersionIncrement):
        return _plan_version(spec, handle, hwm)
    if isinstance(increment, StatefulIncrement):
        return SourceRead(stateful.plan(_table_plan(spec, handle, summary=""), increment, hwm, memory))
    if isinstance(increment, RollingWindowIncrement):
        window = rolling.window(increment)
        return SourceRead(_table_plan(spec, handle, window=window, summary=_rolling_text(increment, window)))
    if isinstance(increment, FilesIncrement):
        raise IncrementError(
            f"{spec.label} is a Delta table, and `files` increments are for csv, json and parquet",
            fix="use mode: version, which follows the table's commits",
        )
    return SourceRead(_table_plan(spec, handle, summary=f"whole, at version {handle.version}"))


def _plan_version(spec: SourceSpec, handle: TableHandle, hwm: Any) -> SourceRead:
    found = step(handle, hwm, spec.label, replaced=spec.mode is WriteMode.PARTITION_OVERWRITE)
    plan = _table_plan(
        spec,
        handle,
        changes=found.changes if found.extent == "rows" else None,
        gained=found.changes,
        summary=found.reason,
        incremental=True,
        hwm_before=hwm,
        hwm_after=found.hwm_after,
        nothing_new=found.extent == "nothing",
    )
    return SourceRead(plan, found)


def _table_plan(spec: SourceSpec, handle: TableHandle, **facts: Any) -> ReadPlan:
    return ReadPlan(
        name=spec.name,
        label=spec.label,
        format="delta",
        location=spec.location,
        handle=handle,
        position=table_position(handle),
        options=spec.options,
        **facts,
    )


def _files_text(count: int, *, new: bool = False) -> str:
    if not count:
        return "no new files"
    return f"{count:,} {'new ' if new else ''}file{'' if count == 1 else 's'}"


def _rolling_text(increment: RollingWindowIncrement, window: Window) -> str:
    plural = "" if increment.lookback == 1 else "s"
    span = f"last {increment.lookback} {increment.unit}{plural}"
    return f"{increment.column} >= {window.lower:%Y-%m-%d %H:%M:%S} UTC ({span})"
