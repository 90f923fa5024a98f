"""Which rows of Parquet files on a local disk have keys that a batch has too, found by Arrow's hash join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_PART_ROWS, _PART_BYTES = 500_000, 16 * 2**20
_BATCH_ROWS, _BUFFER = 65_536, 2**20
_ROW = "__odi_row"

Part = list[tuple[int, int]]
"""Row groups that are searched together: the number of the file, and that of the row group in it."""


def rows_with_keys(files: Sequence[Path], wanted: pa.Table, workers: Executor) -> list[pa.BooleanArray]:
    """For each of ``files``, in the order of its rows, whether a row of ``wanted`` has the same keys.

    ``wanted`` has the columns of the key and no NULL. A join hashes all its rows, so the files are searched in parts of
    many row groups; what is held of them at a time is bounded.
    """
    footers = [pq.read_metadata(file) for file in files]

    def search(part: Part) -> list[np.ndarray]:
        batches = (batch for file, group in part for batch in _keys(files[file], footers[file], group, wanted.schema))
        masks = [_have_keys(table, wanted) for table in _tables(batches)]
        ends = np.cumsum([footers[file].row_group(group).num_rows for file, group in part])
        return np.split(np.concatenate([*masks, np.zeros(0, dtype=bool)]), ends[:-1])

    parts = _parts(footers, wanted.column_names)
    found: list[list[pa.BooleanArray]] = [[] for _ in files]
    for part, masks in zip(parts, workers.map(search, parts), strict=True):
        for (file, _), mask in zip(part, masks, strict=True):
            # A bit for a row: all of them are held until the last file is searched.
            found[file].append(pa.array(mask))
    return [pa.concat_arrays(masks) if masks else pa.array([], pa.bool_()) for masks in found]


def _parts(footers: Sequence[pq.FileMetaData], keys: Sequence[str]) -> list[Part]:
    parts: list[Part] = []
    rows = size = 0
    for file, footer in enumerate(footers):
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            rows, size = rows + group.num_rows, size + _size_of(group, keys)
            if not parts or rows > _PART_ROWS or size > _PART_BYTES:
                parts.append([])
                rows, size = group.num_rows, _size_of(group, keys)
            parts[-1].append((file, number))
    return parts


def _size_of(group: pq.RowGroupMetaData, keys: Sequence[str]) -> int:
    columns = (group.column(number) for number in range(group.num_columns))
    return sum(int(column.total_uncompressed_size) for column in columns if column.path_in_schema in keys)


def _keys(file: Path, footer: pq.FileMetaData, group: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    parquet = pq.ParquetFile(file, metadata=footer, buffer_size=_BUFFER, pre_buffer=False)
    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=schema.names):
        yield batch.select(schema.names).cast(schema)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """``batches`` put together, as many at a time as are searched at once: a row group may be larger than that."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _PART_ROWS or sum(one.nbytes for one in held) >= _PART_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _have_keys(rows: pa.Table, wanted: pa.Table) -> np.ndarray:
    numbered = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
    found = np.zeros(len(rows), dtype=bool)
    found[numbered.join(wanted, wanted.column_names, join_type="left semi")[_ROW].to_numpy()] = True
    return found
