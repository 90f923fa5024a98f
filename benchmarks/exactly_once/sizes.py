"""How much is measured. The bars speak of :data:`SIZES`; smaller ones only show that every measure works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Rows, files and rounds.

    Attributes:
        rows: of an append, and of the table that an upsert goes into.
        changed: rows of the upsert, of which two thirds replace a row and the others are new.
        more: how many times ``rows`` the driver's memory is measured at as well.
        increment: rows of a small increment; a day of the growing tables has as many.
        small_days, large_days: days of the two tables that take the same increments.
        files: of the source that an increment is planned over; ``new_files`` of them came after the HWM.
        commits, rows_of_commit: how far a late reader is behind; it is measured ``late_rounds`` times.
        rounds: of a measure that takes seconds; ``quick_rounds`` of one that takes less.
        warm: rounds of each contender that do not count; it takes Java some to compile what is measured.
    """

    rows: int = 1_500_000
    changed: int = 150_000
    more: int = 10
    increment: int = 10_000
    small_days: int = 10
    large_days: int = 1_000
    files: int = 10_000
    new_files: int = 100
    commits: int = 1_000
    rows_of_commit: int = 1_000
    late_rounds: int = 5
    rounds: int = 11
    warm: int = 3
    quick_rounds: int = 11


SIZES = Sizes()
SMALL = Sizes(
    rows=3_000,
    changed=300,
    more=2,
    increment=100,
    small_days=3,
    large_days=6,
    files=20,
    new_files=4,
    commits=5,
    rows_of_commit=20,
    late_rounds=1,
    rounds=1,
    warm=1,
    quick_rounds=1,
)
