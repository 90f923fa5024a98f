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
    kept_by_identity: dict[str, int] = {}
    indexes = np.flatnonzero(came | may_have_come)
    for index in sorted(indexes, key=lambda p: (int(rows.last[p]), str(rows.file[p]), int(p))):
        earlier = kept_by_identity.get(identity[index])
        if earlier is None or (removed is not None and removed[1][earlier] < rows.first[index]):
            kept_by_identity[identity[index]] = int(index)
            continue
        of[index] = earlier
        forgotten = removed is not None and bool(removed[0][earlier] < rows.last[index])
        unsure[index] = forgotten or bool(may_have_come[earlier])
    return Duplicates(of, unsure)


def one_of(rows: EvidenceRows, duplicates: Duplicates) -> Booleans:
    """Rows of which one was kept, and it is not known which: they came in one batch, are the same to the deduplication
    and different to what follows."""
    undecided = np.zeros(len(rows), dtype=bool)
    for index in np.flatnonzero(duplicates.of >= 0):
        first = int(duplicates.of[index])
        together = rows.first[index] <= rows.last[first] and rows.first[first] <= rows.last[index]
        if together and _matters(rows, int(index)) != _matters(rows, first):
            undecided[index] = undecided[first] = True
    return undecided


def _matters(rows: EvidenceRows, index: int) -> tuple[Any, ...]:
    return rows.key[index], rows.time_us[index], rows.late_us[index], rows.failed[index]
