"""How far the tables of kept rows of a stream node go: which batches they have, and which they lack. Needs no Spark.

A query's id and a batch's number do not identify a batch: a table that was put back from a copy, with its checkpoint,
comes to the same numbers with other rows. What was kept belongs to the history in which its batch was planned at the
same moment. So the commits of a table of kept rows say alone what it has, what it lacks, and which of its versions has
what it lacks: rows that were taken out come back with their batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

from odi_assets.checkpoints.inspect import JOIN
from odi_assets.connections.location import Location
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.maintenance.restore import lost_files, returning
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.result import REWIND
from odi_assets.nodes.stream_facts import BatchSpan, StreamFacts
from odi_assets.state.delta.batches import BatchRecord
from odi_assets.state.delta.system_columns import Columns
from odi_assets.state.delta.table import sql
from odi_assets.streams.planning.marks import StreamMarks, in_effect, settings_of, stream_stamps
from odi_assets.streams.query.progress_log import ProgressLog

LATE, UNMATCHED = "late_rows", "unmatched_rows"
_PREFIX = "odi_assets.kept:"
_BATCHES = Columns({"batch": "long", "query": "string"})


def kept_app_id(node: str, which: str) -> str:
    """The fence of a table of kept rows; ``which`` is its key in the project file."""
    return f"{_PREFIX}{node}:{which}"


def kept_tables(node: Node) -> dict[str, Location]:
    """The tables of kept rows that a stream node has, by their keys in the project file."""
    settings = settings_of(node)
    paths = {LATE: settings.late_rows, UNMATCHED: settings.unmatched_rows}
    return {which: node.project.location(node.config.write.connection, path) for which, path in paths.items() if path}


def last_kept(table: TableHandle, fence: str) -> StreamFacts | None:
    """What the last commit of kept rows says of its batch; None if the log holds none."""
    if not table.transaction_number(fence):
        return None
    return next((facts for _, facts in stream_stamps(table, fence)), None)


@dataclass(frozen=True)
class UndoneRows:
    """Kept rows of batches that the node's table does not have: it was put back, and other batches have their numbers.

    Attributes:
        after: the last batch of the query before them; -1 if there is none.
        batches: those that committed to the table of kept rows.
        queries: other queries whose rows go too: of before a full refresh, and of full refreshes that were undone.
        base: what the commit of ``after`` says; None if there is no such commit.
    """

    after: int
    batches: tuple[BatchSpan, ...]
    queries: tuple[str, ...] = ()
    base: StreamFacts | None = None

    def __str__(self) -> str:
        if not self.batches:
            return "a query whose rows the node's table does not have"
        return f"{batches_text(self.batches)} from before the table was put back"

    def condition(self, query: str) -> str:
        """SQL of the rows that go, of the query that the node's table has."""
        theirs = [f"query = {sql(other_query)}" for other_query in self.queries]
        return " OR ".join([f"(query = {sql(query)} AND batch > {self.after})", *theirs])


@dataclass(frozen=True)
class ReturningRows:
    """Kept rows of batches that the node's table has again: they were taken out when it went back.

    Attributes:
        version: the version of the table of kept rows that has them, and no others.
        facts: what the last commit of kept rows in that version says of its batch.
    """

    version: int
    facts: StreamFacts

    def __str__(self) -> str:
        return f"up to batch {self.facts.batch} from version {self.version}"


@dataclass(frozen=True)
class KeptMark:
    """How far a table of kept rows goes, once ``undone`` rows have left and ``returns`` have come back.

    Attributes:
        which: ``late_rows`` or ``unmatched_rows``.
        query: the query of the checkpoint that goes on; None before its first batch.
        upto: the last batch of the query whose rows are kept; -1 if there is none.
        gaps: batches before that whose rows were not kept, and are not known any more.
        missing: batches since that may have given up rows, and are committed.
        undone: rows of batches that the node's table does not have; None if there are none. A run takes them out.
        returns: rows of batches that it has again; None if there are none. A run puts them back.
    """

    which: str
    query: str | None
    upto: int = -1
    gaps: tuple[BatchSpan, ...] = ()
    missing: tuple[int, ...] = ()
    undone: UndoneRows | None = None
    returns: ReturningRows | None = None

    @property
    def is_behind(self) -> bool:
        """Whether a run would look for rows of batches that are committed. Late rows are kept before their batch is."""
        return self.which == UNMATCHED and bool(self.missing)

    @property
    def has_work(self) -> bool:
        """Whether a run has something to do in the table, even without a batch."""
        return self.is_behind or self.is_apart

    @property
    def is_apart(self) -> bool:
        """Whether rows leave or come back, which takes no Spark."""
        return self.undone is not None or self.returns is not None

    @property
    def work(self) -> tuple[str, ...]:
        """What a run would do in the table, in words."""
        goes = [] if self.undone is None else [f"{self.which} of {self.undone} go"]
        back = [] if self.returns is None else [f"{self.which} {self.returns} come back"]
        comes = [f"{self.which} of {batches_text(spans_of(self.missing))}"] if self.is_behind else []
        return (*goes, *back, *comes)

    @property
    def apart(self) -> tuple[str, ...]:
        """What is not in step with the batches in the node's table, in words."""
        goes = [] if self.undone is None else [f"{self.which} has rows of {self.undone}"]
        back = [] if self.returns is None else [f"{self.which} lacks rows {self.returns}"]
        comes = [f"{text} are not kept yet" for text in self.work[len(goes) + len(back) :]]
        return (*goes, *back, *comes)

    @property
    def lost(self) -> tuple[BatchSpan, ...]:
        """Batches whose rows are in the table no more: what was late in a batch is known while the batch runs."""
        return spans_of([*numbers(self.gaps), *(self.missing if self.which == LATE else ())])


def kept_marks(node: Node, target: TableHandle, marks: StreamMarks) -> tuple[KeptMark, ...]:
    """How far the tables of kept rows of a stream node go.

    Raises:
        StateError, TableError: ``meta_batches`` or a table cannot be read.
    """
    return tuple(kept_mark(node, target, which, marks.log) for which in kept_tables(node))


def kept_mark(node: Node, target: TableHandle, which: str, log: ProgressLog) -> KeptMark:
    """How far one of them goes.

    Args:
        log: of the checkpoint that belongs to ``target``.
    """
    query, last = log.query(), max(log.committed(), default=-1)
    if query is None:
        return KeptMark(which, None)
    mark = mark_in_history(TableHandle.open(kept_tables(node)[which]), str(node), which, log)
    if mark.upto >= last:
        return mark
    planned = {number: log.planned_ms(number) for number in range(mark.upto + 1, last + 1)}
    records = {record.batch: record for record in node.project.open_batches().of_node(str(node), query, mark.upto)}
    given_up = {
        number: _given_up(which, record, records.get(number - 1))
        for number, record in records.items()
        if number in planned and _is_planned(record, planned[number])
    }
    if which == LATE:
        given_up |= _dropped(node, target, query, mark.upto)
    return replace(mark, missing=tuple(number for number in planned if given_up.get(number) != 0))


@dataclass(frozen=True)
class _History:
    """The batches of a query that its checkpoint has planned.

    Attributes:
        last: the number of the newest one.
        planned_ms: when a batch was planned; None if the checkpoint does not hold it any more.
    """

    query: str
    last: int
    planned_ms: Callable[[int], int | None]

    @classmethod
    def of(cls, log: ProgressLog) -> _History:
        return cls(str(log.query()), max(log.planned(), default=-1), cache(log.planned_ms))

    def has(self, facts: StreamFacts) -> bool:
        """Whether a batch is of this history. What nobody knows any more counts as that; batches of another query do
        not: a full refresh replaces the node's table, or was undone."""
        if facts.query != self.query:
            return not facts.planned_ms
        planned = self.planned_ms(facts.batch)
        return facts.batch <= self.last and (planned is None or planned == facts.planned_ms)

    def holds(self, facts: StreamFacts) -> bool:
        """Whether the checkpoint holds this very batch."""
        return facts.query == self.query and self.planned_ms(facts.batch) == facts.planned_ms


def mark_in_history(table: TableHandle, node: str, which: str, log: ProgressLog) -> KeptMark:
    """How far a table of kept rows goes in the history of a checkpoint, by the table's own commits.

    Args:
        table: opened before this is asked: what it has of a batch was planned by then.
    """
    history, fence = _History.of(log), kept_app_id(node, which)
    query = history.query
    if not table.transaction_number(fence):
        return KeptMark(which, query)
    undone: list[StreamFacts] = []
    number = 0
    stamps = stream_stamps(table, fence)
    for stamp, facts in stamps:
        # Without facts, all that was kept before was taken out.
        if facts is None or history.has(facts):
            base = facts if facts is not None and facts.query == query else None
            mark = KeptMark(which, query) if base is None else KeptMark(which, query, base.batch, base.gaps)
            mark = _with_undone(mark, undone, base)
            was_rewound = CommitFacts.of(stamp).mode == REWIND
            return _with_returning(mark, table, history, stamp, stamps) if was_rewound else mark
        undone.append(facts)
        number = stamp.number
    if undone and number == 1:
        return _with_undone(KeptMark(which, query), undone)
    # The rest of the table's log is gone, but its rows are there.
    return _with_undone(KeptMark(which, query, _last_in(table, query, history.last, undone)), undone)


def _with_undone(mark: KeptMark, undone: list[StreamFacts], base: StreamFacts | None = None) -> KeptMark:
    if not undone:
        return mark
    batches = spans_of(facts.batch for facts in undone if facts.query == mark.query)
    queries = tuple(sorted({facts.query for facts in undone} - {str(mark.query)}))
    return replace(mark, undone=UndoneRows(mark.upto, batches, queries, base))


def _with_returning(
    mark: KeptMark,
    table: TableHandle,
    history: _History,
    later: CommittedStamp,
    older: Iterable[tuple[CommittedStamp, StreamFacts | None]],
) -> KeptMark:
    """The mark with the rows that went with batches which the history has again.

    Args:
        later: the commit that took rows out.
        older: the commits before it, newest first.
    """
    candidates = []
    for stamp, facts in older:
        if facts is not None and facts.batch > mark.upto and history.holds(facts):
            candidates.append(ReturningRows(later.version - 1, facts))
        later = stamp
    for returning_rows in sorted(candidates, key=lambda candidate: candidate.facts.batch, reverse=True):
        if table.is_kept(returning_rows.version):
            before = TableHandle.open(table.location, returning_rows.version)
            if not lost_files(table.location, returning(table, before)):
                return replace(
                    mark, upto=returning_rows.facts.batch, gaps=returning_rows.facts.gaps, returns=returning_rows
                )
    return mark


def _last_in(table: TableHandle, query: str, last: int, undone: list[StreamFacts]) -> int:
    """The last batch of a history with kept rows."""
    end = min([last, *(facts.batch - 1 for facts in undone if facts.query == query)])
    with table.reads("reading kept rows"):
        where = f"query = {sql(query)} AND batch <= {end}"
        rows = _BATCHES.lists(table.table.scan(columns=list(_BATCHES.kinds), predicate=where))
    return max(rows["batch"], default=-1)


def _is_planned(record: BatchRecord, planned_ms: int | None) -> bool:
    """Whether a record is of the batch that was planned then. Where one of the two is not known, it counts."""
    return planned_ms is None or record.planned_at is None or round(record.planned_at.timestamp() * 1000) == planned_ms


def _given_up(which: str, record: BatchRecord, before: BatchRecord | None) -> int | None:
    """How many rows a batch gave up; None if that is not known.

    Args:
        before: the record of the batch before.
    """
    if which == LATE:
        return record.rows_dropped
    if record.rows_removed != 0:
        return record.rows_removed
    # Of an outer join, Spark does not count the rows that leave the side which keeps all of its rows.
    joins = {figures.operator: figures for figures in record.operators if figures.name == JOIN}
    known = {figures.operator: figures for figures in (before.operators if before is not None else ())}
    if record.batch and joins.keys() - known.keys():
        return None
    held = sum(known[number].rows_total for number in joins) if record.batch else 0
    return held + sum(figures.rows_updated - figures.rows_total for figures in joins.values())


def _dropped(node: Node, target: TableHandle, query: str, upto: int) -> Mapping[int, int | None]:
    """By batch, the rows that came too late, as the commits after ``upto`` say it."""
    dropped: dict[int, int | None] = {}
    for _, commit in in_effect(stamp for stamp, _ in stream_stamps(target, app_id(node.key))):
        facts = commit.stream
        if facts is None or facts.query != query or facts.batch <= upto:
            break
        dropped[facts.batch] = None if facts.rows_dropped is None else sum(facts.rows_dropped)
    return dropped


def late_rows_lost(node: Node, target: TableHandle, mark: KeptMark) -> tuple[BatchSpan, ...]:
    """Batches whose late rows were kept once, as the commits of the node's table say, and are kept no more. Those of
    batches before ``late_rows`` was asked for never were."""
    if mark.which != LATE or not mark.lost:
        return ()
    lost = set(numbers(mark.lost))
    of_query = (facts for _, facts in stream_stamps(target, app_id(node.key)) if facts and facts.query == mark.query)
    recent = takewhile(lambda facts: facts.batch >= min(lost), of_query)
    return spans_of(facts.batch for facts in recent if LATE in facts.keeps and facts.batch in lost)


def lost_since(node: Node, target: TableHandle, marks: Iterable[KeptMark]) -> Iterator[tuple[str, str]]:
    """What :func:`lost_for_good` says of the batches since the last one whose rows are kept. Only their commits are
    read: a plan reads no log to its beginning, again and again."""
    return lost_for_good(node, target, [replace(mark, gaps=()) for mark in marks])


def lost_for_good(node: Node, target: TableHandle, marks: Iterable[KeptMark]) -> Iterator[tuple[str, str]]:
    """Kept rows that no run brings back, in words, each with what to do."""
    for mark in marks:
        lost = late_rows_lost(node, target, mark)
        if lost:
            text = f"{mark.which} lacks the rows of {batches_text(lost)}, which were kept: these rows are lost"
            yield text, f"put that table back from a copy; or odi run {node.command} --full-refresh"


def numbers(spans: Iterable[BatchSpan]) -> list[int]:
    """The batches of some spans."""
    return [number for first, last in spans for number in range(first, last + 1)]


def spans_of(batches: Iterable[int]) -> tuple[BatchSpan, ...]:
    """Batches as spans, in order."""
    spans: list[BatchSpan] = []
    for number in sorted(set(batches)):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return tuple(spans)


def batches_text(spans: Iterable[BatchSpan]) -> str:
    """Spans of batches in words: ``batch 3``, ``batches 4 to 5 and 7``."""
    known = list(spans)
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in known]
    listed = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    return f"batch {listed}" if len(numbers(known)) == 1 else f"batches {listed}"
