"""A small project of every kind of table and state, in one folder, that is put back after each damage."""

from __future__ import annotations

import io
import os
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import deltalake

from odi_assets.cli import main

_HEAD = """\
project: damage
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "1"}}
pipelines:
- pipeline: p
  nodes:
"""
_BATCH = """\
  - name: raw
    read: &csv
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, k BIGINT, v STRING",
       options: {header: "true"}, incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
  - name: newest
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT k, id, v FROM raw"}
    write: {connection: lake, path: newest, mode: upsert, keys: [k], only_if_newer: id}
  - name: days
    read: *csv
    write: {connection: lake, path: days, mode: append, partition_by: [k]}
  - name: counts
    inputs: {raw: raw}
    transform: {sql: "SELECT k, count(*) AS n FROM raw GROUP BY k"}
    write: {connection: lake, path: counts, mode: overwrite}
"""
_STREAM = """\
  - name: seen
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, k BIGINT, v STRING",
           options: {header: "true"}}
    stream: {}
    write: {connection: lake, path: seen, mode: append}
"""
KEYS = 3
ROWS = 4
"""Rows of each file that lands."""

LOOKS = (
    "plan", "ls", "show p.raw", "state list", "state get p.raw", "state history p.raw", "runs list", "runs last p",
    "state recover --dry-run", "tables maintain --dry-run", "tables maintain --yes", "tables repair --dry-run",
    "explain p.newest --key k=1",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    command: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class World:
    """The project in ``root``, and the copy that it is put back from."""

    def __init__(self, root: Path, *, nodes: Literal["all", "batch", "stream"] = "all") -> None:
        self.root = root
        self.pristine = root.with_name(f"{root.name}.pristine")
        self.landed = 0
        batch, stream = (_BATCH if nodes != "stream" else ""), (_STREAM if nodes != "batch" else "")
        self.names = [*(("raw", "newest", "days", "counts") if batch else ()), *(("seen",) if stream else ())]
        root.mkdir(parents=True)
        (root / "landing").mkdir()
        (root / "odibi.yaml").write_text(_HEAD + batch + stream, encoding="utf-8")

    def build(self, deliveries: int = 3) -> None:
        """Run the project over some deliveries, with checkpoints of some logs, and keep a copy."""
        for number in range(deliveries):
            self.land()
            done = self.odi("run")
            if done.code:
                raise RuntimeError(done.text)
            if number == 1:
                for name in ("raw" if "raw" in self.names else "seen", "system/meta_runs"):
                    deltalake.DeltaTable(self.root / "lake" / name).create_checkpoint()
        self._kept = self.landed
        shutil.copytree(self.root, self.pristine, symlinks=True)

    def put_back(self) -> None:
        """Undo whatever was done since the copy was made."""
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root, symlinks=True)
        self.landed = self._kept

    def put_back_file(self, path: str) -> None:
        """Put one file back from the copy, as who has a copy would."""
        place = self.root / path
        remove(place)
        shutil.copy2(self.pristine / path, place)

    def land(self) -> None:
        """Land the next file."""
        self.landed += 1
        file = self.root / "landing" / f"{self.landed:04d}.csv"
        lines = [f"{row},{row % KEYS},v{row}" for row in self._ids(self.landed)]
        file.write_text("\n".join(["id,k,v", *lines, ""]), encoding="utf-8")
        moment = 1_700_000_000 + self.landed
        os.utime(file, (moment, moment))

    def odi(self, command: str) -> Answer:
        """Run a command of ``odi`` in this process, in the project's folder."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        before = Path.cwd()
        os.chdir(self.root)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = main(shlex.split(command))
        finally:
            os.chdir(before)
        printed = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        return Answer(command, code, *printed)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a node's table."""
        reader = deltalake.DeltaTable(self.root / "lake" / name).scan()
        return sorted(tuple(row[column] for column in self._columns(name)) for row in _records(reader))

    def expected(self, name: str) -> list[tuple[object, ...]]:
        """The rows that a node's table should have, computed in Python from what has landed."""
        ids = [row for number in range(1, self.landed + 1) for row in self._ids(number)]
        if name == "newest":
            return sorted((key, row, f"v{row}") for key, row in {row % KEYS: row for row in ids}.items())
        if name == "counts":
            return sorted((key, sum(row % KEYS == key for row in ids)) for key in {row % KEYS for row in ids})
        return sorted((row, row % KEYS, f"v{row}") for row in ids)

    def wrong(self) -> list[str]:
        """The nodes whose rows are not those expected."""
        return [name for name in self.names if self.rows(name) != self.expected(name)]

    @staticmethod
    def _ids(number: int) -> range:
        return range((number - 1) * ROWS, number * ROWS)

    @staticmethod
    def _columns(name: str) -> tuple[str, ...]:
        return {"newest": ("k", "id", "v"), "counts": ("k", "n")}.get(name, ("id", "k", "v"))


def _records(reader: object) -> list[dict[str, object]]:
    import pyarrow as pa

    return list(pa.RecordBatchReader.from_stream(reader).read_all().to_pylist())


def remove(path: Path) -> None:
    """Take away whatever is at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
