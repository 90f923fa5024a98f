"""Prints answers about keys: the verdict in words, and below it each place, change, row or side that it is about."""

from __future__ import annotations

from collections.abc import Sequence

from odi_assets.cli.terminal.output import Column, data, data_json, data_table, moment, short_id, short_value
from odi_assets.explain.verdicts import KeyExplanation, LoggedKeyChange


def _number(number: int | None) -> str | None:
    # Unlike a count, the number of a batch or a version has no comma.
    return None if number is None else str(number)


def _key_text(change: LoggedKeyChange) -> str:
    after = ", ".join(change.key)
    return after if change.former is None else f"{', '.join(change.former)} → {after}"


def _changed_text(change: LoggedKeyChange) -> str:
    return ", ".join(
        f"{name}: {short_value(before)} → {short_value(after)}" for name, (before, after) in change.changed.items()
    )


_PLACES = (
    Column("  where", lambda place: f"  {place.name}"),
    Column("verdict", lambda place: place.verdict),
    Column("rows", lambda place: place.rows, "right"),
    Column("version", lambda place: _number(place.version), "right"),
    Column("run", lambda place: short_id(place.run_id)),
    Column("files", lambda place: ", ".join(place.files), wrap=True),
)
_CHANGES = (
    Column("  n", lambda change: f"  {change.n}", "right"),
    Column("LSN", lambda change: change.lsn),
    Column("transaction", lambda change: _number(change.xid), "right"),
    Column("committed (UTC)", lambda change: change.committed_at and moment(change.committed_at)),
    Column("change", lambda change: change.op),
    Column("key", _key_text, wrap=True),
    Column("changed", _changed_text, wrap=True),
    Column("applied by", lambda change: ", ".join(change.applied_by) or "none yet", wrap=True),
)
_ROWS = (
    Column("  input", lambda row: f"  {row.input}"),
    Column("fate", lambda row: row.fate),
    Column("event time (UTC)", lambda row: row.time and moment(row.time)),
    Column("read in batch", lambda row: _number(row.read_in), "right"),
    Column("fate in batch", lambda row: _number(row.batch), "right"),
    Column("watermark", lambda row: row.watermark and moment(row.watermark)),
    Column("file", lambda row: row.file, wrap=True),
)
_SIDES = (
    Column("  side", lambda side: f"  {side.side}"),
    Column("fate", lambda side: side.fate),
    Column("stored in batch", lambda side: ", ".join(map(str, side.arrived_in))),
    Column("purged in batch", lambda side: ", ".join(map(str, side.purged_in))),
    Column("matched", lambda side: {True: "yes", False: "no", None: None}[side.matched]),
    Column("rows in the state", lambda side: len(side.rows), "right"),
)


def show(answers: Sequence[KeyExplanation], as_json: bool) -> None:
    """Print answers, as text or as JSON."""
    if as_json:
        data_json([answer.to_json() for answer in answers])
        return
    for number, answer in enumerate(answers):
        if number:
            data("")
        data(f"{answer.shown_key}: {answer.verdict}")
        data(f"  {answer.sentence}")
        for text in answer.lost:
            data(f"  Evidence that is gone: {text}")
        for text in answer.disagreements:
            data(f"  This does not agree: {text}")
        sides = (answer.state.left, answer.state.right) if answer.state else ()
        for columns, entries in (
            (_PLACES, answer.places),
            (_CHANGES, answer.changes),
            (_ROWS, answer.rows),
            (_SIDES, sides),
        ):
            if entries:
                data("")
                data_table(columns, entries)
