"""The model: what a table must hold after a run, from the sources as they are. It reads them itself."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.change_sweep.world import Expected, Home, NodeAt, Row, World, row


def table_rows(path: Path, version: int | None = None) -> Counter[Row]:
    """The rows of a Delta table, or of a version of it; none if there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return Counter()
    found = pa.table(DeltaTable(str(path), version=version).scan().read_all())
    return Counter(row(one) for one in found.to_pylist())


def table_version(path: Path) -> int | None:
    """The version of a Delta table."""
    return DeltaTable(str(path)).version() if DeltaTable.is_deltatable(str(path)) else None


def files_of(folder: Path) -> list[Path]:
    """The files of a landing folder, through links too."""
    found = (Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted(file for file in found if not file.name.startswith((".", "_")))


def file_rows(file: Path, folder: Path) -> Iterator[Row]:
    """The rows of a landing file, with the columns that its folders name."""
    named = dict(part.split("=", 1) for part in file.relative_to(folder).parts[:-1] if "=" in part)
    if not file.stat().st_size:
        return
    if file.suffix == ".csv":
        with file.open(newline="", encoding="utf-8") as lines:
            yield from (row({**one, **named}) for one in csv.DictReader(lines))
    elif file.suffix == ".json":
        for line in file.read_text(encoding="utf-8").splitlines():
            yield row({**json.loads(line), **named})
    else:
        for one in pq.ParquetFile(file).read().to_pylist():
            yield row({**one, **named})


def source_rows(home: Home, at: NodeAt) -> frozenset[Row]:
    """The rows of what a node reads, as they are now."""
    source = home.source(at)
    if at.upstream is not None or at.node["read"]["format"] == "delta":
        return frozenset(table_rows(source))
    return frozenset(one for file in files_of(source) for one in file_rows(file, source))


def cursor(one: Row, column: str = "v") -> int:
    """The value of a column of numbers."""
    return int(dict(one)[column])


def take_in(
    world: World, home: Home, at: NodeAt, *, full: bool = False, days: tuple[date, date] | None = None
) -> Expected:
    """What the table of a node must hold after a run that succeeded."""
    path, source = home.target(at), home.source(at)
    expected, now = world.expected(path), source_rows(home, at)
    reads = str(source), world.rewrites[str(source)]
    if days is not None:
        return replace(expected, rows=_with_days(expected.rows, sums_by_day(now), *days))
    mode, column = at.node["write"]["mode"], at.increment.get("column")
    marks = {(str(source), column): max((cursor(one, column) for one in now), default=0)} if column else {}
    rewritten = _is_rewritten(expected, at, reads)
    if full or rewritten or (mode == "overwrite" and not (at.increment and now <= expected.seen)):
        if expected.rows - now or full:
            world.rewrite(path)
        return replace(expected, rows=whole(at, now), seen=now, marks=marks, read_from=reads)
    if mode == "partition_overwrite":
        # The days of rows that came, went or changed.
        days_of = {dict(one)["day"] for one in now ^ expected.seen}
        others = frozenset(one for one in expected.rows if dict(one)["day"] not in days_of)
        affected = frozenset(one for one in now if dict(one)["day"] in days_of)
        return replace(expected, rows=others | sums_by_day(affected), seen=now, read_from=reads)
    fresh = now - expected.seen
    if column and (mark := expected.marks.get((str(source), column))) is not None:
        # No increment can see a row whose cursor lies below the HWM.
        fresh = frozenset(one for one in fresh if cursor(one, column) > mark)
    return replace(
        expected,
        rows=_joined(at, expected.rows, fresh),
        seen=expected.seen | now,
        marks={**expected.marks, **marks},
        read_from=reads,
    )


def _is_rewritten(expected: Expected, at: NodeAt, reads: tuple[str, int]) -> bool:
    """Whether a version increment reads its table whole: it lost rows since, or is another one."""
    return at.increment.get("mode") == "version" and expected.read_from not in (None, reads)


def whole(at: NodeAt, now: frozenset[Row]) -> frozenset[Row]:
    """The rows of a table that is made of all rows of its source."""
    mode = at.node["write"]["mode"]
    if mode == "partition_overwrite":
        return sums_by_day(now, at.node["write"].get("partition_by", ("day",)))
    return frozenset(newest(now, at.node["write"]["keys"])) if mode in ("upsert", "append_once") else now


def _joined(at: NodeAt, rows: frozenset[Row], fresh: frozenset[Row]) -> frozenset[Row]:
    write = at.node["write"]
    if write["mode"] in ("append", "overwrite"):
        # With nothing new, an overwrite leaves what was appended before.
        return rows | fresh
    keys = write["keys"]
    if write["mode"] == "append_once":
        stored = {_key(one, keys) for one in rows}
        return rows | frozenset(one for one in fresh if _key(one, keys) not in stored)
    affected = {_key(one, keys) for one in fresh}
    same = frozenset(one for one in rows if _key(one, keys) in affected)
    return (rows - same) | frozenset(newest(same | fresh, keys))


def newest(rows: Iterable[Row], keys: list[str]) -> Iterable[Row]:
    """Of the rows of each key the one with the greatest ``v``."""
    found: dict[Any, Row] = {}
    for one in sorted(rows, key=cursor):
        found[_key(one, keys)] = one
    return found.values()


def _key(one: Row, keys: list[str]) -> tuple[str | None, ...]:
    columns = dict(one)
    return tuple(columns.get(key) for key in keys)


def sums_by_day(rows: Iterable[Row], by: Sequence[str] = ("day",)) -> frozenset[Row]:
    """Number and sum of each day's rows, or of the rows that are equal in other columns."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for one in rows:
        found[tuple(dict(one)[name] for name in by)].append(cursor(one))
    return frozenset(
        row({**dict(zip(by, values, strict=True)), "n": len(all_of), "total": sum(all_of)})
        for values, all_of in found.items()
    )


def _with_days(rows: frozenset[Row], sums: frozenset[Row], start: date, end: date) -> frozenset[Row]:
    def inside(one: Row) -> bool:
        return start <= date.fromisoformat(dict(one)["day"]) < end

    return frozenset(one for one in rows if not inside(one)) | frozenset(one for one in sums if inside(one))
