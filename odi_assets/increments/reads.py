"""Plans of single sources: files, Delta tables read from outside, and tables of upstream nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.config.models import (
    FileFormat,
    FilesIncrement,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
)
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError, SourceError
from odi_assets.increments import rolling
from odi_assets.increments.bounds import is_ahead, stateful_window, table_upper_bound
from odi_assets.increments.files import hwm_of, list_files, newer_than
from odi_assets.increments.model import UNKNOWN, ReadPlan, Window
from odi_assets.increments.versions import VersionStep, step
from odi_assets.tables.handle import TableHandle

AnyIncrement = StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement


@dataclass(frozen=True)
class SourceSpec:
    """One source of a node as the project file has it, with its places resolved.

    Attributes:
        base: the connection's root, to which file paths (and their HWM) are relative.
        path: path or glob below ``base``.
        location: the table itself, for Delta.
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


@dataclass(frozen=True)
class SourceRead:
    """The plan of a source, and for a version increment the step behind it."""

    plan: ReadPlan
    step: VersionStep | None = None


def plan_source(spec: SourceSpec, hwm: Any) -> SourceRead:
    """What to read of ``spec`` above ``hwm``, decided without Spark.

    Raises:
        SourceError: the source does not exist or cannot be listed.
        IncrementError: the HWM does not fit the source.
        TableError: an upstream table cannot be read as asked.
    """
    if spec.format is FileFormat.DELTA:
        return _plan_table(spec, hwm)
    return SourceRead(_plan_files(spec, hwm))


def _plan_files(spec: SourceSpec, hwm: Any) -> ReadPlan:
    files = list_files(spec.base, spec.path)
    if isinstance(spec.incremental, FilesIncrement):
        new = newer_than(files, hwm, spec.label)
        after = hwm_of(new) or hwm
        return _file_plan(
            spec,
            files=tuple(new),
            summary=_files_text(len(new), new=True) if files else f"no file matches {spec.path}",
            incremental=True,
            hwm_before=hwm,
            hwm_after=after,
            nothing_new=not new,
        )
    if not files:
        raise SourceError(
            f"{spec.label}: no file matches {spec.path} in {spec.base.uri}",
            fix="check `read.path`, or land a file there first",
            path=spec.path,
        )
    if isinstance(spec.incremental, RollingWindowIncrement):
        window = rolling.window(spec.incremental)
        return _file_plan(spec, files=tuple(files), window=window, summary=_rolling_text(spec.incremental, window))
    if isinstance(spec.incremental, StatefulIncrement):
        window = stateful_window(spec.incremental, hwm, UNKNOWN, spec.label)
        return _file_plan(
            spec,
            files=tuple(files),
            window=window,
            summary=_window_text(window),
            incremental=True,
            hwm_before=hwm,
            hwm_after=UNKNOWN,
        )
    return _file_plan(spec, files=tuple(files), summary=f"whole: {_files_text(len(files))}")


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


def _plan_table(spec: SourceSpec, hwm: Any) -> SourceRead:
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
        return SourceRead(_plan_stateful_table(spec, handle, increment, hwm))
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
    found = step(handle, hwm, spec.label)
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


def _plan_stateful_table(spec: SourceSpec, handle: TableHandle, increment: StatefulIncrement, hwm: Any) -> ReadPlan:
    upper = table_upper_bound(handle, increment, spec.label)
    window = stateful_window(increment, hwm, upper, spec.label)
    if upper is UNKNOWN:
        nothing_new = False
        after: Any = UNKNOWN
    else:
        ahead = is_ahead(upper, hwm, spec.label, increment.column)
        # With a lag, late rows may stand below an unmoved bound, so the window is read again.
        nothing_new = upper is None or not (ahead or increment.watermark_lag)
        after = upper if ahead else hwm
    return _table_plan(
        spec,
        handle,
        window=window,
        summary=_window_text(window),
        incremental=True,
        hwm_before=hwm,
        hwm_after=after,
        nothing_new=nothing_new,
    )


def _table_plan(spec: SourceSpec, handle: TableHandle, **facts: Any) -> ReadPlan:
    return ReadPlan(
        name=spec.name,
        label=spec.label,
        format="delta",
        location=spec.location,
        handle=handle,
        options=spec.options,
        **facts,
    )


def _files_text(count: int, *, new: bool = False) -> str:
    if not count:
        return "no new files"
    return f"{count:,} {'new ' if new else ''}file{'' if count == 1 else 's'}"


def _window_text(window: Window) -> str:
    name = f"coalesce({window.column}, {window.fallback})" if window.fallback else window.column
    low = "" if window.lower is None else f"{window.lower} < "
    high = f" <= {window.upper}" if window.upper is not UNKNOWN else f" <= its maximum, {UNKNOWN.value}"
    return f"{low}{name}{high}"


def _rolling_text(increment: RollingWindowIncrement, window: Window) -> str:
    plural = "" if increment.lookback == 1 else "s"
    span = f"last {increment.lookback} {increment.unit}{plural}"
    return f"{increment.column} >= {window.lower:%Y-%m-%d %H:%M:%S} UTC ({span})"
