"""Values of partition columns that have no folder of their own: rows with them are refused by name.

Delta's log has the empty text as NULL (protocol, "Partition Value Serialization"), and Spark names the folder of NULL
by a text. A row with one of these would come back with NULL, or its task would fail at a folder that is there already.
Bytes are written as text, so those that are no UTF-8 would come back as others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import MAXYEAR, MINYEAR
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from odi_assets.delta.files.footers import HIVE_NULL
from odi_assets.errors import TableError
from odi_assets.spark.lazy import F, T
from odi_assets.spark.raised import stop_message, stopped_by
from odi_assets.tables.columns import quoted, row_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EMPTY = "is empty, and Delta's log has no such partition but the one of NULL"
_NULLS = f"is {HIVE_NULL}, the name of the folder of NULL"
_NO_TEXT = "is no UTF-8, and a partition is named by a text"
_LONGEST_NAME = 255
_ESCAPED = "[\x01-\x1f\"#%'*/:=?\\\\{\\[\\]^\x7f]"
"""What Spark escapes in names of folders, each by three characters; a regular expression of Java's."""
_OTHER_YEARS = f"is no time of the years {MINYEAR} to {MAXYEAR}, and the log holds no others"
_LONGEST_SHOWN = 200
_TOO_LONG = f"is too long for the name of a folder, which has {_LONGEST_NAME} bytes at most"


def _room(name: str) -> int:
    """How many bytes the name of a folder has for a value of the column."""
    return _LONGEST_NAME - len(f"{name}=".encode())


def _fix(name: str) -> str:
    return (
        f"write another value in the transform, for example nullif({name}, '') where NULL is meant, or "
        f"hex({name}) for bytes; or partition by another column (`write.partition_by`); nothing was written"
    )


def with_folders(rows: DataFrame, partition_by: Sequence[str], uri: str) -> DataFrame:
    """``rows``, where a row whose partition has no folder of its own stops the job that writes them."""
    row = F.substring(row_text(rows.columns), 1, _LONGEST_SHOWN)
    for name in partition_by:
        kind = rows.schema[name].dataType
        value = F.col(quoted(name))
        if isinstance(kind, T.StringType | T.BinaryType):
            misfits = _of_texts(value, _room(name))
        elif isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
            misfits = [(~F.year(value).between(MINYEAR, MAXYEAR), _OTHER_YEARS)]
        else:
            continue
        start = f"a row for the table at {uri}: partition column `{name}` "
        stops = [(bad, stopped_by(start, why, ": ", row, fix=_fix(name)).cast(kind)) for bad, why in misfits]
        checked = reduce(lambda rest, stop: F.when(stop[0], stop[1]).otherwise(rest), reversed(stops), value)
        rows = rows.withColumn(name, checked)
    return rows


def _of_texts(value: Column, room: int) -> list[tuple[Column, str]]:
    as_text, as_bytes = value.cast("string"), value.cast("binary")
    return [
        (F.length(as_bytes) == 0, _EMPTY),
        (as_text == F.lit(HIVE_NULL), _NULLS),
        (~F.is_valid_utf8(as_text), _NO_TEXT),
        (F.octet_length(F.regexp_replace(as_text, _ESCAPED, "%..")) > room, _TOO_LONG),
    ]


def refused_row(text: str, uri: str) -> TableError | None:
    """The error over a row that stopped the job, in the text of an error of Spark; None for other errors."""
    stopped = stop_message(text)
    if stopped is None or not stopped[0].startswith(f"a row for the table at {uri}: "):
        return None
    return TableError(stopped[0], fix=stopped[1], uri=uri)


def require_folders(rows: pa.Table, partition_by: Sequence[str], uri: str) -> None:
    """Raises TableError if the partition of a row of an Arrow table has no folder of its own."""
    for name in partition_by:
        values = rows[name].unique()
        pairs = ((value, _why_none(value, _room(name))) for value in values)
        value, why = next((pair for pair in pairs if pair[1] is not None), (None, None))
        if why is not None:
            row = rows.slice(rows[name].index(value).as_py(), 1)
            shown = {column: _shown(row[column][0]) for column in row.column_names}
            raise TableError(
                f"a row for the table at {uri}: partition column `{name}` {why}: {str(shown)[:_LONGEST_SHOWN]}",
                fix=_fix(name),
                uri=uri,
                column=name,
            )


def _why_none(value: pa.Scalar, room: int) -> str | None:
    """Why a value has no folder of its own; None if it has one."""
    try:
        python_value = value.as_py()
    except OverflowError:
        return _OTHER_YEARS
    except UnicodeDecodeError:
        return _NO_TEXT
    if not isinstance(python_value, str | bytes):
        return None
    try:
        text = python_value.decode() if isinstance(python_value, bytes) else python_value
    except UnicodeDecodeError:
        return _NO_TEXT
    if not text:
        return _EMPTY
    return _NULLS if text == HIVE_NULL else _TOO_LONG if len(quote(text, safe="")) > room else None


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (OverflowError, UnicodeDecodeError):
        return str(value.cast(pa.large_binary() if pa.types.is_string(value.type) else pa.string()).as_py())
