"""What is run while it is killed: a node of each kind, its source, and what its table must hold in the end."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NamedTuple

Attack = Literal["one run", "two runs", "full refresh", "backfill and increment", "odi run"]


class SourceRow(NamedTuple):
    """A row of a source. ``v`` grows with every row that lands; an ``id`` may come again, with a greater ``v``."""

    id: int
    v: int
    day: date


Rows = Counter[tuple[Any, ...]]
Model = Callable[[Iterable[SourceRow]], Rows]


def every_row(landed: Iterable[SourceRow]) -> Rows:
    """An append: each row of the source, once."""
    return Counter(tuple(row) for row in landed)


def newest_rows(landed: Iterable[SourceRow]) -> Rows:
    """An upsert by id: the newest row of each."""
    newest = {row.id: row for row in sorted(landed, key=lambda row: row.v)}
    return Counter(tuple(row) for row in newest.values())


def sums_by_day(landed: Iterable[SourceRow]) -> Rows:
    """A partition_overwrite: number and sum of each day's rows."""
    days: dict[date, list[int]] = {}
    for row in landed:
        days.setdefault(row.day, []).append(row.v)
    return Counter((day, len(values), sum(values)) for day, values in days.items())


def good_rows(landed: Iterable[SourceRow]) -> Rows:
    """An append with a check: the rows that pass it."""
    return Counter(tuple(row) for row in landed if row.v % 3)


def bad_rows(landed: Iterable[SourceRow]) -> Rows:
    """The quarantine beside it: the rows that do not."""
    return Counter(tuple(row) for row in landed if not row.v % 3)


def bad_twice(landed: Iterable[SourceRow]) -> Rows:
    """The same, of a transform that gives these rows twice."""
    rows = bad_rows(landed)
    return rows + rows


_FILES = """\
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, v BIGINT, day DATE",
           options: {header: "true"}, incremental: {mode: files}}
"""
_TABLE = """\
    read: {connection: landing, format: delta, path: source, incremental: {%s}}
"""
_APPEND = "    write: {connection: lake, path: target, mode: append}\n"
_UPSERT = "    write: {connection: lake, path: target, mode: upsert, keys: [id], only_if_newer: v}\n"
_CHECKED = (
    _APPEND
    + """\
    checks: [{unique: v}, {expression: "v % 3 <> 0", name: no_third}]
    quarantine: target_bad
"""
)


def _checked(checks: str, twice: str = "") -> str:
    """A node with a check of some kind, which fails for each third row, and with others, which no row fails.

    Args:
        twice: a condition of rows that its transform gives twice.
    """
    sql = "SELECT *, v % 3 AS third, nullif(v % 3, 0) AS rest FROM df"
    again = f" UNION ALL {sql} WHERE {twice}" if twice else ""
    return f"""\
    transform: {{sql: "{sql}{again}"}}
{_APPEND}\
    checks:
{textwrap.indent(checks, "    ")}
    - row_count: {{min: 1}}
    - freshness: {{column: day, within: 36500d}}
    - sql: "SELECT v FROM df GROUP BY v HAVING count(*) > 2"
    quarantine: target_bad
"""


_CHECKS = {
    "not_null": "- not_null: rest",
    "accepted_values": "- accepted_values: {column: third, values: [1, 2]}",
    "range": "- range: {column: third, min: 1}",
    "references": "- references: {column: third, node: known}",
    "warnings": """\
- {expression: "v % 3 <> 0", name: no_third}
- {not_null: v, severity: warn}
- {range: {column: v, max: 0}, severity: warn}
- {unique: third, severity: warn}
- {references: {column: v, node: known, key: third}, severity: warn}
- {row_count: {max: 0}, severity: warn, name: none}""",
}
"""By kind of a check, or what is of interest: checks that one row in three fails so that it goes to the quarantine."""
_WARNED = _checked("- {unique: third, severity: warn}\n- {not_null: rest, severity: warn}").replace(
    "    quarantine: target_bad\n", ""
)
_BY_DAY = """\
    transform: {sql: "SELECT day, count(*) AS n, sum(v) AS total FROM df GROUP BY day"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: target, mode: partition_overwrite}
"""


@dataclass(frozen=True)
class Scenario:
    """A node under attack.

    Attributes:
        node: its read, transform and write in the project file.
        source: whether its source is a folder of files or a Delta table.
        model: what its table must hold, of all rows that landed.
        attack: how it is run when it is killed.
        ids_again: whether rows of ids that landed before land again.
        kills: how many kills a project lives through.
        bad: what its quarantine must hold; None if it has none.
        known: whether there is a table of the values that ``third`` may have, of the node ``known``.
    """

    name: str
    node: str
    source: Literal["files", "table"]
    model: Model
    attack: Attack = "one run"
    ids_again: bool = False
    kills: int = 8
    bad: Model | None = None
    known: bool = False

    @property
    def has(self) -> set[str]:
        """What points may need that a run of this scenario has."""
        found = {"", "ledger"} if self.source == "files" else {""}
        found |= {"quarantine"} if self.bad is not None else set()
        return found | {"upsert"} if self.ids_again else found


_BY_VERSION = _TABLE % "mode: version"

SCENARIOS = (
    Scenario("append", _FILES + _APPEND, "files", every_row),
    Scenario("first run", _FILES + _APPEND, "files", every_row, kills=1),
    Scenario("upsert", _FILES + _UPSERT, "files", newest_rows, ids_again=True),
    Scenario("partition_overwrite", _BY_VERSION + _BY_DAY, "table", sums_by_day),
    Scenario("version increments", _BY_VERSION + _APPEND, "table", every_row),
    Scenario("stateful increments", _TABLE % "mode: stateful, column: v" + _APPEND, "table", every_row),
    Scenario("full refresh", _FILES + _APPEND, "files", every_row, "full refresh"),
    Scenario("backfill beside increment", _BY_VERSION + _BY_DAY, "table", sums_by_day, "backfill and increment"),
    Scenario("two runs", _FILES + _APPEND, "files", every_row, "two runs"),
    Scenario("two runs, upsert", _FILES + _UPSERT, "files", newest_rows, "two runs", ids_again=True),
    Scenario("quarantine", _FILES + _CHECKED, "files", good_rows, bad=bad_rows),
    Scenario("two runs, quarantine", _FILES + _CHECKED, "files", good_rows, "two runs", bad=bad_rows),
    Scenario("full refresh, quarantine", _FILES + _CHECKED, "files", good_rows, "full refresh", bad=bad_rows),
    *(
        Scenario(
            f"quarantine, {kind}", _FILES + _checked(checks), "files", good_rows, kills=4, bad=bad_rows, known=True
        )
        for kind, checks in _CHECKS.items()
    ),
    Scenario(
        "quarantine, unique", _FILES + _checked("- unique: v", "v % 3 = 0"), "files", good_rows, kills=4, bad=bad_twice
    ),
    Scenario("warnings alone", _FILES + _WARNED, "files", every_row, kills=4),
)
WHOLE = Scenario("odi run, JVM and all", _FILES + _APPEND, "files", every_row, "odi run", kills=4)
"""Kills of the process group of an ``odi run``: far slower, and nothing is left out."""

NAIVE_ORDERS = ("write, then set the HWM", "set the HWM, then write")
NAIVE = Scenario("naive writer", _FILES + _APPEND, "files", every_row)
