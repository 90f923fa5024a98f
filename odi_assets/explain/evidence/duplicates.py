"""Which rows a deduplication keeps: the first of those that are the same, in the order of the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odi_assets.explain.evidence.evidence import Booleans, EvidenceRows, Integers


@dataclass(frozen=True)
class Duplicates:
    """An entry a row.

    Attributes:
        of: the place of the row that was kept instead; -1 of a row that was kept, or that did not come there.
        unsure: it is not known whether the row was kept.
    """

    of: Integers
    unsure: Booleans


def find_duplicates(
    rows: EvidenceRows,
    identity: NDArray[Any],
    came: Booleans,
    may_have_come: Booleans,
    removed: tuple[Integers, Integers] | None,
) -> Duplicates:
    """Decide the rows that came to a deduplication.

    Args:
        came: which rows did.
        may_have_come: of which rows that is not known.
        removed: the batches between which a row leaves the state and no longer counts; None if it counts for ever.
    """
    of, unsure = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=bool)
    kept: dict[str, int] = {}
    places = np.flatnonzero(came | may_have_come)
    for place in sorted(places, key=lambda p: (int(rows.last[p]), str(rows.file[p]), int(p))):
        earlier = kept.get(identity[place])
        if earlier is None or (removed is not None and removed[1][earlier] < rows.first[place]):
            kept[identity[place]] = int(place)
            continue
        of[place] = earlier
        forgotten = removed is not None and bool(removed[0][earlier] < rows.last[place])
        unsure[place] = forgotten or bool(may_have_come[earlier])
    return Duplicates(of, unsure)


def one_of(rows: EvidenceRows, duplicates: Duplicates) -> Booleans:
    """Rows of which one was kept, and it is not known which: they came in one batch, are the same to the deduplication
    and different to what follows."""
    found = np.zeros(len(rows), dtype=bool)
    for place in np.flatnonzero(duplicates.of >= 0):
        first = int(duplicates.of[place])
        together = rows.first[place] <= rows.last[first] and rows.first[first] <= rows.last[place]
        if together and _matters(rows, int(place)) != _matters(rows, first):
            found[place] = found[first] = True
    return found


def _matters(rows: EvidenceRows, place: int) -> tuple[Any, ...]:
    return rows.key[place], rows.time_us[place], rows.late_us[place], rows.failed[place]
