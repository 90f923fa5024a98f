"""Rows that are too many for memory: Arrow tables of one shape in files of a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

_BYTES = 64 << 20


class TableParts:
    """Tables that are read one after the other, as often as they are asked for.

    The folder goes with the object, at the latest when the process ends.

    Attributes:
        schema: of all parts.
        num_rows: of all parts together.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.num_rows = 0
        self._folder = tempfile.TemporaryDirectory(prefix="odi-parts-")
        self._files: list[Path] = []

    def add(self, rows: pa.Table) -> None:
        """Write rows behind those that are there."""
        file = Path(self._folder.name) / f"{len(self._files)}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
            writer.write_table(rows)
        self._files.append(file)
        self.num_rows += rows.num_rows

    def __iter__(self) -> Iterator[pa.Table]:
        """The rows, in tables of about 64 MB."""
        held: list[pa.Table] = []
        for file in self._files:
            with pa.OSFile(str(file), "rb") as source:
                held.append(pa.ipc.open_file(source).read_all())
            if sum(table.nbytes for table in held) >= _BYTES or file == self._files[-1]:
                yield pa.concat_tables(held)
                held = []

    def whole(self) -> pa.Table:
        """All of it, in memory."""
        return pa.concat_tables([self.schema.empty_table(), *self])
