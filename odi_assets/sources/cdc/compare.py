"""A captured table as its database has it at one place of the log, and what the change log lacks up to there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.capture import Capture, types_of
from odi_assets.sources.cdc.database import CapturedTable, SnapshotReader
from odi_assets.sources.cdc.log import Op, Shape
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.cdc.source import LogSource
from odi_assets.sources.sql.chunks import Cutter, key_columns
from odi_assets.sources.sql.keys import keys_of
from odi_assets.sources.sql.statements import Relation
from odi_assets.tables.parts import TableParts


@dataclass(frozen=True)
class TableNow:
    """A table at one moment; valid as long as :func:`table_now` is open.

    Attributes:
        log_end: where the log ended, as the database writes it: all that the table has is below.
        shape: its columns.
        waiting: the rows that the change log will gain of it up to there.
    """

    log_end: str
    shape: Shape
    waiting: pa.Table
    capture: Capture
    reader: SnapshotReader
    table: CapturedTable

    def chunks(self) -> Iterator[pa.Table]:
        """All rows of the table, as the change log would have them."""
        dialect, table = self.capture.dialect, self.table
        relation = Relation(dialect, table.quoted, f"{self.capture.label} {table.name}", table.quoted, {})
        types = types_of(self.shape)
        chunks = Cutter(relation, self.capture.chunks, types, self.reader.rows).chunks()
        if chunks is None:
            return
        columns = key_columns(relation, chunks.by, types, self.reader.rows)
        for chunk in chunks.left:
            where = keys_of(dialect).within(chunk, columns)
            yield self.capture.rows_where(self.reader, relation, table, self.shape, where)


@contextmanager
def table_now(source: LogSource, mark: CaptureMark, table: str) -> Iterator[TableNow]:
    """Open a table in one repeatable read. Nothing is written at the server, and no slot is moved.

    Args:
        mark: how far the log was captured.

    Raises:
        ConfigError: the database has no such table.
        SourceError: the capture has to run first; the server cannot be reached.
        IdentityMismatchError: the slot does not go on where the mark is.
    """
    if not mark.tables[table].is_complete:
        raise _run_first(source, f"the snapshot of {table} is not complete")
    with source.opened() as log:
        log.require(mark)
        (captured,) = log.tables([table]).values()
        alone = replace(mark, tables={table: mark.tables[table]})
        altered = source.altered(log, alone, {table: captured})
        if altered.rewritten:
            raise _run_first(source, f"the columns of {table} have changed, and their new snapshot is not captured")
        if altered.again:
            raise _run_first(source, f"{table} was made or published again, and its new snapshot is not captured")
        capture = source.capture(log, {table: captured})
        with log.reading(mark) as reader:
            end = reader.log_end()
            step = capture.step(alone, end)
            if step.more:
                raise _run_first(source, f"the log holds too much of {table} that is not captured")
            with source.opened() as after:
                if after.why_gone(mark) is not None:
                    raise _run_first(source, "the log was captured further in the meantime", "odi audit again")
            waiting = step.rows.whole() if isinstance(step.rows, TableParts) else step.rows
            yield TableNow(log.text(end), reader.shape(captured), waiting, capture, reader, captured)


def emptied(rows: pa.Table) -> bool:
    """Whether rows of the log empty their table."""
    return bool(pc.any(pc.equal(rows["op"], Op.TRUNCATE.value)).as_py())


def _run_first(source: LogSource, why: str, fix: str = "") -> SourceError:
    command = f"odi run {source.target.node.replace('.', ' --node ')}"
    return SourceError(f"{source.label}: {why}", fix=fix or f"run it first: {command}", label=source.label)
