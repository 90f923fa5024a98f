"""Times of Parquet's INT96, which are nanoseconds: Spark cuts them to microseconds, and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odi_assets.sources.files.look.text import Fault

_FURTHEST = 9_200_000_000_000_000
"""Microseconds since 1970 that nanoseconds of 64 bits can count, too."""


def int96_look(remote: Mapping[str, Any] | None, names: Sequence[str]) -> Callable[[str], dict[str, Any]]:
    """A function that looks at the columns ``names`` of the Parquet file at a path or URI; it raises Fault, or returns
    an empty object."""

    def opened(path: str) -> Any:
        if remote is None:
            return open(path, "rb")  # noqa: PTH123  the caller closes it
        import fsspec

        return fsspec.open(path, "rb", **remote).open()

    def look(path: str) -> dict[str, Any]:
        with opened(path) as stream, opened(path) as again:
            fine, coarse = pq.ParquetFile(stream), pq.ParquetFile(again, coerce_int96_timestamp_unit="us")
            batches = (file.iter_batches(columns=list(names), use_threads=False) for file in (fine, coarse))
            for left, right in zip(*batches, strict=True):
                for name in names:
                    _require_whole(name, left.column(name), right.column(name))
        return {}

    return look


def _require_whole(name: str, fine: pa.Array, coarse: pa.Array) -> None:
    nanoseconds = np.asarray(pc.fill_null(fine.cast(pa.int64()), 0))
    microseconds = np.asarray(pc.fill_null(coarse.cast(pa.int64()), 0))
    if ((nanoseconds % 1000 != 0) & (np.abs(microseconds) < _FURTHEST)).any():
        raise Fault(0, f"column `{name}` has times with parts of a microsecond", "nanoseconds")
