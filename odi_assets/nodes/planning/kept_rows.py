"""How far the tables of kept rows of a stream node go: which batches they have, and which they lack. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.stream_marks import StreamMarks, stream_stamps
from odi_assets.nodes.stream_facts import BatchSpan, StreamFacts
from odi_assets.state.delta.batches import BatchRecord
from odi_assets.state.delta.system_columns import Columns
from odi_assets.state.delta.table import sql

LATE, UNMATCHED = "late_rows", "unmatched_rows"
_PREFIX = "odi_assets.kept:"
_BATCHES = Columns({"batch": "long", "query": "string"})


def kept_app_id(node: str, which: str) -> str:
    """The fence of a table of kept rows; ``which`` is its key in the project file."""
    return f"{_PREFIX}{node}:{which}"


def kept_tables(node: Node) -> dict[str, Location]:
    """The tables of kept rows that a stream node has, by their keys in the project file."""
    settings = node.config.stream
    paths = {} if settings is None else {LATE: settings.late_rows, UNMATCHED: settings.unmatched_rows}
    return {which: node.project.location(node.config.write.connection, path) for which, path in paths.items() if path}


def last_kept(table: TableHandle, fence: str) -> StreamFacts | None:
    """What the last commit of kept rows says of its batch; None if the log holds none."""
    if not table.transaction_number(fence):
        return None
    return next((facts for _, facts in stream_stamps(table, fence)), None)


@dataclass(frozen=True)
class KeptMark:
    """How far a table of kept rows goes.

    Attributes:
        which: ``late_rows`` or ``unmatched_rows``.
        query: the query of the checkpoint that goes on; None before its first batch.
        upto: the last batch of the query whose rows are kept; -1 if there is none.
        gaps: batches before that whose rows were not kept, and are not known any more.
        missing: batches since that may have given up rows, and are committed.
    """

    which: str
    query: str | None
    upto: int = -1
    gaps: tuple[BatchSpan, ...] = ()
    missing: tuple[int, ...] = ()

    @property
    def is_behind(self) -> bool:
        """Whether a run would look for rows of batches that are committed. Late rows are kept before their batch is."""
        return self.which == UNMATCHED and bool(self.missing)

    @property
    def lost(self) -> tuple[BatchSpan, ...]:
        """Batches whose rows are in the table no more: what was late in a batch is known while the batch runs."""
        return spans_of([*numbers(self.gaps), *(self.missing if self.which == LATE else ())])

    def __str__(self) -> str:
        """What a run would do, in words."""
        return f"{self.which} of {batches_text(spans_of(self.missing))}"


def kept_marks(node: Node, target: TableHandle, marks: StreamMarks) -> tuple[KeptMark, ...]:
    """How far the tables of kept rows of a stream node go.

    Raises:
        StateError, TableError: ``meta_batches`` or a table cannot be read.
    """
    query, committed = marks.log.query(), marks.log.committed()
    return tuple(
        kept_mark(node, target, which, query, committed[-1] if committed else -1) for which in kept_tables(node)
    )


def kept_mark(node: Node, target: TableHandle, which: str, query: str | None, last: int) -> KeptMark:
    """How far one of them goes.

    Args:
        last: the last batch of ``query`` that Spark has committed; -1 if there is none.
    """
    upto, gaps = _kept(TableHandle.open(kept_tables(node)[which]), kept_app_id(str(node), which), query)
    if query is None or upto >= last:
        return KeptMark(which, query, upto, gaps)
    records = node.project.open_batches().of_node(str(node), query, upto + 1)
    given_up = {record.batch: _given_up(which, record) for record in records}
    if which == LATE:
        given_up |= _dropped(node, target, query, upto)
    missing = [number for number in range(upto + 1, last + 1) if given_up.get(number) != 0]
    return KeptMark(which, query, upto, gaps, tuple(missing))


def _kept(table: TableHandle, fence: str, query: str | None) -> tuple[int, tuple[BatchSpan, ...]]:
    facts = last_kept(table, fence)
    if facts is not None:
        return (facts.batch, facts.gaps) if facts.query == query else (-1, ())
    if query is None or not table.transaction_number(fence):
        return -1, ()
    # The table's log is cleaned up to after its last commit of ours.
    with table.reads("reading kept rows"):
        rows = _BATCHES.lists(table.table.scan(columns=list(_BATCHES.kinds), predicate=f"query = {sql(query)}"))
    return max(rows["batch"], default=-1), ()


def _given_up(which: str, record: BatchRecord) -> int | None:
    return record.rows_dropped if which == LATE else record.rows_removed


def _dropped(node: Node, target: TableHandle, query: str, upto: int) -> Mapping[int, int | None]:
    """By batch, the rows that came too late, as the commits after ``upto`` say it."""
    found: dict[int, int | None] = {}
    for _, facts in stream_stamps(target, app_id(node.key)):
        if facts is None or facts.query != query or facts.batch <= upto:
            break
        # A rewind has undone batches of higher numbers that are older.
        if not found or facts.batch < min(found):
            found[facts.batch] = None if facts.rows_dropped is None else sum(facts.rows_dropped)
    return found


def numbers(spans: Iterable[BatchSpan]) -> list[int]:
    """The batches of some spans."""
    return [number for first, last in spans for number in range(first, last + 1)]


def spans_of(batches: Iterable[int]) -> tuple[BatchSpan, ...]:
    """Batches as spans, in order."""
    found: list[BatchSpan] = []
    for number in sorted(set(batches)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def batches_text(spans: Iterable[BatchSpan]) -> str:
    """Spans of batches in words: ``batch 3``, ``batches 4 to 5 and 7``."""
    known = list(spans)
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in known]
    listed = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    return f"batch {listed}" if len(numbers(known)) == 1 else f"batches {listed}"
