"""The upper bound of a cursor column of a Delta table, from the statistics of its files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from odi_assets.config.models import StatefulIncrement
from odi_assets.delta.files.pruning import uncut
from odi_assets.delta.partition_values import EXACT_FLOAT_DIGITS
from odi_assets.delta.table import TableHandle
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.parquet_bounds import column_bounds
from odi_assets.sources.marks import UNRESOLVED, Unresolved

_FEW_FILES = 200


def table_bound(handle: TableHandle, increment: StatefulIncrement, name: str) -> Bound | Unresolved:
    """The upper bound of a Delta table from its file statistics; UNRESOLVED if the statistics do not have it.
    Args:
        name: the type of the cursor. Statistics are not used for text and bytes, which may be cut; for floats, which
            ignore NaN; and for long decimals, which are rounded.
    """
    if not handle.live_files:
        return Bound(None, 0)
    if increment.date_format or increment.column in handle.partition_columns or not _is_exact(name):
        return UNRESOLVED
    actions = handle.add_actions
    names = [f"{kind}.{increment.column}" for kind in ("max", "null_count")]
    if any(column not in actions.column_names for column in names):
        return UNRESOLVED
    try:
        highs, nulls, rows = (actions[column].to_pylist() for column in (*names, "num_records"))
    except OverflowError:
        # A time beyond Python's years; `spark_bound` raises the error.
        return UNRESOLVED
    if any(count is None for count in (*nulls, *rows)):
        return UNRESOLVED
    without = sum(nulls)
    if without and increment.fallback_column:
        return UNRESOLVED
    filled = [i for i, count in enumerate(rows) if count > nulls[i]]
    if any(highs[i] is None for i in filled):
        return UNRESOLVED
    if not filled:
        return Bound(None, without)
    upper = max(highs[i] for i in filled)
    if isinstance(upper, datetime):
        upper = upper.astimezone(UTC) if upper.tzinfo else upper
        upper = _untruncated(handle, increment.column, upper, [(i, highs[i]) for i in filled], name)
    return UNRESOLVED if upper is UNRESOLVED else Bound(upper, without)


def _is_exact(name: str) -> bool:
    if name.startswith("decimal"):
        return int(name[len("decimal(") :].partition(",")[0]) <= EXACT_FLOAT_DIGITS
    return name not in {"string", "binary", "float", "double"}


def _untruncated(
    handle: TableHandle, column: str, upper: datetime, highs: Sequence[tuple[int, datetime]], name: str
) -> datetime | Unresolved:
    """The greatest time, exactly. Writers may cut statistics to milliseconds (protocol, "Per-file Statistics").

    A bound that was cut leaves rows above it unread until a later one comes; one that was rounded up loses rows that
    come later below it. So the footers are read of files whose bound looks cut and may be the greatest.
    """
    cut = [i for i, high in highs if high.microsecond % 1000 == 0 and uncut(high) > upper]
    if not cut:
        return upper
    if len(cut) > _FEW_FILES:
        return UNRESOLVED
    bounds = column_bounds(handle.location, [handle.live_files[i].path for i in cut], column)
    if bounds is None or (bounds.type_name is not None and bounds.type_name != name) or bounds.upper is None:
        return UNRESOLVED
    exact = [high for i, high in highs if i not in set(cut)]
    greatest: datetime = max([bounds.upper, *exact])
    return greatest
