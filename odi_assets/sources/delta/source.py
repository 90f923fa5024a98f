"""Delta tables as a source: tables on a connection, and tables of upstream nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import FilesIncrement, StatefulIncrement, StreamInput, VersionIncrement
from odi_assets.connections.location import Location
from odi_assets.delta.changes import is_other_history, table_change
from odi_assets.delta.damage import require_no_remains
from odi_assets.delta.files.pruning import files_in_box, files_in_partitions, values_of
from odi_assets.delta.history import (
    TableCommit,
    actions_at,
    commit_at,
    replaces_rows,
    restored_version,
    versions_in_effect,
)
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.position import table_position
from odi_assets.delta.protocol import BY_FILES
from odi_assets.delta.table import LiveFile, TableHandle, rows_in
from odi_assets.errors import ConfigError, IncrementError, NothingThereError, SourceError
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.late import NONE_LATE, Late
from odi_assets.sources.cursor.types import TypeName, cursor_type
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.delta.bounds import table_bound
from odi_assets.sources.delta.late import late_in_table
from odi_assets.sources.delta.loaded_rows import same_loaded_rows
from odi_assets.sources.delta.settings import DeltaRead
from odi_assets.sources.delta.stream import StreamedTable
from odi_assets.sources.delta.versions import VersionStep, other_table, step, within
from odi_assets.sources.errors import lost_data_file
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import CursorMark, History, Identity, Mark, Unresolved, VersionMark, history_of
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, Whole
from odi_assets.sources.snapshot import Partitions, Position, SourceSnapshot
from odi_assets.sources.source import SourceContext
from odi_assets.sources.streamed import StreamableSource
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_on_connection(read: DeltaRead, context: SourceContext) -> DeltaTableSource:
    """The table that a ``read`` with ``format: delta`` names."""
    return DeltaTableSource(**context.common(read), location=context.locate(read.path))


@dataclass(frozen=True, kw_only=True)
class DeltaTableSource(StreamableSource):
    """A Delta table that somebody else writes, another node for example.

    Attributes:
        only: the partitions whose rows are wanted; None: all.
        opened: the table at the version that is read; None: the newest one, when the source is first asked for it.
    """

    location: Location
    only: Partitions | None = None
    opened: TableHandle | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> Identity:
        return self._newest.identity

    @cached_property
    def _newest(self) -> TableSnapshot:
        """The table as it was when this source was first asked for it: a plan sees one version."""
        return self._snapshot_of(TableHandle.open(self.location) if self.opened is None else self.opened)

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def is_upstream(self) -> bool:
        """Whether a node of the project writes it; :attr:`label` is its name then."""
        return not self.connection

    @property
    def watchable(self) -> bool:
        return isinstance(self.increment, VersionIncrement)

    def streamed(self, settings: StreamInput) -> StreamedTable:
        return StreamedTable(source=replace(self), settings=settings)

    def snapshot(self) -> TableSnapshot:
        snapshot = self._newest
        if snapshot.handle.exists:
            engine_of(snapshot.handle).require_readable(snapshot.handle)
            return snapshot
        require_no_remains(self.location)
        raise NothingThereError(
            f"{self.label}: there is no Delta table at {self.location.uri}",
            fix="run the node that writes it first",
            path=self.location.uri,
        )

    def position(self) -> Position:
        return table_position(self.location)

    def change_since(self, then: Position | None) -> str | None:
        return table_change(then, TableHandle.open(self.location))

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        if isinstance(self.increment, VersionIncrement):
            return VersionMark.of(value, self.label)
        return super().mark(value, remembered, typed=typed)

    def plan(self, mark: Mark | None) -> PlannedRead:
        if isinstance(self.increment, FilesIncrement):
            raise IncrementError(
                f"{self.label} is a Delta table, and `files` increments are for csv, json and parquet",
                fix="use mode: version, which follows the table's commits",
            )
        if not isinstance(self.increment, VersionIncrement):
            if not isinstance(mark, CursorMark) or self.rewritten(mark) is None:
                return super().plan(mark)
            return self._window(self.snapshot(), mark, rechecked=True)
        before = mark if isinstance(mark, VersionMark) else None
        if before is None and not self._newest.handle.exists:
            return self.nothing_yet()
        snapshot = self.snapshot()
        version_step = step(snapshot.handle, before, self.label, replaced=self.target.traits.increment == "partitions")
        if self.only is not None:
            version_step = within(version_step, self.only)
        after = replace(version_step.after, measures=snapshot.identity)
        read = NewVersions(
            snapshot=snapshot,
            summary=version_step.reason,
            before=before,
            after=after,
            follows=True,
            rewrites=version_step.extent in {"table", "partitions"},
            step=version_step,
        )
        return NothingNew.of(read, version_step.reason, after) if version_step.extent == "nothing" else read

    @property
    def exists(self) -> bool:
        """Whether the table is there."""
        return self._newest.handle.exists

    def nothing_yet(self) -> NothingNew:
        """The read of a table that is not there yet."""
        whole = Whole(snapshot=self._newest, summary=f"{self.label} does not exist yet", follows=self.follows)
        return NothingNew.of(whole, whole.summary, None)

    def other_history(self, mark: Mark) -> str | None:
        handle, history = self._newest.handle, history_of(mark)
        if isinstance(self.increment, StatefulIncrement) and self.increment.on_change == "ignore":
            return None
        if isinstance(mark, VersionMark) and mark.table_id not in (None, handle.table_id if handle.exists else None):
            # Another table is read whole.
            return None
        version = mark.version if isinstance(mark, VersionMark) and history is None else None
        if history is not None:
            version = history.version
        if version is None or not handle.exists:
            return None
        if version > int(handle.version or 0):
            return f"{self.label} is at version {handle.version}, and it was read up to version {version} before"
        if history is not None and is_other_history(handle, version, history.commit):
            return f"version {version} of {self.label}, up to which it was read, is another commit now"
        return self._incomparable(mark)

    def _incomparable(self, mark: Mark) -> str | None:
        """Why rows that were read up to ``mark``, and were rewritten, cannot be compared; None if they were not, or can
        be."""
        text, history = self.rewritten(mark), history_of(mark)
        if text is None or history is None:
            return None
        if not self._newest.handle.is_kept(history.version):
            return f"{text}, and its log does not hold that version any more, so it cannot be compared"
        if lost_files(self.location, TableHandle.open(self.location, history.version).live_files):
            return f"{text}, and what it held then was vacuumed, so it cannot be compared"
        return None

    def as_it_is(self, mark: Mark) -> Mark:
        measures = None if mark.measures is None else replace(mark.measures, history=self.identity.history)
        if isinstance(mark, VersionMark) and self.exists:
            mark = replace(mark, version=min(mark.version, int(self._newest.handle.version or 0)))
        return replace(mark, measures=measures)

    def rewritten(self, mark: Mark) -> str | None:
        history = history_of(mark)
        if not isinstance(mark, CursorMark) or not isinstance(self.increment, StatefulIncrement) or history is None:
            return None
        if self.increment.on_change == "ignore":
            return None
        commits = takewhile(lambda commit: commit.version > history.version, self._newest.handle.commits())
        since = {commit.version: commit for commit in commits}
        if not any(map(_rewriting, since.values())):
            return None
        # A rewind to what was read, or to later, undid nothing of that. What follows it is the way of the table.
        steps = [
            (commit.version, restored_version(commit.operation, commit.parameters))
            for commit in reversed(since.values())
        ]
        way = versions_in_effect(steps, history.version)
        how = next((how for at, changed in way if changed and (how := _rewriting(since[at])) is not None), None)
        return how and f"{self.label} was {how} after version {history.version}, up to which it was read"

    def corrections(self, mark: Mark, spark: SparkSession) -> str | None:
        text, history = self.rewritten(mark), history_of(mark)
        if text is None or history is None:
            return None
        assert isinstance(mark, CursorMark)
        assert isinstance(self.increment, StatefulIncrement)
        if (incomparable := self._incomparable(mark)) is not None:
            return incomparable
        same = same_loaded_rows(self._snapshot(history.version), self.snapshot(), self.increment, mark, spark)
        return None if same else f"{text}, and rows below the HWM are other ones now"

    def why_unreachable(self, mark: Mark) -> str | None:
        if not isinstance(mark, VersionMark):
            return None
        handle = self._newest.handle
        if not handle.exists:
            return f"the table of {self.label} does not exist"
        if mark.table_id not in (None, handle.table_id):
            return f"the table of {self.label} {other_table(mark, handle)}"
        if mark.version > int(handle.version or 0):
            return f"the table of {self.label} is at version {handle.version}"
        following = mark.version + 1
        if following <= int(handle.version or 0) and handle.once(actions_at, following) is None:
            return f"version {following}, from which it would read on, is not in the table's log any more"
        return None

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        handle = TableHandle.open(self.location)
        if then and handle.exists and then.get("table_id") not in (None, handle.table_id):
            yield Loss(f"rows of {self.label} that it may not hold any more: it was dropped and made again")
        if not isinstance(mark, VersionMark) or not self.target.traits.keeps_stored_rows:
            return
        loaded = (stamp for stamp in handle.stamps() if (since or 0) < stamp.version <= mark.version)
        replaced = sum(int(stamp.facts.get("rows_updated") or 0) for stamp in loaded)
        if replaced:
            yield Loss(f"{counted(replaced, 'row')} of {self.label} as they were before they changed", for_good=True)

    def loaded(self, mark: Mark) -> PlannedRead:
        if not isinstance(self.increment, VersionIncrement) or not isinstance(mark, VersionMark):
            return super().loaded(mark)
        snapshot = self._snapshot(mark.version)
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def _snapshot(self, version: int) -> TableSnapshot:
        return self._snapshot_of(TableHandle.open(self.location, version))

    def _snapshot_of(self, handle: TableHandle) -> TableSnapshot:
        table_id = handle.table_id if handle.exists else ""
        identity = self.identified("delta", table_id, "version", self.location.true_path())
        if handle.commit is not None:
            identity = replace(identity, history=History(int(handle.version or 0), handle.commit))
        return TableSnapshot(
            name=self.name,
            label=self.label,
            format="delta",
            identity=identity,
            table_version=handle.version,
            handle=handle,
            only=self.only,
        )


def _rewriting(commit: TableCommit) -> str | None:
    """How a commit put other rows in the place of those that were there, as a participle; None if it did not.

    What others merge, update or delete row by row is the way of tables that are followed by a column.
    """
    if commit.stamp is None:
        return replaces_rows(commit)
    kind = commit.stamp.facts.get("changes")
    return {"table": "rewritten", "partitions": "rewritten in part"}.get(str(kind))


@dataclass(frozen=True, kw_only=True)
class TableSnapshot(SourceSnapshot):
    """A Delta table at one version; ``only`` as of its source."""

    handle: TableHandle
    only: Partitions | None = None

    @property
    def position(self) -> Position:
        return self.handle.position

    @property
    def summary(self) -> str:
        return f"whole, at version {self.handle.version}"

    @property
    def fingerprint(self) -> tuple[str, ...]:
        return self.handle.table_id, str(self.handle.version), str(self.handle.commit)

    @property
    def columns(self) -> Mapping[str, TypeName] | None:
        return self.handle.columns if self.handle.exists else None

    @property
    def column_names(self) -> Sequence[str] | None:
        return list(self.handle.columns) if self.handle.exists else None

    @property
    def rows_known(self) -> int | None:
        return rows_in(self.files) if self.handle.exists else None

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def files(self) -> Sequence[LiveFile]:
        return self.handle.live_files if self.only is None else self._files_of(self.only)

    def _files_of(self, only: Partitions) -> Sequence[LiveFile]:
        if only.box is not None:
            return files_in_box(self.handle, only.box)
        return files_in_partitions(self.handle, only.column, only.values)

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        only = self.only if only is None else only
        if only is None:
            return engine_of(self.handle).read(spark, self.handle)
        rows = engine_of(self.handle).read_files(spark, self.handle, self._files_of(only))
        return rows.where(only.condition(rows))

    def moment_of(self, mark: Mark) -> float | None:
        if not isinstance(mark, VersionMark):
            return super().moment_of(mark)
        commit = self.handle.once(commit_at, mark.version)
        return None if commit is None else commit.made_at.timestamp()

    def read_error(self, text: str) -> SourceError | None:
        return lost_data_file(self.label, text, self.handle.location)

    def late(self, mark: CursorMark, window: Window, start: Any, spark: SparkSession | None = None) -> Late:
        history = history_of(mark)
        return NONE_LATE if history is None else late_in_table(self.handle, history.version, mark, window, start, spark)

    def bound_by_statistics(self, increment: StatefulIncrement) -> tuple[str | None, Bound | Unresolved]:
        kind = cursor_type(increment, self.handle.columns, self.label)
        return kind, table_bound(self.handle, increment, kind)


@dataclass(frozen=True, kw_only=True)
class NewVersions(Read):
    """The rows that a table gained in the commits after its mark."""

    snapshot: TableSnapshot
    step: VersionStep

    @property
    def rows_known(self) -> int | None:
        return self.step.changes.rows if self._by_rows and self.step.changes else self.snapshot.rows_known

    @property
    def bytes(self) -> int:
        if self._by_rows and self.step.changes is not None:
            return sum(file.size for file in self.step.changes.files)
        return self.snapshot.bytes

    def load(self, spark: SparkSession) -> DataFrame:
        if self._by_rows and self.step.changes is not None:
            handle = self.snapshot.handle
            return engine_of(handle).changed_rows(spark, handle, self.step.changes)
        return self.snapshot.rows(spark)

    @property
    def plain_files(self) -> Sequence[LiveFile] | None:
        """The files that hold the rows and no others; None if a list of files does not say which the rows are."""
        gained = self.step.changes if self._by_rows else None
        if engine_of(self.snapshot.handle).features is not BY_FILES or (gained is not None and gained.replacing):
            return None
        return self.snapshot.files if gained is None else list({file.path: file for file in gained.files}.values())

    def whole(self) -> Read:
        whole = Whole.instead_of(self)
        # The step itself says why the table has to be read whole.
        return replace(whole, summary=self.summary) if self.step.extent == "table" else whole

    def affected(self, column: str, node: str) -> AffectedPartitions:
        handle, gained = self.snapshot.handle, self.step.changes
        if column not in handle.columns:
            raise ConfigError(
                f"{node} is written by partitions of `{column}`, and its incremental input `{self.name}` has no such "
                "column",
                fix=f"add `{column}` to {self.label}, or read the input whole (without `incremental`)",
                node=node,
                column=column,
            )
        if self.step.extent == "table" or gained is None:
            return AffectedPartitions(everything=True)
        if column in handle.partition_columns:
            return AffectedPartitions(frozenset(p[column] for commit in gained.commits for p in commit.partitions))
        # A replaced row may have been in another partition, and the log has no statistics of removed files.
        if any(commit.updated or commit.deleted or commit.kind == "partitions" for commit in gained.commits):
            return AffectedPartitions(by_rows=True)
        values = values_of(handle, column, gained.files)
        return AffectedPartitions(by_rows=True) if values is None else AffectedPartitions(frozenset(values))

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        handle, gained = self.snapshot.handle, self.step.changes
        return () if gained is None else engine_of(handle).affected_rows(spark, handle, gained)

    @property
    def _by_rows(self) -> bool:
        return self.step.extent == "rows"
