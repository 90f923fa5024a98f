"""Landing files as a source: read whole, by a cursor column, or each file once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import FilesIncrement, OnChange, StreamInput
from odi_assets.config.models.ddl import column_types
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError, NothingThereError
from odi_assets.sources.files.listing import SourceFile, list_files, listing, looked_at_again
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.arrivals import (
    Arrivals,
    arrivals,
    in_other_connection,
    in_other_folder,
    require_as_listed,
    require_as_loaded,
)
from odi_assets.sources.files.loaded.fingerprint import WHOLE_IS_KNOWN, with_whole_digests
from odi_assets.sources.files.settings import FileFormat, FilesRead
from odi_assets.sources.files.snapshot import FilesSnapshot
from odi_assets.sources.files.stream import StreamedFiles
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import CursorMark, FilesMark, Identity, Mark
from odi_assets.sources.reading import WHOLE_NUMBER, Settings, options_of, type_of
from odi_assets.sources.reads import AffectedPartitions, NothingNew, PlannedRead, Read, Whole
from odi_assets.sources.snapshot import Position, SourceSnapshot
from odi_assets.sources.source import SourceContext
from odi_assets.sources.streamed import StreamableSource
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEW_FILES = 16
"""At most about this many of the loaded files are looked for where they were."""


def landing_files(read: FilesRead, context: SourceContext) -> LandingFiles:
    """The source that a ``read`` of files names."""
    own = {name: getattr(read, name) for name in ("path", "schema_ddl", "options", "rescued", "strict")}
    return LandingFiles(**context.common(read), **own, format=FileFormat(read.format), base=context.locate(""))


@dataclass(frozen=True, kw_only=True)
class LandingFiles(StreamableSource):
    """Files below a connection's folder.

    Attributes:
        base: the connection's root; paths of files, and the mark's, are relative to it.
        path: a file, a folder or a glob below ``base``.
        schema_ddl: the columns in Spark's DDL; None lets Spark infer them.
        options: reader options of the format.
        rescued: the column that keeps, as JSON, what does not fit the others.
        strict: files are judged by the standard of their format, and values by their types; else Spark decides.
    """

    format: FileFormat
    base: Location
    path: str
    schema_ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    rescued: str | None = None
    strict: bool = True

    @property
    def identity(self) -> Identity:
        return self.identified("files", self.path, "file", self.base.true_path(self.path))

    def settings(self, columns: tuple[str, ...] | None) -> Settings:
        types = column_types(self.schema_ddl) if self.schema_ddl else {}
        settings: dict[str, str | None] = {"read.format": self.format.value}
        kinds = {name: type_of(name, types) for name in columns or ()}
        for kind in kinds.values() or (None,):
            settings |= options_of(self.options, kind)
        if not kinds or set(kinds.values()) != {WHOLE_NUMBER}:
            settings["read.strict"] = str(self.strict).lower()
        return settings | {f"read.schema: {name}": kind for name, kind in kinds.items() if kind is not None}

    @property
    def uri(self) -> str:
        return self.base.child(self.path).uri

    @property
    def watchable(self) -> bool:
        return isinstance(self.increment, FilesIncrement)

    @property
    def settles_within(self) -> timedelta:
        return self.increment.settle if isinstance(self.increment, FilesIncrement) else timedelta()

    def streamed(self, settings: StreamInput) -> StreamedFiles:
        return StreamedFiles(source=self, settings=settings)

    def snapshot(self) -> FilesSnapshot:
        snapshot = self._as_it_is()
        if not snapshot.listed:
            raise NothingThereError(
                f"{self.label}: no file matches {self.path} in {self.base.uri}",
                fix="; ".join(filter(None, (snapshot.note, "check `read.path`, or land a file there first"))),
                path=self.path,
            )
        return snapshot

    def _as_it_is(self) -> FilesSnapshot:
        found = listing(self.base, self.path)
        snapshot = self.snapshot_of(found.files, [file for file in found.files if file.size])
        return replace(snapshot, note=found.note)

    def position(self) -> Position:
        return self._as_it_is().position

    def change_since(self, then: Position | None) -> str | None:
        now = self.position()
        if then == now:
            return None
        if then is None or "files" not in then:
            return "what it held was not recorded"
        counts = then["files"], now["files"]
        return f"{counts[0]:,} files then, {counts[1]:,} now" if counts[0] != counts[1] else "files changed"

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        if isinstance(self.increment, FilesIncrement):
            return FilesMark.of(value, self.label)
        return super().mark(value, remembered, typed=typed)

    def plan(self, mark: Mark | None) -> PlannedRead:
        if not isinstance(self.increment, FilesIncrement):
            if isinstance(mark, CursorMark) and not list_files(self.base, self.path):
                # Files that were loaded may be put away.
                return self._window(self.snapshot_of((), ()), mark)
            return super().plan(mark)
        found, before = listing(self.base, self.path), mark if isinstance(mark, FilesMark) else None
        arrived = self._arrivals(self.increment, found.files, before)
        new = counted(len(arrived.new), "new file") if arrived.new else "no new files"
        text = new if found.files else f"no file matches {self.path}"
        summary = "; ".join(filter(None, (text, arrived.notes, found.note)))
        read = self._new_files(found.files, before, arrived, summary)
        return read if arrived.new else NothingNew.of(read, read.summary, read.after)

    def _window(self, snapshot: SourceSnapshot, above: CursorMark | None, *, rechecked: bool = False) -> PlannedRead:
        read = super()._window(snapshot, above, rechecked=rechecked)
        note = snapshot.note if isinstance(snapshot, FilesSnapshot) else ""
        return replace(read, summary=f"{read.summary}; {note}") if note else read

    def _new_files(
        self, listed: Sequence[SourceFile], before: FilesMark | None, arrived: Arrivals, summary: str
    ) -> NewFiles:
        return NewFiles(
            snapshot=self.snapshot_of(listed, sorted((*arrived.known, *arrived.new))),
            summary=summary,
            before=before,
            after=None if arrived.mark is None else replace(arrived.mark, measures=self.identity),
            follows=True,
            unsettled=len(arrived.unsettled),
            arrivals=arrived,
            beside=self.target.location,
        )

    def whole(self) -> Read:
        if not isinstance(self.increment, FilesIncrement):
            return super().whole()
        snapshot = self._as_it_is()
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def moved_here(self, mark: Mark, then: Identity) -> Read | None:
        if not isinstance(self.increment, FilesIncrement) or not isinstance(mark, FilesMark):
            return None
        listed = list_files(self.base, self.path)
        path_now = in_other_folder(then, self.identity, {file.path for file in listed})
        arrived = self._arrivals(self.increment, listed, mark, path_now=path_now, adopts=True)
        is_known = bool(arrived.known or arrived.moved)
        if not is_known and self._has_loaded_files(mark, then):
            # They were not moved: their own paths are theirs.
            arrived = self._arrivals(self.increment, listed, mark, path_now=str, adopts=True)
        elif not is_known and listed:
            return None
        if arrived.copied and not self.target.traits.takes_rows_again:
            raise IncrementError(
                f"{self.label}: {counted(len(arrived.copied), 'file')} would be loaded again, with the content of a "
                f"loaded file that is gone, another name and another time: {', '.join(arrived.copied[:3])}",
                fix="give back their names, or their times; or load everything again with odi run --full-refresh",
            )
        known = {file.path for file in arrived.known}
        others = self._new_files(listed, mark, arrived, "").others
        summary = f"{counted(len(known), 'loaded file')} of {self.label} known again"
        if mark.parts is None and known:
            summary = (
                f"{counted(len(known), 'file')} of {self.label} no newer than the HWM ({', '.join(sorted(known)[:3])}) "
                "will count as loaded; no list says which files were"
            )
        if not is_known:
            summary = f"no file of {self.label} is loaded, and the files that are loaded stay known"
        if others:
            summary += f"; {counted(len(others), 'other file')} will be loaded, {', '.join(others[:3])}"
        return self._new_files(listed, mark, arrived, summary)

    def _has_loaded_files(self, mark: FilesMark, then: Identity) -> bool:
        """Whether files that are loaded are where they were loaded: other files have not come in their place."""
        if mark.parts is None or then.connection != self.connection:
            return False
        paths = [*ledger.read_parts(self.target.location, mark.parts, self.label)]
        few = paths[:: max(1, len(paths) // _FEW_FILES)]
        return any(looked_at_again(self.base, self.path, few, _FEW_FILES * len(paths) * 1_000))

    def loaded(self, mark: Mark) -> PlannedRead:
        if not isinstance(self.increment, FilesIncrement) or not isinstance(mark, FilesMark):
            return super().loaded(mark)
        listed = list_files(self.base, self.path)
        arrived = self._arrivals(self.increment, listed, mark)
        require_as_loaded(arrived, self.label, self.target.node)
        snapshot = self.snapshot_of(listed, arrived.known)
        return Whole(snapshot=snapshot, summary=snapshot.summary)

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        del since
        listed = list_files(self.base, self.path)
        if isinstance(self.increment, FilesIncrement) and isinstance(mark, FilesMark) and mark.parts is not None:
            try:
                arrived = self._compared(listed, mark, "ignore")
            except IncrementError as error:
                # A full refresh is a way on from there; what it loses nobody can tell.
                yield Loss(f"rows of files of {self.label} that are gone, if any: {error.message}")
                return
            if arrived.gone:
                count = counted(len(arrived.gone), "file")
                yield Loss(f"rows of {count} of {self.label} gone since", arrived.gone, for_good=True)
            if arrived.ignored:
                count = counted(len(arrived.ignored), "file")
                yield Loss(f"rows of {count} of {self.label} that were rewritten since, as they were", arrived.ignored)
            return
        before = int((then or {}).get("files") or 0)
        if self.increment is not None and len(listed) < before:
            count = counted(before - len(listed), "file")
            what = f"rows of {count} of {self.label} gone since: there were {before:,}, and now {len(listed):,}"
            yield Loss(what, for_good=True)

    def _arrivals(
        self, increment: FilesIncrement, listed: Sequence[SourceFile], mark: FilesMark | None, **how: Any
    ) -> Arrivals:
        default: OnChange = "reload" if self.target.traits.takes_rows_again else "raise"
        if not how and mark is not None and mark.measures is not None:
            how = {"path_now": in_other_connection(mark.measures, self.identity)}
        return self._compared(listed, mark, increment.on_change or default, settle=increment.settle, **how)

    def _compared(
        self, listed: Sequence[SourceFile], mark: FilesMark | None, on_change: OnChange, **how: Any
    ) -> Arrivals:
        # Of the names of folders, rows have the columns that `schema` names; without it, all.
        columns = {name.lower() for name in column_types(self.schema_ddl)} if self.schema_ddl else None
        return arrivals(
            self.base,
            self.target.location,
            listed,
            mark,
            self.label,
            on_change=on_change,
            traits=self.target.traits,
            columns=columns,
            needed=(*self.target.keys, *self.target.partition_by),
            **how,
        )

    def snapshot_of(self, listed: Sequence[SourceFile], chosen: Sequence[SourceFile]) -> FilesSnapshot:
        """The source with the files ``listed``, of which rows are read from the ``chosen`` ones."""
        return FilesSnapshot(
            name=self.name,
            label=self.label,
            format=self.format.value,
            identity=self.identity,
            base=self.base,
            listed=tuple(listed),
            chosen=tuple(chosen),
            schema_ddl=self.schema_ddl,
            options=self.options,
            rescued=self.rescued,
            strict=self.strict,
            one_shape=self.target.schema_policy == "fail" and not self.target.traits.replaces_columns,
            parted_by=self.target.parted_by,
        )


@dataclass(frozen=True, kw_only=True)
class NewFiles(Read):
    """Files that were not loaded yet. The snapshot has these and the files that are loaded already.

    Attributes:
        beside: the table beside which the ledger of loaded files is kept.
    """

    snapshot: FilesSnapshot
    arrivals: Arrivals
    beside: Location

    @property
    def others(self) -> Sequence[str]:
        known = {file.path for file in self.arrivals.known}
        return sorted(file.path for file in self.snapshot.listed if file.size and file.path not in known)

    @property
    def file_count(self) -> int:
        return len(self.arrivals.new)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.arrivals.new)

    def load(self, spark: SparkSession) -> DataFrame:
        return replace(self.snapshot, chosen=self.arrivals.new).rows(spark)

    def numbered(self, rows: DataFrame, column: str) -> DataFrame:
        return replace(self.snapshot, chosen=self.arrivals.new).numbered(rows, column)

    def whole(self) -> Read:
        return Whole.instead_of(self)

    def affected(self, column: str, node: str) -> AffectedPartitions:
        del column
        if gone := self.arrivals.gone:
            raise IncrementError(
                f"{node}: {counted(len(gone), 'loaded file')} of {self.label} {'is' if len(gone) == 1 else 'are'} gone "
                f"({', '.join(gone[:3])}), and partitions that hold their rows cannot be recomputed without them",
                fix="put the files back; or write what is read with `append` or `upsert`, and let a second node write "
                "by partitions; or accept the files that are there: odi run --full-refresh",
                node=node,
            )
        # The partitions that a rewritten file had rows in before are not known.
        return AffectedPartitions(by_rows=True, everything=bool(self.arrivals.changed))

    def affected_rows(self, spark: SparkSession) -> Iterable[DataFrame]:
        return [self.load(spark)]

    def before_commit(self) -> None:
        if (part := self.arrivals.part) is None:
            return
        if self.snapshot.base.is_local and any(file.size > WHOLE_IS_KNOWN for file in self.arrivals.new):
            new = {file.path for file in self.arrivals.new}
            part = replace(part, files=tuple(with_whole_digests(self.snapshot.base, part.files, new)))
        ledger.write(self.beside, part)

    def once_read(self) -> None:
        if (part := self.arrivals.part) is not None:
            snapshot = self.snapshot
            new, count = self.arrivals.new, len(snapshot.listed)
            require_as_listed(snapshot.base, snapshot.identity.source, self.label, new, part.files, count)
