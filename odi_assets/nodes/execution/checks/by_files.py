"""What the files of staged rows tell of checks without a job of Spark: by their statistics, or by their keys alone.

A shuffle of all keys takes Spark longer than the write of some million rows. This process reads the keys of at most
that many: what it holds does not grow further with the rows. What is not certain by the files, Spark looks at.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odi_assets.config.compared_values import Exact, as_number, exact
from odi_assets.connections.location import Location

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from odi_assets.config.models.checks import Check
    from odi_assets.delta.files.footers import WrittenFile

MOST_BYTES = 256 * 1024**2
"""Columns of more bytes than that, unpacked, are compared by Spark: texts may be long."""
MOST_VALUES = 1_000
"""More values than that are compared by Spark with those that a column may have."""
_MARKS = 8
"""Bytes of marks for a key, at most: as many as the key itself has."""
MOST_ROWS = 5_000_000
"""More rows than that are compared by Spark. So many keys of eight bytes are 40 MB."""


def passed_by_files(
    check: Check, location: Location, files: Sequence[WrittenFile], kind: str, apart: Sequence[str] = ()
) -> bool:
    """Whether the files of all rows, below ``location``, say for certain that no row fails the check.

    Args:
        kind: the type of the check's first column, as Delta's log names it; empty for a check without one.
        apart: columns of rows that are not compared with rows of other values there.

    Raises:
        ValueError: the check has a bound that cannot be compared with such a column.
    """
    config = check.config
    if config.not_null is not None:
        return without_null(files, check.columns[0])
    if config.range is not None:
        ends = {key: exact(end, kind, ordered=True) for key, end in config.compared}
        return within(files, check.columns[0], ends.get("min"), ends.get("max"))
    if config.accepted_values is not None:
        accepted = {exact(value, kind, ordered=False) for _, value in config.compared}
        return only_accepted(location, files, check.columns[0], accepted)
    if config.unique is None:
        return False
    # One column of numbers is compared in a tenth of the time.
    if come_once(location, files, check.columns):
        return True
    return bool(apart) and come_once(location, files, (*check.columns, *apart))


def come_once(location: Location, files: Sequence[WrittenFile], columns: Sequence[str]) -> bool:
    """Whether it is certain that no two rows of ``files`` have the same values in ``columns``, rows with a NULL apart.

    False also means that somebody else has to look: there are too many rows, or the values are of a type that Arrow
    compares in another way than Spark, or a column is not in the files.
    """
    keys = _read(location, files, columns)
    if keys is None or not all(_same_in_both(field.type) for field in keys.schema):
        return False
    whole = keys.drop_null()
    if len(columns) == 1 and (numbers := _as_numbers(whole.column(0))) is not None:
        return _all_differ(numbers)
    return bool(whole.group_by(list(columns), use_threads=False).aggregate([]).num_rows == whole.num_rows)


def only_accepted(location: Location, files: Sequence[WrittenFile], column: str, accepted: set[Exact]) -> bool:
    """Whether it is certain that the column has no other values than these and NULL.

    False also means that somebody else has to look, as for :func:`come_once`, or that the column has many values.
    """
    table = _read(location, files, [column], as_dictionary=True)
    if table is None:
        return False
    kind, values = table.schema.field(0).type, set[Any]()
    is_text = pa.types.is_dictionary(kind)
    if not is_text and not _is_as_in_the_file(kind):
        return False
    for chunk in table.column(0).chunks:
        # Spark takes bytes that are no UTF-8 into a text.
        found = pc.drop_null(pc.unique(chunk.dictionary.cast(pa.binary()) if is_text else chunk))
        if len(found) > MOST_VALUES:
            return False
        values |= set(found.to_pylist())
    return values <= ({str(value).encode() for value in accepted} if is_text else accepted)


def _is_as_in_the_file(kind: pa.DataType) -> bool:
    """Whether Python's values of a type equal those of the project file, as they are compared."""
    types = pa.types
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind))


def _read(
    location: Location, files: Sequence[WrittenFile], columns: Sequence[str], *, as_dictionary: bool = False
) -> pa.Table | None:
    """The columns of all rows; None if there are none, or too many of them, or a column is not in the files.

    Args:
        as_dictionary: texts as dictionaries, which hold each text once.
    """
    if not files or sum(file.rows for file in files) > MOST_ROWS:
        return None
    filesystem, root = location.in_store()
    tables, left = [], MOST_BYTES
    for file in files:
        with filesystem.open(f"{root.rstrip('/')}/{file.path}", "rb") as stream:
            parquet = pq.ParquetFile(stream)
            # The files hold no columns of partitions, and Arrow opens no dictionary of a column that is not there.
            if any(name not in parquet.schema_arrow.names for name in columns):
                return None
            texts = [name for name in columns if pa.types.is_string(parquet.schema_arrow.field(name).type)]
            if as_dictionary and texts:
                parquet = pq.ParquetFile(stream, metadata=parquet.metadata, read_dictionary=texts)
            left -= _bytes_of(parquet.metadata, set(columns))
            if left < 0:
                return None
            tables.append(parquet.read(columns=list(columns), use_threads=False))
    return pa.concat_tables(tables)


def _bytes_of(metadata: pq.FileMetaData, columns: set[str]) -> int:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(int(chunk.total_uncompressed_size) for chunk in chunks if chunk.path_in_schema in columns)


def _all_differ(numbers: NDArray[Any]) -> bool:
    """Whether no number comes twice: by a mark for each possible number where they lie close together, as most keys
    do, and by sorting where they do not."""
    if not numbers.size:
        return True
    numbers = numbers.astype(np.int64, copy=False)  # A difference of short numbers may be none of their type.
    least, most = int(numbers.min()), int(numbers.max())
    if most - least < _MARKS * numbers.size:
        marks = np.zeros(most - least + 1, dtype=bool)
        marks[numbers - least] = True
        return bool(np.count_nonzero(marks) == numbers.size)
    numbers = np.sort(numbers)
    return not bool((numbers[1:] == numbers[:-1]).any())


def _as_numbers(column: pa.ChunkedArray) -> Any:
    """The values as an array of numbers, which is sorted in a tenth of the time that their hashes take; None if they
    are not of such a type."""
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_numpy()
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_numpy()
    return column.to_numpy() if pa.types.is_integer(kind) else None


def _same_in_both(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
    )


def without_null(files: Sequence[WrittenFile], column: str) -> bool:
    """Whether the statistics of ``files`` say that the column has no NULL."""
    return bool(files) and all(statistics.get("nullCount", {}).get(column) == 0 for statistics in _statistics(files))


def within(files: Sequence[WrittenFile], column: str, least: Exact | None, most: Exact | None) -> bool:
    """Whether the statistics of ``files`` say that all numbers of the column are within two bounds; None is no bound.

    Of floats, only the least is looked at: NaN is greater than all numbers, and in no statistics. Dates, times and
    texts are left to Spark.
    """
    if not files or not all(_is_number(bound) for bound in (least, most) if bound is not None):
        return False
    if isinstance(most, float):
        return False
    for statistics in _statistics(files):
        low = as_number(statistics.get("minValues", {}).get(column))
        high = as_number(statistics.get("maxValues", {}).get(column))
        if low is None or high is None:
            return False
        lowest = float(low) if isinstance(least, float) else low
        if (least is not None and lowest < least) or (most is not None and high > most):  # type: ignore[operator]
            return False
    return True


def _is_number(bound: Exact) -> bool:
    return isinstance(bound, Decimal | float)


def _statistics(files: Sequence[WrittenFile]) -> list[dict[str, Any]]:
    return [json.loads(file.stats) for file in files]
