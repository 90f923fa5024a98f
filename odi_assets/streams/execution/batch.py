"""Commits one batch of a stream node: its rows and its stamp in one Delta commit, each batch once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, FencedError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.kept_aside import KnownKeys
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.sources.streamed import StreamedSource
from odi_assets.spark.connect_worker import token_is_logged
from odi_assets.streams.planning.marks import stream_facts, stream_stamps
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.engine import WriteSpec, engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_assets.streams.execution.kept_rows import KeptRows

_SMALL = 4 * 2**20
"""Bytes of the files of a batch whose rows are written by this process: a batch of some ten thousand rows."""

Ranges = list[tuple[StreamedSource, Any, Any]]
Dropped = Callable[[], tuple[int, ...] | None]


@dataclass
class BatchCommitter:
    """What Spark calls with the rows of each batch. It can be pickled: with Spark Connect, the server calls a copy.

    Attributes:
        node: ``pipeline.node``.
        table: the node's table.
        app_id: its fence.
        spec: how rows go into the table.
        facts: what each commit says of the run.
        checkpoint: of the query.
        inputs: of the node.
        last: the last batch in the table when the run was planned.
        replaces: the first batch replaces the table: a full refresh.
        kept: the tables of rows that the stream gives up.
        dropped: how many rows of the batch came too late, by operator; None if nobody can tell.
        evicts: whether a watermark that moves makes Spark run another batch; None if nobody can tell.
        changed: what of the query is not as the checkpoint notes it.
        settings: of the node, which the next run compares with its own.
        known_keys: the keys of the node; None if rows need none.
    """

    node: str
    table: Location
    app_id: str
    spec: WriteSpec
    facts: CommitFacts
    checkpoint: Location
    inputs: tuple[StreamedSource, ...]
    last: StreamFacts | None = None
    replaces: bool = False
    kept: KeptRows | None = None
    dropped: Dropped | None = None
    evicts: Callable[[], bool] | None = None
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    known_keys: KnownKeys | None = None
    _log: ProgressLog = field(init=False, repr=False)
    _begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._log = ProgressLog(self.checkpoint)

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Commit the batch ``number``, unless it is in the table already: then it is computed alone, as the query's
        state and watermark need it.

        Raises:
            SourceError: Spark reads rows of the batch twice, or not as they are.
            FencedError: another run commits batches of this node.
            CheckpointError: the batch is not the one that follows those in the table.
            TableError: the table cannot take the rows.
        """
        batch = self._log.batch(number)
        if batch is None:
            raise CheckpointError(
                f"{self.node}: the checkpoint {self.checkpoint.uri} does not say what its batch {number} reads",
                fix="somebody else changes the checkpoint: let nothing but this node use it",
                path=self.checkpoint.uri,
            )
        facts = stream_facts(batch, self.checkpoint)
        handle = TableHandle.open(self.table)
        stamp, last = self._last(handle)
        if last is not None and last.is_same_batch(facts):
            self._require_first(stamp, number)
            rows.write.format("noop").mode("overwrite").save()
        else:
            self._require_next(last, facts)
            ranges = self._ranges(facts)
            looked_at = {
                source.name: source.require_readable(rows.sparkSession, self._log, start, end)
                for source, start, end in ranges or ()
            }
            read_at = {name: files for name, files in looked_at.items() if files}
            self._write(rows, handle, replace(facts, read_at=read_at), self._is_small(ranges))
        self._begun = True
        if self.kept is not None:
            if self.replaces and number == 0:
                self.kept.bring_in_step(self._log, started_over=True)
            self.kept.keep(rows.sparkSession, facts, self.inputs, self._log, self._dropped())

    def _last(self, handle: TableHandle) -> tuple[CommittedStamp | None, StreamFacts | None]:
        if not handle.transaction_number(self.app_id):
            return None, None
        default: tuple[CommittedStamp | None, StreamFacts | None] = (None, self.last)
        return next(stream_stamps(handle, self.app_id), default)

    def _require_first(self, stamp: CommittedStamp | None, number: int) -> None:
        if not self._begun:
            return
        winner = CommitFacts.of(stamp).run_id if stamp is not None else None
        raise FencedError(
            f"{self.node}: another run{f' ({winner})' if winner else ''} committed batch {number} first; this one "
            "wrote nothing of it",
            fix="let the other run end, or stop it: a stream node runs once at a time",
            node=self.node,
            winner=winner,
            run_id=winner,
        )

    def _require_next(self, last: StreamFacts | None, facts: StreamFacts) -> None:
        if last is None:
            follows = facts.batch == 0
        elif last.query != facts.query:
            follows = self.replaces and facts.batch == 0
        else:
            follows = facts.batch == last.batch + 1
        if not follows:
            has = "no batch of it" if last is None else f"batch {last.batch} of query {last.query}"
            raise CheckpointError(
                f"{self.node}: batch {facts.batch} of query {facts.query} does not follow what its table has: {has}",
                fix=f"odi doctor says which of the two is older, and how they come together ({self.checkpoint.uri})",
                node=self.node,
                path=self.checkpoint.uri,
            )

    def _write(self, rows: DataFrame, handle: TableHandle, facts: StreamFacts, is_small: bool) -> None:
        spec = self.spec
        if self.replaces and facts.batch == 0 and handle.exists:
            spec = replace(spec, mode=WriteMode.OVERWRITE)
        stamp = Stamp.next_on(
            handle,
            self.app_id,
            replace(self.facts, mode=spec.mode.value, inputs=self._versions(facts)).to_json(),
            late_facts=lambda: {"stream": self._known_late(facts).to_json()},
        )
        rows = rows if self.known_keys is None else self.known_keys.required_of(rows)
        engine_of(handle).write_once(rows, handle, spec, stamp, is_small=is_small)

    def _known_late(self, facts: StreamFacts) -> StreamFacts:
        """The facts of a batch, with those that are known once it is computed."""
        late_times = self.kept.late_times if self.kept is not None else None
        return replace(
            facts,
            rows_dropped=self._dropped(),
            token_logged=token_is_logged(),
            late_times=late_times,
            changed=self.changed,
            settings=self.settings,
            evicts=self.evicts is not None and self.evicts(),
            keeps=tuple(self.kept.tables) if self.kept is not None else (),
        )

    def _ranges(self, facts: StreamFacts) -> Ranges | None:
        """The inputs that a batch reads, with the offsets where it begins and ends; None if the log does not tell
        where."""
        if facts.batch and self._log.batch(facts.batch - 1) is None:
            return None
        starts = self._log.ends(facts.batch - 1, [source.name for source in self.inputs]) if facts.batch else {}
        ends = ((source, (facts.offsets.get(source.name) or {}).get("end")) for source in self.inputs)
        ranges = [(source, starts.get(source.name), end) for source, end in ends]
        return [(source, start, end) for source, start, end in ranges if end is not None and start != end]

    def _is_small(self, ranges: Ranges | None) -> bool:
        """Whether this process may hold the rows of a batch, judged by the files that it reads."""
        if ranges is None or self.spec.mode.traits.increment == "table":
            return False
        left = _SMALL
        for source, start, end in ranges:
            size = source.size(self._log, start, end)
            if size is None or size > left:
                return False
            left -= size
        return True

    def _versions(self, facts: StreamFacts) -> dict[str, int]:
        """By upstream node, the version up to which the batch has read its table."""
        ends = {name: offset["end"] for name, offset in facts.offsets.items() if offset["end"]}
        versions = {
            source.label: source.upstream_version(ends[source.name]) for source in self.inputs if source.name in ends
        }
        return {node: version for node, version in versions.items() if version is not None}

    def _dropped(self) -> tuple[int, ...] | None:
        return self.dropped() if self.dropped is not None else None
