"""Which files have one shape: their footers, or the first records of their texts, compared before anything is read.

Spark takes the columns of one file for all files that it reads together: it leaves out columns that only other files
have, and gives values of CSV the names of another file's header. So files of different shape are read apart.

A shape is a text that is equal only for files with the same columns. Spark determines what the columns are.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from odi_assets.connections.location import Location
from odi_assets.sources.files.look.files import looked_at
from odi_assets.sources.files.settings import FileFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shapes(
    spark: SparkSession, base: Location, paths: Sequence[str], format_: str, options: Mapping[str, str]
) -> dict[str, list[str]]:
    """The files below ``base`` by their shape, in the order of ``paths``.

    A file that cannot be looked at, damaged or packed in a way that only Spark knows, is of a shape of its own: Spark
    reads it, or says what is wrong with it.

    Args:
        format_: CSV or Parquet. The columns of JSON are known only after all of it was read.
        options: Spark's reader options.
    """
    look = _looker(format_, options, None if base.is_local else dict(base.fsspec_options))
    places = [base.child(path).uri for path in paths]
    groups: dict[str, list[str]] = {}
    for path, shape in zip(paths, looked_at(spark, look, places), strict=True):
        groups.setdefault(shape or f"only {path}", []).append(path)
    return groups


def _looker(format_: str, options: Mapping[str, str], remote: Mapping[str, Any] | None) -> Callable[[str], str]:
    """A function that returns the shape of the file at a path or URI; the empty text if the shape is not known.

    It is sent to Spark's executors, which may not have this package: it and what it calls are made within functions.

    Args:
        remote: fsspec's options for the store; None for local files.
    """
    shape = _parquet_shape() if format_ == FileFormat.PARQUET else _csv_shape(options)

    def look(path: str) -> str:
        try:
            if remote is None:
                with open(path, "rb") as stream:  # noqa: PTH123  executors get a function without imports
                    return shape(stream, path)
            import fsspec

            with fsspec.open(path, "rb", **remote) as stream:
                return str(shape(stream, path))
        except Exception:  # noqa: BLE001  whatever is wrong with it, Spark reads the file next and says so
            return ""

    return look


def _parquet_shape() -> Callable[[Any, str], str]:
    def shape(stream: Any, path: str) -> str:
        del path
        footer = pyarrow.parquet.read_metadata(stream)
        # The first line of the text is the address of an object.
        columns: str = str(footer.schema).partition("\n")[2]
        # Spark takes the types from here where it wrote the file.
        own = (footer.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata", b"")
        return columns + str(own, "utf-8", "replace")

    return shape


def _csv_shape(options: Mapping[str, str]) -> Callable[[Any, str], str]:
    """With a header, the shape of a file is its first record; without one, the number of values in it."""
    by_name = {name.lower(): value for name, value in options.items()}
    is_true = {name for name, value in by_name.items() if value.lower() == "true"}
    has_header, is_multi_line = "header" in is_true, "multiline" in is_true
    encoding = by_name.get("encoding", by_name.get("charset", "utf-8"))
    separator = by_name.get("sep", by_name.get("delimiter", ",")).replace("\\t", "\t")
    quote, line_end = by_name.get("quote", '"'), by_name.get("linesep")
    packed = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
    first_look, longest = 64 * 1024, 16 * 1024 * 1024

    def first_record(text: str, is_whole: bool) -> str | None:
        lines = re.split(re.escape(line_end) if line_end else "\r\n|\r|\n", text)
        record = ""
        for line in lines if is_whole else lines[:-1]:
            if not record and not line.strip():
                continue
            record += line + "\n"
            if not (is_multi_line and quote and record.count(quote) % 2):
                return record
        return record if is_whole else None

    def shape(stream: Any, path: str) -> str:
        codec = next((codec for end, codec in packed.items() if path.endswith(end)), None)
        if codec is None and path.endswith((".deflate", ".lz4", ".snappy", ".xz")):
            return ""
        unpacked = stream if codec is None else pyarrow.CompressedInputStream(pyarrow.PythonFile(stream), codec)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        text, record, size = "", None, first_look
        while record is None and len(text) < longest:
            data = unpacked.read(size)
            text += decoder.decode(data, final=not data)
            record, size = first_record(text, is_whole=not data), 2 * size
        if has_header or record is None:
            return record or ""
        plain = record.replace(separator, "\x1f") if len(separator) > 1 else record
        delimiter = "\x1f" if len(separator) > 1 else separator
        quoting = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
        values = next(csv.reader([plain], delimiter=delimiter, **quoting))
        return f"{len(values)} values"

    return shape
