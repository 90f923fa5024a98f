"""A sweep as rows: what was killed, and what was found."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Options, Row
from benchmarks.kill_sweep.scenarios import NAIVE_ORDERS
from benchmarks.kill_sweep.sweep import sweep, sweep_naive
from benchmarks.kill_sweep.tally import Tally

NAIVE_KILLS = 40
"""Kills of each naive writer: that is many more than it needs to be found out."""
_KILLS, _RECOVERIES, _LOSSES, _DUPLICATES = "kills", "runs left alone and looked at", "losses", "duplicates"
_OTHERS, _UNREACHED = "other findings", "points that no kill reached"


def protocol(options: Options) -> list[Row]:
    """Kills of our runs; nothing may be lost, repeated or forgotten."""
    with _folder(options.say) as (folder, keep):
        tally = sweep(options.kills, folder, options.say)
        if not tally.verdict.clean:
            keep()
    _tell_counts(tally, options.say)
    return [
        counted(_KILLS, tally.kills, f">= {options.kills}", tally.kills >= options.kills),
        counted(_RECOVERIES, tally.recoveries, "> 0", tally.recoveries > 0),
        counted(_LOSSES, tally.verdict.losses, "0", not tally.verdict.losses),
        counted(_DUPLICATES, tally.verdict.duplicates, "0", not tally.verdict.duplicates),
        counted(_OTHERS, len(tally.verdict.others), "0", not tally.verdict.others),
        counted(_UNREACHED, len(tally.unreached), "0", not tally.unreached),
    ]


def naive(options: Options) -> list[Row]:
    """Kills of writers without the protocol: a sweep that finds nothing there finds nothing anywhere."""
    rows = []
    for order, what in zip(NAIVE_ORDERS, (_DUPLICATES, _LOSSES), strict=True):
        with _folder(options.say) as (folder, _):
            tally = sweep_naive(order, NAIVE_KILLS, folder, lambda _: None)
        found = tally.verdict.duplicates if what == _DUPLICATES else tally.verdict.losses
        rows.append(counted(f"naive writer, `{order}`, {tally.kills} kills: {what}", found, "> 0", found > 0))
    return rows


def headline(rows: Sequence[Row]) -> str:
    """The result in a line; empty if our runs were not among what was swept."""
    found = {row.name: int(row.ours) for row in rows}
    return f"kills {found[_KILLS]} losses {found[_LOSSES]} duplicates {found[_DUPLICATES]}" if _KILLS in found else ""


def _tell_counts(tally: Tally, say: Callable[[str], None]) -> None:
    say(f"{tally.runs} runs, {tally.kills} of them killed, {tally.recoveries} left alone and looked at")
    for title, counts in (("at", tally.by_point), ("in", tally.by_scenario), ("with", tally.by_state)):
        for name, number in counts.most_common():
            say(f"  {number:5} {title} {name}")
    for name in tally.unreached:
        say(f"      0 at {name}")


def counted(name: str, number: int, bar: str, holds: bool) -> Row:
    """A row that counts something."""
    return Row(name, number, None, "", None, bar, holds)


@contextmanager
def _folder(say: Callable[[str], None]) -> Iterator[tuple[Path, Callable[[], None]]]:
    folder = Path(tempfile.mkdtemp(prefix="odi-kill-sweep-"))
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    try:
        yield folder, keep
    finally:
        if kept:
            say(f"what was found is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
