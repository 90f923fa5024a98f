"""Stateful increments: the rows of a source above the HWM of a cursor column, and which at it are loaded already.

The commit that sets an HWM also remembers, beside it, what the source looked like (``seen``) and, where a closed
boundary needs it, which rows stand at the HWM (``ties``). Both hold only while the HWM is the one of that commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from odi_assets.config.models import Boundary, OnNull, StatefulIncrement
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.bounds import Bound, files_bound, is_ahead, null_cursors, table_bound
from odi_assets.sources.cursor.parquet_bounds import column_bounds
from odi_assets.sources.cursor.types import cursor_type, fitting, less_lag, parse
from odi_assets.sources.model import UNKNOWN, ReadPlan, Unknown, Window

MOST_TIES = 1_000
"""Distinct rows that one HWM remembers as tied with it."""


@dataclass(frozen=True)
class Memory:
    """What the commit behind an HWM says of one source.

    Attributes:
        seen: the state of the source it had read.
        ties: the rows at the HWM by their hash, and how many of each; None if it does not say.
        by_keys: how the node writes tells rows that are read again from new ones, so ties need not be remembered.
        typed: False for an HWM that another tool stored without its type.
    """

    seen: str | None = None
    ties: Mapping[str, int] | None = None
    by_keys: bool = False
    typed: bool = True

    @classmethod
    def of(cls, facts: Any) -> Memory:
        """The memory that a commit's facts hold; an empty one for anything else."""
        if not isinstance(facts, Mapping):
            return cls()
        ties = facts.get("ties")
        return cls(facts.get("seen"), ties if isinstance(ties, Mapping) else None)

    @staticmethod
    def facts(read: ReadPlan) -> dict[str, Any]:
        """What the commit of ``read`` has to remember, JSON-ready."""
        found: dict[str, Any] = {}
        if read.seen is not None:
            found["seen"] = read.seen
        if read.ties_after:
            found["ties"] = dict(read.ties_after)
        return found


def plan(whole: ReadPlan, increment: StatefulIncrement, hwm: Any, memory: Memory) -> ReadPlan:
    """The part of ``whole`` above ``hwm``, as far as it can be told without Spark.

    Raises:
        IncrementError: the cursor, the HWM or the configuration do not fit the source, or rows have no cursor.
    """
    seen = _fingerprint(whole, increment)
    read = replace(
        whole,
        incremental=True,
        stateful=increment,
        hwm_before=hwm,
        hwm_after=UNKNOWN,
        window=_blank(increment, memory),
        summary=f"above {hwm}" if hwm is not None else "everything",
        seen=seen,
        typed=memory.typed,
    )
    if hwm is not None and memory.seen == seen:
        return _nothing(read, "the source is as it was")
    if read.files is not None and not read.files:
        return _nothing(read, "no file with content")
    if read.handle is not None:
        name = cursor_type(increment, read.handle.columns, read.label)
        return fixed(read, name, table_bound(read.handle, increment, name))
    if read.format == "parquet" and not read.schema_ddl:
        bounds = column_bounds(read.location, [file.path for file in read.files or ()], increment.column)
        found = files_bound(bounds, increment)
        if bounds is not None and bounds.type_name is not None and found is not UNKNOWN:
            return fixed(read, bounds.type_name, found)
    return replace(read, summary=_text(read))


def fixed(read: ReadPlan, name: str, bound: Bound | Unknown) -> ReadPlan:
    """``read`` with its window, once the type of the cursor is known, and its bound if that is known too.

    Raises:
        IncrementError: the HWM or the first value is of another type, the lag does not fit it, or rows have no cursor
            and ``on_null`` is ``raise``.
    """
    increment, blank = read.stateful, read.window
    if increment is None or blank is None:
        return read
    hwm = fitting(read.hwm_before, name, increment, read.label, typed=read.typed)
    start = None if increment.initial_value is None else parse(increment.initial_value, name, increment, read.label)
    lower_of = None if read.from_start else hwm
    window = _with_lower(replace(blank, start=start), increment, lower_of, read.label)
    read = replace(read, window=window, hwm_before=hwm)
    if isinstance(bound, Unknown):
        return replace(read, summary=_text(read))
    if bound.without_cursor and increment.on_null is OnNull.RAISE:
        raise null_cursors(increment.column, bound.without_cursor, read.label)
    if bound.without_cursor and increment.on_null is OnNull.EXCLUDE:
        read = replace(read, excluded=bound.without_cursor)
    return _bounded(read, window, increment, bound)


def _bounded(read: ReadPlan, window: Window, increment: StatefulIncrement, bound: Bound) -> ReadPlan:
    hwm, upper = read.hwm_before, bound.upper
    ahead = is_ahead(upper, hwm)
    nulls = increment.on_null is OnNull.INCLUDE and bound.without_cursor > 0
    # A source that lost its newest rows is read no further than the HWM, so that the bound stays one.
    window = replace(window, upper=upper if upper is not None else hwm)
    in_window = upper is not None and (window.lower is None or upper >= window.lower)
    again = in_window and (bool(increment.watermark_lag) or increment.boundary is Boundary.CLOSED or hwm is None)
    before_start = hwm is None and upper is not None and window.start is not None and upper < window.start
    if not nulls and (before_start or not (ahead or again)):
        return _nothing(
            replace(read, window=window), f"nothing after {_shown(hwm)}" if hwm is not None else "nothing to read"
        )
    after = upper if ahead and not before_start else hwm
    read = replace(read, window=window, hwm_after=after)
    return replace(read, summary=_text(read))


def _blank(increment: StatefulIncrement, memory: Memory) -> Window:
    return Window(
        increment.column,
        increment.fallback_column,
        upper=UNKNOWN,
        nulls=increment.on_null is OnNull.INCLUDE,
        date_format=increment.date_format,
        # Without a word of the ties at the HWM, all rows at it count as loaded: it is what an HWM says.
        lower_inclusive=increment.boundary is Boundary.CLOSED and (memory.by_keys or memory.ties is not None),
        ties={} if memory.by_keys else memory.ties or {},
    )


def _with_lower(window: Window, increment: StatefulIncrement, hwm: Any, label: str) -> Window:
    if hwm is None:
        return replace(window, lower=window.start, lower_inclusive=True, ties={})
    try:
        lower = less_lag(hwm, increment.watermark_lag)
    except TypeError as error:
        raise IncrementError(
            f"watermark_lag {increment.watermark_lag} does not subtract from the HWM {hwm!r} of {label}",
            fix="use a duration (2h) for times and dates, a number for numbers",
            column=increment.column,
        ) from error
    if window.start is not None and (lower is None or lower < window.start):
        return replace(window, lower=window.start, lower_inclusive=True)
    return replace(window, lower=lower)


def keeps_ties(read: ReadPlan, *, by_keys: bool) -> bool:
    """Whether the commit has to remember the rows at the HWM: a closed boundary, and no keys to look them up by."""
    return read.stateful is not None and read.stateful.boundary is Boundary.CLOSED and not by_keys


def reads_again(read: ReadPlan) -> bool:
    """Whether rows that are in the target may come again."""
    increment = read.stateful
    return increment is not None and (
        bool(increment.watermark_lag) or increment.boundary is Boundary.CLOSED or increment.on_null is OnNull.INCLUDE
    )


def _nothing(read: ReadPlan, why: str) -> ReadPlan:
    return replace(read, nothing_new=True, hwm_after=read.hwm_before, summary=why)


def _fingerprint(read: ReadPlan, increment: StatefulIncrement) -> str:
    """The source's state: a Delta table's version, or the names, times and sizes of files."""
    parts = [increment.model_dump_json()]
    if read.handle is not None:
        parts += [read.handle.table_id, str(read.handle.version)]
    parts += [f"{file.path}\0{file.mtime_ns}\0{file.size}\0{file.etag}" for file in read.files or ()]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def _text(read: ReadPlan) -> str:
    window = read.window
    if window is None:
        return read.summary
    name = f"coalesce({window.column}, {window.fallback})" if window.fallback else window.column
    sign = "<=" if window.lower_inclusive else "<"
    low = "" if window.lower is None else f"{_shown(window.lower)} {sign} "
    high = f" <= {_shown(window.upper)}" if window.upper is not UNKNOWN else f" <= its maximum, {UNKNOWN.value}"
    nulls = " or without a cursor" if window.nulls else ""
    excluded = f"; {read.excluded:,} rows without a cursor left out" if read.excluded else ""
    return f"{low}{name}{high}{nulls}{excluded}"


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
