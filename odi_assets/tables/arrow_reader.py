"""Rows of Delta tables as Arrow tables, by file list: those that are few, of tables on a local disk."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from odi_assets.delta.table import LiveFile, TableHandle

_PIECE_ROWS = 16_384


def rows_of_files(
    handle: TableHandle, files: Sequence[LiveFile], schema: pa.Schema, most_bytes: int
) -> pa.Table | None:
    """Columns of the rows of some of the table's files.

    Args:
        schema: the columns, and their types. The table is partitioned by none of them.
        most_bytes: what the rows may take in memory.

    Returns:
        None if they take more, if the table is not on a local disk, or if a file lacks a column.

    Raises:
        OSError, pa.ArrowException: Arrow cannot read a file.
    """
    if not handle.location.is_local or sum(file.size for file in files) > most_bytes:
        return None
    batches: list[pa.RecordBatch] = []
    held = 0
    for file in files:
        parquet = pq.ParquetFile(handle.location.local_path / file.path)
        if not set(schema.names) <= set(parquet.schema_arrow.names):
            return None
        # A file may be much smaller than its rows, so they are measured while they come.
        for piece in parquet.iter_batches(_PIECE_ROWS, columns=schema.names):
            held += piece.nbytes
            if held > most_bytes:
                return None
            batches.append(piece.select(schema.names).cast(schema))
    return pa.Table.from_batches(batches, schema)
