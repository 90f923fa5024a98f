"""Small upserts finished on the driver: Arrow finds the rows that are replaced, and copies the others of their files.

Spark takes three jobs for it (duplicate keys, affected files, rows that stay) and encodes Parquet at half of Arrow's
speed. What is held at a time is bounded: the keys of the batch, a share of the table's keys, and one piece of each file
that is copied. Whatever might be copied otherwise than Spark would do it is left to Spark, and so is whatever is large.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Schema

from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.delta.types import plain_type
from odi_assets.tables.upsert.matching import MatchedFiles

MOST_KEYS = 1_000_000
"""Rows of a batch whose keys the driver holds."""

MOST_BYTES = 512 * 2**20
"""Size of all the files that may have to be rewritten; beyond, Spark's executors share the work."""

_PIECE_ROWS, _PIECE_BYTES = 65_536, 4 * 2**20
_PART_ROWS, _PART_BYTES = 500_000, 16 * 2**20
_ROW_GROUP_BYTES = 16 * 2**20
_BUFFER = 2**20
_ROW = "__odi_row"
# Each holds a piece of a file, and a row group of its copy as far as it is encoded.
_WORKERS = 2
_KEY_TYPES = {"byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz"}
"""Types whose equality is the same in Arrow and in Spark: floats know NaN and two zeros, text may have collations."""


Part = list[tuple[int, int]]
"""Row groups that are searched together: for each, the number of the file, and the number of the row group in it."""


def rewrite(
    handle: TableHandle,
    staged: Sequence[WrittenFile],
    keys: Sequence[str],
    among: Sequence[LiveFile],
    folder: str,
    marker: str | None = None,
) -> MatchedFiles | None:
    """Find the rows of the files ``among`` that have keys of the staged rows, and copy the others into ``folder``.

    Args:
        marker: a BOOLEAN column of the staged rows; where it is true, stored rows with these keys count as deleted.

    None, with nothing written, where Spark has to do it: too much of it, a table that is not on a local disk, keys
    that do not compare the same here, two staged rows with the same keys (which Spark names), or a file that Arrow
    would not copy as it is.
    """
    if not handle.exists or not handle.location.is_local:
        return None
    if not _is_small(staged, among) or not _are_comparable(handle, keys):
        return None
    root = handle.location.local_path
    names = [*keys, *filter(None, [marker])]
    marked = pa.concat_tables([pq.ParquetFile(root / file.path).read(columns=names) for file in staged])
    wanted_keys = marked.select(list(keys))
    if any(column.null_count for column in wanted_keys.columns) or _has_duplicates(wanted_keys):
        return None
    if not all(_is_copied_exactly(handle, file, keys) for file in among):
        return None
    if marker and not all(_is_copied_exactly(handle, file, keys, marker) for file in staged):
        return None
    gone = wanted_keys.filter(_is_marked(marked[marker])) if marker else wanted_keys.slice(0, 0)
    with ThreadPoolExecutor(_WORKERS) as pool:
        masks = _rows_with_keys([root / file.path for file in among], wanted_keys, pool)
        hits = [(file, rows) for file, rows in zip(among, masks, strict=True) if rows.true_count]
        codec = _codec(root / staged[0].path)
        copies = [
            pool.submit(_copy, root / file.path, root / folder / _place(handle, file, number), pc.invert(rows), codec)
            for number, (file, rows) in enumerate(hits)
            if rows.true_count < len(rows)
        ]
        for copy in copies:
            copy.result()
        matched = tuple(file for file, _ in hits)
        deleted = _rows_with_keys([root / file.path for file in matched], gone, pool) if len(gone) else []
    return MatchedFiles(
        matched, sum(rows.true_count for _, rows in hits), sum(int(rows.true_count) for rows in deleted)
    )


def copy_unmarked(handle: TableHandle, staged: Sequence[WrittenFile], marker: str, folder: str) -> None:
    """Copy the staged rows that ``marker`` does not mark into ``folder``, without that column.

    Args:
        staged: files that :func:`rewrite` has taken.
    """
    root = handle.location.local_path
    for number, file in enumerate(staged):
        source = root / file.path
        stays = pc.invert(_is_marked(pq.ParquetFile(source).read(columns=[marker])[marker]))
        if stays.true_count:
            _copy(source, root / folder / _place(handle, file, number), stays, _codec(source), without=marker)


def _is_marked(marker: pa.ChunkedArray) -> pa.BooleanArray:
    return pc.fill_null(marker, False).combine_chunks()


def _is_small(staged: Sequence[WrittenFile], among: Sequence[LiveFile]) -> bool:
    return sum(file.rows for file in staged) <= MOST_KEYS and sum(file.size for file in among) <= MOST_BYTES


def _are_comparable(handle: TableHandle, keys: Sequence[str]) -> bool:
    return all(key not in handle.partition_columns and _is_comparable(key, handle.columns.get(key)) for key in keys)


def _is_comparable(name: str, kind: object) -> bool:
    # Arrow takes a dot in a column's name for a path into a struct.
    return isinstance(kind, str) and kind in _KEY_TYPES and "." not in name


def _has_duplicates(wanted: pa.Table) -> bool:
    return bool(wanted.group_by(wanted.column_names).aggregate([]).num_rows < wanted.num_rows)


def _is_copied_exactly(
    handle: TableHandle, file: LiveFile | WrittenFile, keys: Sequence[str], beside: str | None = None
) -> bool:
    """Whether the file holds the keys (one may have joined the table later), and the table's types, in columns that
    Arrow writes as it read them, where Spark looks.

    Args:
        beside: a column that is not one of the table, and is not copied.
    """
    if _hive_folder(handle, file) is None:
        return False
    parquet = pq.ParquetFile(handle.location.local_path / file.path)
    if not set(keys) <= set(parquet.schema_arrow.names):
        return False
    if any(_holds_views(field.type) for field in parquet.schema_arrow):
        return False
    # Arrow has no INT96 to write: such times would become nanoseconds, which Spark does not read.
    if any(parquet.schema.column(i).physical_type == "INT96" for i in range(len(parquet.schema))):
        return False
    kinds = {name: plain_type(kind) for name, kind in handle.columns.items()}
    fields = json.loads(Schema.from_arrow(parquet.schema_arrow.remove_metadata()).to_json())["fields"]
    return all(field["name"] == beside or kinds.get(field["name"]) == plain_type(field["type"]) for field in fields)


def _holds_views(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return any(
        pa.types.is_string_view(inner_kind) or pa.types.is_binary_view(inner_kind) or _holds_views(inner_kind)
        for inner_kind in inner
    )


def _place(handle: TableHandle, file: LiveFile | WrittenFile, number: int) -> str:
    """Where the copy of a file goes: to the folder of the same partition."""
    return f"{_hive_folder(handle, file)}part-{number:05}.parquet"


def _hive_folder(handle: TableHandle, file: LiveFile | WrittenFile) -> str | None:
    """The folders of the file that are named after its partition, as they are spelled; None if one is missing."""
    named = {folder.partition("=")[0]: folder for folder in file.path.split("/")[:-1]}
    folders = [named.get(name) for name in handle.partition_columns]
    return None if None in folders else "".join(f"{folder}/" for folder in folders)


def _copy(source: Path, target: Path, stays: pa.BooleanArray, codec: str, without: str | None = None) -> None:
    """Copy the rows of a file that stay.

    Args:
        without: a column that is left out.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without a buffer, the chunk of each column of a row group would be read into memory as a whole.
    parquet = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
    schema = _without_views(pa.schema([field for field in parquet.schema_arrow if field.name != without]))
    with pq.ParquetWriter(
        target,
        schema,
        compression=codec,
        use_dictionary=[name for name in _dictionary_columns(parquet.metadata) if name != without] or False,
        store_decimal_as_integer=True,
        store_schema=False,
    ) as writer:
        # These entries say which version wrote the values, from which Spark knows the calendar of old dates.
        noted = parquet.metadata.metadata or {}
        writer.add_key_value_metadata({key: noted[key] for key in noted if key.startswith(b"org.apache.spark.")})
        offset = 0
        for piece in parquet.iter_batches(min(_rows_of(parquet, _PIECE_BYTES), _PIECE_ROWS)):
            kept = piece.select(schema.names).cast(schema).filter(stays[offset : offset + len(piece)])
            offset += len(piece)
            if len(kept):
                writer.write_batch(kept, row_group_size=_rows_of(parquet, _ROW_GROUP_BYTES))


def _without_views(schema: pa.Schema) -> pa.Schema:
    """``schema`` with types that Arrow can filter by: it has no such function for views, which deltalake writes."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in schema])


def _rows_of(parquet: pq.ParquetFile, size: int) -> int:
    """How many rows of a file take ``size`` bytes, or a little more."""
    footer = parquet.metadata
    whole: int = sum(footer.row_group(g).total_byte_size for g in range(footer.num_row_groups))
    return int(max(size * footer.num_rows // max(whole, 1), 1))


def _dictionary_columns(footer: pq.FileMetaData) -> list[str]:
    """Columns that a dictionary was good for when the file was written; trying it again takes most of the time."""
    chunks = [footer.row_group(g).column(i) for g in range(footer.num_row_groups) for i in range(footer.num_columns)]
    return sorted({chunk.path_in_schema for chunk in chunks if _has_dictionary(chunk.encodings)})


def _has_dictionary(encodings: Sequence[str]) -> bool:
    if "PLAIN_DICTIONARY" in encodings:
        # Spark's writer: pages in plain encoding are those it gave the dictionary up for.
        return "PLAIN" not in encodings
    return "RLE_DICTIONARY" in encodings


def _codec(staged: Path) -> str:
    """What Spark is set to compress with."""
    name = str(pq.read_metadata(staged).row_group(0).column(0).compression)
    return "NONE" if name == "UNCOMPRESSED" else name


def _rows_with_keys(files: Sequence[Path], wanted: pa.Table, workers: Executor) -> list[pa.BooleanArray]:
    """For each of ``files``, in the order of its rows, whether a row of ``wanted`` has the same keys.

    ``wanted`` has the columns of the key and no NULL. A join hashes all its rows, so the files are searched in parts of
    many row groups; what is held of them at a time is bounded.
    """
    footers = [pq.read_metadata(file) for file in files]

    def search(part: Part) -> list[pa.BooleanArray]:
        batches = (batch for file, group in part for batch in _keys(files[file], footers[file], group, wanted.schema))
        masks = [_have_keys(table, wanted) for table in _tables(batches)]
        ends = np.cumsum([footers[file].row_group(group).num_rows for file, group in part])
        # A bit for a row: all of them are held until the last file is searched.
        return [pa.array(mask) for mask in np.split(np.concatenate([*masks, np.zeros(0, dtype=bool)]), ends[:-1])]

    parts = _parts(footers, wanted.column_names)
    masks_by_file: list[list[pa.BooleanArray]] = [[] for _ in files]
    for part, masks in zip(parts, workers.map(search, parts), strict=True):
        for (file, _), mask in zip(part, masks, strict=True):
            masks_by_file[file].append(mask)
    return [pa.concat_arrays(masks) if masks else pa.array([], pa.bool_()) for masks in masks_by_file]


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
    for batch in parquet.iter_batches(_PIECE_ROWS, row_groups=[group], columns=schema.names):
        yield batch.select(schema.names).cast(schema)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """``batches`` put together, as many at a time as are searched at once: a row group may be larger than that."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _PART_ROWS or sum(held_batch.nbytes for held_batch in held) >= _PART_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _have_keys(rows: pa.Table, wanted: pa.Table) -> np.ndarray:
    numbered = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
    mask = np.zeros(len(rows), dtype=bool)
    mask[numbered.join(wanted, wanted.column_names, join_type="left semi")[_ROW].to_numpy()] = True
    return mask
