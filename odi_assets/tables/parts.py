"""Rows that are too many for memory: Arrow tables of one shape, in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa

_BYTES = 16 << 20


class TableParts:
    """Tables that are read one after the other, as often as they are asked for.

    Their file has no name, so the system takes it back even from a process that is killed.

    Attributes:
        schema: of all parts.
        num_rows: of all parts together.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.num_rows = 0
        self._file = tempfile.TemporaryFile(prefix="odi-parts-")  # noqa: SIM115  it lives as long as this object
        self._writer = pa.ipc.new_stream(self._file, schema)

    def add(self, rows: pa.Table) -> None:
        """Write rows behind those that are there. Once the parts were read, none can be added."""
        self._writer.write_table(rows)
        self.num_rows += rows.num_rows

    def __iter__(self) -> Iterator[pa.Table]:
        """The rows, in tables of about 16 MB."""
        self._writer.close()
        self._file.seek(0)
        held: list[pa.RecordBatch] = []
        for batch in pa.ipc.open_stream(self._file):
            held.append(batch)
            if sum(held_batch.nbytes for held_batch in held) >= _BYTES:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def whole(self) -> pa.Table:
        """All of it, in memory."""
        return pa.concat_tables([self.schema.empty_table(), *self])
