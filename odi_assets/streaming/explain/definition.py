"""What a streaming query does with a row, as far as the fate of the row depends on it. Plain data, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SEPARATOR = "\x1f"
"""Between the parts of a key of several columns, where a key is one text."""


@dataclass(frozen=True)
class Condition:
    """A condition of the query.

    Attributes:
        sql: as Spark can evaluate it, over columns named ``input.column``.
        text: as people read it.
        sides: of a comparison of two times or numbers, the SQL of both; how far they are apart says by how much it
            fails.
        kind: ``time``, ``number``, or empty where ``sides`` is.
        null_of_key: it only says that a part of the key is not NULL.
    """

    sql: str
    text: str
    sides: tuple[str, str] | None = None
    kind: str = ""
    null_of_key: bool = False


@dataclass(frozen=True)
class Input:
    """An input on its way to the stateful operator.

    Attributes:
        view: its name in the node; a stream that is joined with itself has ``_2`` after it the second time.
        source: the input of the node that it is.
        columns: the columns of the source that the definition uses.
        key: SQL of each part of the key: what the join compares, the rows are grouped by, or deduplicated by.
        conditions: what a row must meet to reach the operator.
        late_time: SQL of the time that is compared with the watermark: a row at or below it is dropped. None if no row
            is late.
        state_range_ms: the row leaves the state in the first batch whose watermark is at least its time plus this.
            None if it stays for ever.
        time: SQL of the row's event time, to be shown; None if it has none.
    """

    view: str
    source: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    late_time: str | None = None
    state_range_ms: int | None = None
    time: str | None = None

    @property
    def is_passed(self) -> bool:
        """Whether the watermark has to pass, not only to reach, a row's time plus the range: Spark adds a millisecond
        where a join's condition has ``<=``."""
        return self.state_range_ms is not None and self.state_range_ms % 1000 == 1


@dataclass(frozen=True)
class Definition:
    """The query of a stream node.

    Attributes:
        kind: ``join``, ``aggregation``, ``deduplication`` or ``rows`` (no state).
        inputs: two of a join, else one.
        conditions: of a join, what a pair of rows with one key must meet.
        outer: of a join, the sides whose rows are written without a counterpart when they leave the state.
        key_names: names of the key's parts, for people and for ``column=value``.
        output_key: by part of the key, the column of the node's table that holds it; None where it has none.
        windows: of an aggregation, SQL of the windows that a row belongs to; empty if it is grouped by no window.
        session: the windows are sessions: they grow with the rows in them.
        identity: of a deduplication, SQL of all parts that make two rows the same.
        waits_for_watermark: of an aggregation, a group is written when the watermark has passed it; else at once.
        withheld: conditions that follow the aggregation or deduplication: a group, or a row that was kept, that does
            not meet them is in the state and is not written.
        expires: of a deduplication, a row counts as a duplicate only until the first one leaves the state.
    """

    kind: str
    inputs: tuple[Input, ...]
    conditions: tuple[Condition, ...] = ()
    outer: tuple[str, ...] = ()
    key_names: tuple[str, ...] = ()
    output_key: tuple[str | None, ...] = ()
    windows: tuple[str, ...] = ()
    session: bool = False
    identity: tuple[str, ...] = ()
    waits_for_watermark: bool = False
    withheld: tuple[Condition, ...] = ()
    expires: bool = False

    @property
    def is_join(self) -> bool:
        """Whether two streams are joined."""
        return self.kind == "join"

    def to_json(self) -> dict[str, Any]:
        """As a document, to hand it from one process to another."""
        return {
            **_plain(self),
            "inputs": [{**_plain(one), "conditions": [_plain(c) for c in one.conditions]} for one in self.inputs],
            **{name: [_plain(one) for one in getattr(self, name)] for name in ("conditions", "withheld")},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Definition:
        """The definition in a document of :meth:`to_json`."""
        inputs = tuple(
            Input(**{**_tuples(one), "conditions": tuple(Condition(**_tuples(c)) for c in one["conditions"])})
            for one in stored["inputs"]
        )
        conditions = {
            name: tuple(Condition(**_tuples(one)) for one in stored[name]) for name in ("conditions", "withheld")
        }
        return cls(**{**_tuples(stored), "inputs": inputs, **conditions})


def _plain(one: Any) -> dict[str, Any]:
    return {item.name: getattr(one, item.name) for item in fields(one)}


def _tuples(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
