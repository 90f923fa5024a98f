"""Rows that lie in a source, and what a node makes of them by its settings: computed here, without our code.

A fact passes through every transform with its number, so a table shows which facts it holds, and how often.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

FIRST_YEAR = 2024
TIME = "%Y-%m-%d %H:%M:%S"
SWAPPED = "yyyy-dd-MM HH:mm:ss"
_TIMES = {None: TIME, "yyyy-MM-dd HH:mm:ss": TIME, SWAPPED: "%Y-%d-%m %H:%M:%S"}
_DAYS = {"eu": "%d/%m/%Y", "us": "%m/%d/%Y"}

KEYS: Mapping[str, str] = {
    "id": "{id}",
    "id + 0": "{id}",
    "CAST(id AS BIGINT)": "{id}",
    "id + 1000": "x{id}",
    "id * 2": "y{id}",
    "seq": "s{seq}",
}
"""Expressions that a transform makes the key `k` of, and what tells their values apart."""


@dataclass(frozen=True)
class Fact:
    """A row of the source.

    Attributes:
        seq: grows with each row, but for those that are tied.
        place: counts the days of the row's time, all of them below the 13th of a month.
    """

    uid: int
    id: int
    seq: int
    place: int
    v: str
    x: str = "x"

    @property
    def at(self) -> datetime:
        month, part = divmod(self.place, 4)
        year, month = divmod(month, 12)
        return datetime(FIRST_YEAR + year, month + 1, (2, 5, 8, 11)[part])

    def values(self) -> dict[str, Any]:
        """As the source holds it."""
        return {
            **{"uid": self.uid, "id": self.id, "seq": self.seq, "at": self.at.strftime(TIME)},
            **{"day": self.at.strftime(_DAYS["eu"]), "v": self.v, "x": self.x},
        }


def options_of(node: Mapping[str, Any]) -> dict[str, str]:
    """The reader options of a node that reads text files; nothing else looks at them."""
    read = node.get("read") or {}
    return dict(read.get("options") or {}) if read.get("format") in ("csv", "json") else {}


def cursor_of(fact: Fact, node: Mapping[str, Any]) -> Any:
    """The cursor of a fact as the node reads it; None if it has none."""
    increment, options = increment_of(node), options_of(node)
    value = fact.values()[column] if (column := increment["column"]) in fact.values() else None
    if (node.get("read") or {}).get("format") == "csv" and str(value) == options.get("nullValue"):
        return None
    if declared_type(node, column) == "STRING" and not increment.get("date_format"):
        return str(value)
    try:
        if column == "at":
            swapped = options.get("timestampFormat")
            return datetime.strptime(str(value), _TIMES[swapped])
        if column == "day" and increment.get("date_format"):
            return datetime.strptime(str(value), _DAYS[increment["date_format"]])
    except (ValueError, KeyError):
        return None
    return value


def declared_type(node: Mapping[str, Any], column: str) -> str | None:
    """The type of a column in the node's schema, whole numbers as one; None if it names none."""
    columns = (one.partition(" ") for one in (node.get("read") or {}).get("schema", "").split(", "))
    found = next((kind for name, _, kind in columns if name == column), None)
    return "BIGINT" if found == "INT" else found


def increment_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """The increment of the node's only source, in its long form; empty if it reads all of it."""
    source = node["read"] if "read" in node else next(iter(node["inputs"].values()))
    given = source.get("incremental")
    return {"mode": given} if isinstance(given, str) else dict(given or {})


def key_of(fact: Fact, node: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells the row of a fact from others, by the node's keys."""
    expression = (node.get("transform") or {}).get("key", "id")
    # An expression that gives another value each time may be no key: it gets one value for all rows.
    told = {"k": KEYS.get(expression, "").format(id=fact.id, seq=fact.seq)}
    told |= {name: str(value) for name, value in fact.values().items()}
    return tuple(told.get(name, "") for name in sorted(node["write"].get("keys") or ()))


def wanted_of(
    facts: list[Fact],
    loaded: set[int],
    node: Mapping[str, Any],
    offered: Set[int] = frozenset(),
    before: Mapping[str, Any] | None = None,
) -> set[int]:
    """The facts that the next run of a node has to load, of those that are not loaded: above all that are.

    A row that was ``offered`` to a run, and whose key is there now, was read: another row of its key is stored.

    Args:
        before: the node as it was when rows were offered; None: as it is.
    """
    increment = increment_of(node)
    fresh = [fact for fact in facts if fact.uid not in loaded]
    if increment.get("mode") != "stateful":
        # An append after upserts does not load again what a newer row of its key replaced.
        newest = max(loaded, default=0) if increment and node["write"]["mode"] == "append" else 0
        return {fact.uid for fact in fresh if fact.uid > newest}
    read = set(loaded)
    for offered_to in (node, before or node):
        if offered_to["write"]["mode"] in ("upsert", "append_once"):
            keys = {key_of(fact, offered_to) for fact in facts if fact.uid in loaded}
            read |= {fact.uid for fact in facts if fact.uid in offered and key_of(fact, offered_to) in keys}
    marks = [found for fact in facts if fact.uid in read and (found := cursor_of(fact, node)) is not None]
    highest = max(marks, default=None)
    # Where the first run begins says nothing to the runs after it.
    start = increment.get("initial_value") if highest is None else None
    found = set()
    for fact in fresh:
        value = cursor_of(fact, node)
        if value is None or (start is not None and _before(value, start)):
            continue
        if highest is None or value > highest or (value == highest and increment.get("boundary") == "closed"):
            found.add(fact.uid)
    return found


def is_below_start(fact: Fact, node: Mapping[str, Any]) -> bool:
    """Whether a row lies below the value from which its node reads."""
    start = increment_of(node).get("initial_value")
    value = None if start is None else cursor_of(fact, node)
    return value is not None and _before(value, start)


def _before(value: Any, start: Any) -> bool:
    if isinstance(value, datetime):
        return value < datetime.fromisoformat(str(start))
    return bool(value < type(value)(start))
