"""Rows of ``meta_state`` as revisions: ours as we wrote them, and what another tool wrote over or beside them.

Odibi's ``set_hwm`` is a MERGE that rewrites ``value``, ``environment`` and ``updated_at`` of every row of the key and
leaves our columns as they are. So each row of ours says twice when it was written: one whose ``updated_at`` is no
longer its ``written_at`` was written over, whatever its type, its tombstone and its revision still say. A row without a
revision is another tool's from the start. Both count as a revision of their own, untyped, after the one they follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from odi_assets.state import values
from odi_assets.state.records import HwmEntry

_NEVER = datetime.min.replace(tzinfo=UTC)


def revisions(rows: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
    """The revisions that the rows of one key tell, newest first.

    Rows that one MERGE wrote over are one revision: what they held before is gone.
    """
    numbered = sorted((row for row in rows if row["revision"] is not None), key=_by_revision, reverse=True)
    ours: list[HwmEntry] = []
    merges: set[datetime] = set()
    for row in numbered:
        if not _written_over(row):
            ours.append(_own(row))
        elif _written(row) not in merges:
            merges.add(_written(row))
            ours.append(_foreign(row, row["revision"] + 1))
    return _with_unnumbered(ours, [row for row in rows if row["revision"] is None and _written(row) not in merges])


def newest(rows: Sequence[Mapping[str, Any]]) -> HwmEntry | None:
    """The newest revision that the rows of one key tell; None if there are no rows."""
    if len(rows) == 1 and rows[0]["revision"] is not None and not _written_over(rows[0]):
        return _own(rows[0])
    found = revisions(rows)
    return found[0] if found else None


def newest_of_each(columns: Mapping[str, Sequence[Any]]) -> dict[str, HwmEntry]:
    """The newest revision that the rows of each key tell; all rows of the keys, column by column."""
    keys = columns["key"]
    if len(set(keys)) == len(keys) and not _any_foreign(columns):
        own = {**columns, "value": _decoded(columns), "deleted": [bool(deleted) for deleted in columns["deleted"]]}
        entries = map(HwmEntry._make, zip(*(own[name] for name in HwmEntry._fields), strict=True))
        return dict(zip(keys, entries, strict=True))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows.sort(key=itemgetter("key"))
    return {key: revisions(list(same))[0] for key, same in groupby(rows, itemgetter("key"))}


def row_of(entry: HwmEntry, value: str) -> dict[str, Any]:
    """The row of a revision of ours; ``value`` is its JSON."""
    return {**entry._asdict(), "value": None if entry.deleted else value, "written_at": entry.updated_at}


def columns_of(entries: Sequence[HwmEntry], texts: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The rows of revisions of ours, at least one, column by column; ``texts`` are the JSON of their values."""
    columns: dict[str, Sequence[Any]] = dict(zip(HwmEntry._fields, zip(*entries, strict=True), strict=True))
    stored = [None if deleted else text for deleted, text in zip(columns["deleted"], texts, strict=True)]
    return {**columns, "value": stored, "written_at": columns["updated_at"]}


def _any_foreign(columns: Mapping[str, Sequence[Any]]) -> bool:
    if None in columns["revision"] or None in columns["updated_at"]:
        return True
    pairs = zip(columns["written_at"], columns["updated_at"], strict=True)
    return any(written is not None and written != updated for written, updated in pairs)


def _decoded(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    parts = zip(columns["value"], columns["value_type"], columns["deleted"], strict=True)
    return [None if deleted else values.decode(text, kind) for text, kind, deleted in parts]


def _with_unnumbered(ours: list[HwmEntry], unnumbered: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
    """Rows without a revision have nothing but their time to say where they belong, and fill the numbers left there."""
    waiting = sorted(unnumbered, key=_written)
    newer = [row for row in waiting if not ours or _written(row) > ours[0].updated_at]
    first = ours[0].revision + 1 if ours else 0
    found = [_foreign(row, first + place) for place, row in enumerate(newer)][::-1]
    del waiting[len(waiting) - len(newer) :]
    for entry, before in zip_longest(ours, ours[1:]):
        found.append(entry)
        number = entry.revision
        while waiting and (before is None or _written(waiting[-1]) > before.updated_at):
            number -= 1
            taken = before is not None and number <= before.revision
            found.append(_foreign(waiting.pop(), 0 if taken else max(number, 0)))
    return found


def _by_revision(row: Mapping[str, Any]) -> tuple[int, datetime]:
    return row["revision"], _written(row)


def _written(row: Mapping[str, Any]) -> datetime:
    return row["updated_at"] or _NEVER


def _written_over(row: Mapping[str, Any]) -> bool:
    return row["written_at"] is not None and row["updated_at"] != row["written_at"]


def _own(row: Mapping[str, Any]) -> HwmEntry:
    deleted = bool(row["deleted"])
    return HwmEntry(
        key=row["key"],
        value=None if deleted else values.decode(row["value"], row["value_type"]),
        environment=row["environment"],
        updated_at=_written(row),
        revision=row["revision"],
        deleted=deleted,
        target_commit=row["target_commit"],
        run_id=row["run_id"],
        value_type=row["value_type"],
    )


def _foreign(row: Mapping[str, Any], revision: int) -> HwmEntry:
    return HwmEntry(
        key=row["key"],
        value=values.decode(row["value"], None),
        environment=row["environment"],
        updated_at=_written(row),
        revision=revision,
    )
