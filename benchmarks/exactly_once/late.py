"""A node that is a thousand commits behind its source, against one that is one commit behind: CPU of the same rows.

What a run takes is what `odi run` takes with its JVM, from their start: a late node is mostly run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exactly_once.lab import Lab, Pipeline
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_child, timed_row

if TYPE_CHECKING:
    import pyarrow as pa

_WRITES = {"append": "mode: append", "upsert": "mode: upsert, keys: [id]"}
_SINGLY = count()


def late(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """The commits append; or they are upserts, each of which replaces half of the rows of the one before."""
    commits = sizes.commits
    for mode in _WRITES:
        lab.say(f"{mode}: {commits:,} commits of {sizes.rows_of_commit:,} rows, and one of as many rows")
        many, one = lab.root / f"many-{mode}", lab.root / f"one-{mode}"
        write_commits(many, commits, sizes.rows_of_commit, upsert=mode == "upsert")
        write_commits(one, 1, commits * sizes.rows_of_commit, upsert=mode == "upsert")
        took: dict[Path, list[float]] = {many: [], one: []}
        for _ in range(sizes.late_rounds):
            for table, seconds in took.items():
                child = in_child("benchmarks.exactly_once.process", "late", str(behind(lab, table, mode).root))
                seconds.append(float(child["cpu"]))
        name = f"{mode} of {commits:,} commits, CPU seconds"
        yield timed_row(name, took[many], took[one], "one commit of as many rows", 1.5)


def behind(lab: Lab, table: Path, mode: str) -> Pipeline:
    """A project whose node has read version 0 of ``table``."""
    from odi_assets.delta.table import TableHandle
    from odi_assets.sources.marks import VersionMark
    from odi_assets.state.records import NO_TABLE

    read = f"{{connection: landing, format: delta, path: {table.name}, incremental: version}}"
    pipeline = lab.pipeline(f"- {{name: copy, read: {read}, write: {{connection: lake, path: copy, {_WRITES[mode]}}}}}")
    (pipeline.root / "landing" / table.name).symlink_to(table)
    source = TableHandle.open(pipeline.project.location("landing", table.name))
    mark = VersionMark(0, source.table_id).value
    pipeline.state.compare_and_set("p.copy", mark, expected_revision=None, target_commit=NO_TABLE)
    return pipeline


def _rows(first: int, number: int) -> pa.Table:
    import pyarrow as pa

    ids = range(first, first + number)
    return pa.table({"id": ids, "name": [f"customer {i % 997}" for i in ids], "price": [i * 0.25 for i in ids]})


def write_commits(table: Path, commits: int, rows: int, *, upsert: bool) -> None:
    """A table whose version 0 has one row, and ``commits`` of so many rows after it."""
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    from odi_assets.connections.location import Location
    from odi_assets.delta.commit import FileChanges, Stamp, commit
    from odi_assets.delta.files.footers import written_files
    from odi_assets.delta.table import TableHandle

    location, apart = Location(str(table)), rows // 2 if upsert else rows
    write_deltalake(str(table), _rows(-1, 1))
    for number in range(commits):
        folder = table / f"odi_write={next(_SINGLY):032x}"
        folder.mkdir()
        pq.write_table(_rows(number * apart, rows), folder / "part-00000.parquet")
        handle = TableHandle.open(location)
        found = written_files(location, folder.name, ("id",))
        updated = rows - apart if number else 0
        made = partial(FileChanges, rows_updated=updated, keys=("id",)) if upsert else FileChanges
        stamp = Stamp("benchmark", handle.transaction_number("benchmark") + 1)
        commit(handle, handle.schema_json, (), made("rows", found), stamp)
