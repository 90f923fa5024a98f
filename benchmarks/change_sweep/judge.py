"""What is found wrong, and the comparison of a table with its model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.change_sweep.model import table_rows
from benchmarks.change_sweep.world import Row, shown

Kind = Literal["silent", "stopped and written", "needless stop", "no remedy", "dead end"]


@dataclass(frozen=True)
class Violation:
    """Something that must not be.

    Attributes:
        kind: ``silent``: a run said that all is well, and the table is not what it must be. ``stopped and written``: it
            failed, and has changed the table. ``needless stop``: nothing that matters had changed. ``no remedy``: it
            stopped and named no way on. ``dead end``: it named one, and that does not lead to the model.
        missing, surplus: rows that the table lacks, and rows that it has too many.
        what: what was found, in words.
        after: the changes that led there.
    """

    kind: Kind
    what: str
    missing: int = 0
    surplus: int = 0
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def difference(path: Path, wanted: Counter[Row]) -> tuple[Counter[Row], Counter[Row]]:
    """Rows that the table lacks, and rows that it has too many."""
    found = table_rows(path)
    return wanted - found, found - wanted


def compared(kind: Kind, node: str, path: Path, wanted: Counter[Row]) -> Violation | None:
    """Whether a table is what it must be; None if so."""
    missing, surplus = difference(path, wanted)
    if not missing and not surplus:
        return None
    told = [f"{words} {shown(rows)}" for words, rows in (("lacks", missing), ("has too many", surplus)) if rows]
    return Violation(kind, f"{node}: {path.name} {'; '.join(told)}", missing.total(), surplus.total())
