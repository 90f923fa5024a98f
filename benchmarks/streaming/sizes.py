"""How much is measured. The bars speak of :data:`SIZES`; smaller ones only show that every measure works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Rows, keys and rounds.

    Attributes:
        rows: of a run of the sink.
        rounds: of such runs; ``warm`` of them do not count.
        increment: rows of a small batch, of which one query takes ``batches``; the first ``warm_batches`` do not count.
        keys: in the state of the stores that are compared, and ``changed`` of them in the batch that is measured.
    """

    rows: int = 1_000_000
    rounds: int = 15
    warm: int = 4
    increment: int = 10_000
    batches: int = 30
    warm_batches: int = 10
    keys: int = 1_000_000
    changed: int = 10_000


SIZES = Sizes()
SMALL = Sizes(rows=1_000, rounds=1, warm=0, increment=100, batches=2, warm_batches=1, keys=500, changed=50)
