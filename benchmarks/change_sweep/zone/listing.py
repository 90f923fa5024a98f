"""What lies in a landing zone, read without the product: files, what they hold, and the values that folders give."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from benchmarks.change_sweep.world import Row, row

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_HIDDEN = re.compile(r"[_.]")
Content = tuple[int, bytes]
"""When a file was changed, and its bytes."""


@dataclass(frozen=True)
class FileThen:
    """A file as it is at some time.

    Attributes:
        path: where it is, below the landing zone.
        content: when it was changed, in nanoseconds, and its bytes.
    """

    path: str
    content: Content

    @property
    def data(self) -> bytes:
        return self.content[1]

    def values(self, columns: Iterable[str]) -> Mapping[str, str]:
        """What its folders (``k=1``) say of those ``columns``."""
        named = dict(part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part)
        found = {name: unquote(value) for name, value in named.items() if name in columns}
        return {name: value for name, value in found.items() if value != HIVE_NULL}

    def rows(self, columns: Iterable[str]) -> list[Row]:
        """Its rows, as a table with these columns has them."""
        values = self.values(columns)
        return [row({name: {**one, **values}.get(name) for name in columns}) for one in self._records()]

    def _records(self) -> list[dict[str, Any]]:
        data = gzip.decompress(self.data) if self.path.endswith(".gz") else self.data
        kind = self.path.removesuffix(".gz").rpartition(".")[2]
        if kind == "csv":
            return list(csv.DictReader(io.StringIO(data.decode())))
        if kind == "json":
            return [json.loads(line) for line in data.splitlines()]
        found: list[dict[str, Any]] = pq.ParquetFile(io.BytesIO(data)).read().to_pylist()
        return found


def is_hidden(path: str) -> bool:
    """Whether a file is none of a landing zone's: ``_a.csv`` and ``.a.csv``."""
    return any(_HIDDEN.match(part) is not None for part in path.split("/"))


def files_in(folder: Path, *, hidden: bool = False) -> dict[str, FileThen]:
    """The files below ``folder`` by path, through links too; those without a byte are left out.

    Args:
        hidden: those that are hidden, instead of the others.
    """
    found = {}
    for place, _, names in os.walk(folder, followlinks=True):
        for file in (Path(place) / name for name in names):
            path = file.relative_to(folder).as_posix()
            if is_hidden(path) == hidden and (data := file.read_bytes()):
                found[path] = FileThen(path, (file.stat().st_mtime_ns, data))
    return found
