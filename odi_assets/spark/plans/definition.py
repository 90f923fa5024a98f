"""What a streaming query does with a row, as far as the fate of the row depends on it. Plain data, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

SEPARATOR = "\x1f"
"""Between the parts of a key of several columns, where a key is one text."""

JOINED = ""
"""What an input is read from that is the rows of the join below it."""


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
class Once:
    """A deduplication that an input passes before the operator.

    Attributes:
        identity: SQL of all parts that make two rows the same.
        late_time, state_range_ms: as of an :class:`Input`.
        expires: a row counts as a duplicate only until the first one leaves the state.
        conditions: what a row that was kept must meet to reach the operator.
    """

    identity: tuple[str, ...]
    late_time: str | None = None
    state_range_ms: int | None = None
    expires: bool = False
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Input:
    """An input on its way to the stateful operator.

    Attributes:
        view: its name in the node; a stream that is joined with itself has ``_2`` after it the second time.
        source: the input of the node that it is; :data:`JOINED` if it is what another join gives.
        columns: the columns of the source that the definition uses; ``input.column`` if it is what a join gives.
        key: SQL of each part of the key: what the join compares, the rows are grouped by, or deduplicated by.
        conditions: what a row must meet to reach the operator.
        late_time: SQL of the time that is compared with the watermark: a row at or below it is dropped. None if no row
            is late.
        state_range_ms: the row leaves the state in the first batch whose watermark is at least its time plus this.
            None if it stays for ever.
        time: SQL of the row's event time, to be shown; None if it has none.
        shift_ms: how far the watermark of the operator is behind the watermark of the query: a join holds back the
            watermark of the operators behind it.
        once: a deduplication that the rows pass before.
    """

    view: str
    source: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    late_time: str | None = None
    state_range_ms: int | None = None
    time: str | None = None
    shift_ms: int = 0
    once: Once | None = None

    @property
    def every_condition(self) -> tuple[Condition, ...]:
        """All conditions on the way to the operator, in the order in which a row comes to them."""
        return self.conditions + (self.once.conditions if self.once else ())

    @property
    def passed_by_ms(self) -> int:
        """By how much the watermark has to pass a row's time plus the range: Spark adds a millisecond for each join
        whose condition has ``<=``. 0 where it is enough to reach it."""
        rest = ((self.state_range_ms or 0) + self.shift_ms) % 1000
        return rest if rest < 10 else 0


@dataclass(frozen=True)
class QueryDefinition:
    """The query of a stream node.

    Attributes:
        kind: ``join``, ``aggregation``, ``deduplication`` or ``rows`` (no state).
        inputs: two of a join, any number of ``rows``, else one.
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
        then: of a join, the operator behind it. One of its inputs is read from :data:`JOINED`.
        beyond: in words, what follows and is not followed; empty if all is.
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
    then: QueryDefinition | None = None
    beyond: str = ""

    @property
    def is_join(self) -> bool:
        """Whether two streams are joined."""
        return self.kind == "join"

    @property
    def is_whole(self) -> bool:
        """Whether what this operator gives is what the node writes."""
        return self.then is None and not self.beyond

    @property
    def every_input(self) -> tuple[Input, ...]:
        """The inputs of the node that this and later operators have."""
        own = tuple(query_input for query_input in self.inputs if query_input.source != JOINED)
        return own + (self.then.every_input if self.then else ())

    @property
    def last(self) -> QueryDefinition:
        """The last operator that is followed."""
        return self if self.then is None else self.then.last

    def followed_by(self, then: QueryDefinition) -> QueryDefinition:
        """This query with one more operator behind it."""
        if self.then is not None:
            return replace(self, then=self.then.followed_by(then))
        return replace(self, then=then)

    def not_followed(self, beyond: str) -> QueryDefinition:
        """This query with something behind it that is only described in words."""
        if self.then is not None:
            return replace(self, then=self.then.not_followed(beyond))
        return replace(self, beyond=", ".join(filter(None, (self.beyond, beyond))))

    def to_json(self) -> dict[str, Any]:
        """As a document, to hand it from one process to another."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> QueryDefinition:
        """The definition in a document of :meth:`to_json`."""
        then = stored["then"]
        nested = {
            "inputs": tuple(_input(stored_input) for stored_input in stored["inputs"]),
            "then": None if then is None else cls.from_json(then),
            **{name: _conditions(stored[name]) for name in ("conditions", "withheld")},
        }
        return cls(**{**_tuples(stored), **nested})


def _input(stored: Mapping[str, Any]) -> Input:
    once = stored["once"]
    nested = {
        "conditions": _conditions(stored["conditions"]),
        "once": None if once is None else Once(**{**_tuples(once), "conditions": _conditions(once["conditions"])}),
    }
    return Input(**{**_tuples(stored), **nested})


def _conditions(stored: Sequence[Mapping[str, Any]]) -> tuple[Condition, ...]:
    return tuple(Condition(**_tuples(condition)) for condition in stored)


def _tuples(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
