"""Files of Debezium's envelopes as a source of a change log: each file once."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from odi_assets.errors import ConfigError, NothingThereError, SourceError
from odi_assets.sources.cdc.debezium.envelopes import EnvelopeReader, EnvelopeRules
from odi_assets.sources.cdc.debezium.mark import EnvelopeFilesMark, LogState
from odi_assets.sources.cdc.debezium.reads import LoggedMessages, NewMessages
from odi_assets.sources.cdc.debezium.rows import NumberedRows
from odi_assets.sources.cdc.log import SCHEMA
from odi_assets.sources.copies import fields_of
from odi_assets.sources.files.snapshot import FilesSnapshot
from odi_assets.sources.files.source import LandingFiles, NewFiles
from odi_assets.sources.marks import FilesMark, Mark
from odi_assets.sources.reading import Settings
from odi_assets.sources.reads import NothingNew, PlannedRead, Read
from odi_assets.sources.snapshot import Partitions
from odi_assets.spark.arrow import dataframe_of
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPENERS: Mapping[str, Callable[[IO[bytes]], Iterable[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open}


@dataclass(frozen=True, kw_only=True)
class EnvelopeFiles(LandingFiles):
    """Files of envelopes below a connection's folder, an envelope a line."""

    rules: EnvelopeRules

    def settings(self, columns: tuple[str, ...] | None) -> Settings:
        del columns
        return {"read.format": "debezium"}

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        del remembered, typed
        return EnvelopeFilesMark.of(value, self.label)

    def plan(self, mark: Mark | None) -> PlannedRead:
        planned = super().plan(mark)
        is_new = not isinstance(planned, NothingNew)
        files = planned.increment if isinstance(planned, NothingNew) else planned
        assert isinstance(files, NewFiles)
        before = mark if isinstance(mark, EnvelopeFilesMark) else None
        read = NewEnvelopeFiles(
            snapshot=_snapshot(files.snapshot),
            summary=files.summary,
            before=before,
            follows=True,
            source=self,
            files=files,
        )
        if is_new:
            return read
        log = LogState() if before is None else before.log
        after = None if files.after is None else _marked(files.after, log)
        return NothingNew.of(read, read.summary, after)

    def whole(self) -> Read:
        raise ConfigError(
            f"{self.label}: a change log has the changes of all files, in their order, and takes no range of them",
            fix=f"{self.rules.again} makes it again",
            node=self.rules.node,
        )

    def logged(self, read: NewEnvelopeFiles) -> LoggedMessages:
        """The rows of the change log that new files make.

        Raises:
            NothingThereError: there are none.
            SourceError: a line is no envelope, or a file cannot be read.
        """
        files, before = read.files, read.before
        if files is None or not files.arrivals.new:
            raise NothingThereError(
                f"{self.label}: no file matches {self.path} in {self.base.uri}",
                fix="check `read.path`, or land a file there first; nothing was changed",
                path=self.path,
            )
        log = before.log if isinstance(before, EnvelopeFilesMark) else LogState()
        reader = EnvelopeReader(self.rules, dict(log.tables), log.binlog, log.patterns)
        rows, placed = NumberedRows(log.next_n), dict[str, str]()
        for file in files.arrivals.new:
            for number, line in enumerate(self._lines(file.path), 1):
                if text := line.strip():
                    for change in reader.changes(text, file.path, f"{file.path}, line {number},"):
                        if change.position is None:
                            self._require_one_file(change.table, placed, file.path)
                        rows.add(change, file.path)
        reader.require_whole()
        finished_rows = rows.finished()
        count = finished_rows.num_rows
        assert files.after is not None
        return LoggedMessages(
            snapshot=read.snapshot,
            summary=f"{counted(count, 'row')} of {counted(len(files.arrivals.new), 'file')}",
            before=before,
            after=_marked(files.after, LogState(log.next_n + count, reader.tables, reader.binlog, reader.all_patterns)),
            follows=True,
            files=files,
            rows=finished_rows,
        )

    def _require_one_file(self, table: str, placed: dict[str, str], path: str) -> None:
        first = placed.setdefault(table, path)
        if first != path:
            raise SourceError(
                f"{self.label}: changes of {table} do not say where the database's log has them, and {first} and "
                f"{path} have some: which come first is not known",
                fix="read the topic itself (`topics`): a partition keeps the order of each key; or land one file for "
                "each run",
                path=path,
            )

    def _lines(self, path: str) -> Iterator[bytes]:
        try:
            with self.base.child(path).open("rb") as stream:
                opener = _OPENERS.get(path[path.rfind(".") :])
                yield from stream if opener is None else opener(stream)
        except (OSError, EOFError) as error:
            raise SourceError(
                f"{self.label}: {path} cannot be read: {error}",
                fix="run the node again, or put the file back; nothing was written",
                path=path,
            ) from error


@dataclass(frozen=True, kw_only=True)
class NewEnvelopeFiles(NewMessages):
    """Files of envelopes that are not in the change log."""

    source: EnvelopeFiles

    def logged(self) -> LoggedMessages:
        return self.source.logged(self)


@dataclass(frozen=True, kw_only=True)
class EnvelopeFilesSnapshot(FilesSnapshot):
    """Files of envelopes: their rows are changes, which a read makes."""

    def rows(self, spark: SparkSession, only: Partitions | None = None) -> DataFrame:
        del only
        return dataframe_of(spark, SCHEMA.empty_table())


def _snapshot(snapshot: FilesSnapshot) -> EnvelopeFilesSnapshot:
    return EnvelopeFilesSnapshot(**{**fields_of(FilesSnapshot, snapshot), "format": "debezium"})


def _marked(files: Mark, log: LogState) -> EnvelopeFilesMark:
    assert isinstance(files, FilesMark)
    return EnvelopeFilesMark.made(files, log)
