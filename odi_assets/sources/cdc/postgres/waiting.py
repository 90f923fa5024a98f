"""Waits until transactions of others have ended, or until the log of a PostgreSQL server is as far as it has to be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from odi_assets.errors import SourceError

Part = TypeVar("Part")
_PATIENCE = 60.0
"""Seconds to wait for transactions of others to end, or for the log to reach the disk."""
_MOMENT = 5.0
"""Seconds to wait for a session that reads the slot: looks of sensors and the end of a run are short."""
TAKEN_FIX = "give each reader a slot of its own (`log.slot`); a run that has just ended lets it go at once"
_OPEN_FIX = (
    "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start shows what goes on; "
    "the next run tries again"
)
_WRITING = (
    "SELECT DISTINCT l.transactionid::text::bigint, p.gid FROM pg_locks l "
    "LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
    "LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid "
    "WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted "
    "AND l.pid IS DISTINCT FROM pg_backend_pid() "
    "AND COALESCE(a.datname, p.database, current_database()) = current_database()"
)
"""The transactions of a database that have written something, by number, with the names of prepared ones. A snapshot
would not do: transactions that began after the last one that ended are beyond it."""


def wait(label: str, reached: Callable[[], bool], otherwise: str) -> None:
    """Wait until something is so; raises SourceError that says ``otherwise`` if it takes too long."""
    if not reaches(reached):
        raise SourceError(f"{label}: {otherwise}, for {_PATIENCE:.0f} seconds now", fix=_OPEN_FIX, label=label)


def await_others(label: str, ask: Callable[[str], Sequence[tuple[Any, ...]]]) -> None:
    """Wait until all transactions of a database that have written something by now have ended, prepared ones too.

    Args:
        ask: runs a query in a session that has no transaction open.

    Raises:
        SourceError: one of them goes on for too long.
    """
    before = dict(ask(_WRITING))
    left = set(before)

    def ended() -> bool:
        left.intersection_update(number for number, _ in ask(_WRITING))
        return not left

    if not left or reaches(ended):
        return
    prepared = sorted(name for number in left if (name := before[number]) is not None)
    which = f"the transaction prepared as {prepared[0]!r}" if prepared else "a transaction that began before"
    raise SourceError(
        f"{label}: {which} goes on, for {_PATIENCE:.0f} seconds now, and what it changed in a table that joins may be "
        "neither in the log nor in a snapshot",
        fix=_prepared_fix(prepared[0]) if prepared else _OPEN_FIX,
        label=label,
    )


def _prepared_fix(name: str) -> str:
    """What ends a prepared transaction, for messages."""
    quoted = "'" + name.replace("'", "''") + "'"
    return (
        f"COMMIT PREPARED {quoted} or ROLLBACK PREPARED {quoted} ends it, SELECT * FROM pg_prepared_xacts shows all; "
        "the next run tries again"
    )


class SlotTakenError(SourceError):
    """Another session reads the slot, and a slot has one reader."""


def is_let_go(is_free: Callable[[], bool]) -> bool:
    """Whether the session that reads a slot lets it go; it is waited for a moment."""
    return reaches(is_free, _MOMENT)


def when_free(begin: Callable[[], Iterator[Part]]) -> Iterator[Part]:
    """What ``begin`` gives, which needs the slot from its first part on; it is begun again for a moment.

    Raises:
        SlotTakenError: another session keeps on reading the slot.
    """
    deadline = time.monotonic() + _MOMENT
    while True:
        parts = begin()
        try:
            first = next(parts, None)
            break
        except SlotTakenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    if first is not None:
        yield first
        yield from parts


def reaches(reached: Callable[[], bool], seconds: float | None = None) -> bool:
    """Whether something is so at last; it is waited for that long, or as long as for transactions of others."""
    deadline = time.monotonic() + (_PATIENCE if seconds is None else seconds)
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
