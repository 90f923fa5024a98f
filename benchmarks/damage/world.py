"""A small project of every kind of table and state, in one folder, that is put back after each damage."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

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
_SYSTEM = "system: {connection: lake, path: system}\n"
_CSV = """{connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, k BIGINT, v STRING",
      options: {header: "true"}%s}"""
_FILES = _CSV % ", incremental: {mode: files}"
_NODES: Mapping[str, str] = {
    "raw": f"""\
  - name: raw
    read: {_FILES}
    write: {{connection: lake, path: raw, mode: append}}
""",
    "newest": """\
  - name: newest
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT k, id, v FROM raw"}
    write: {connection: lake, path: newest, mode: upsert, keys: [k], only_if_newer: id}
""",
    "days": f"""\
  - name: days
    read: {_FILES}
    write: {{connection: lake, path: days, mode: append, partition_by: [k]}}
""",
    "counts": """\
  - name: counts
    inputs: {raw: raw}
    transform: {sql: "SELECT k, count(*) AS n FROM raw GROUP BY k"}
    write: {connection: lake, path: counts, mode: overwrite}
""",
    "by_k": """\
  - name: by_k
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT k, count(*) AS n FROM raw GROUP BY k"}
    write: {connection: lake, path: by_k, mode: partition_overwrite, partition_by: [k]}
""",
    "copied": """\
  - name: copied
    read: {connection: landing, format: delta, path: table, incremental: {mode: version}}
    write: {connection: lake, path: copied, mode: append}
""",
    "seen": f"""\
  - name: seen
    read: {_CSV % ""}
    stream: {{}}
    write: {{connection: lake, path: seen, mode: append}}
""",
    "matched": """\
  - name: matched
    inputs:
      orders: {read: {connection: landing, format: json, path: "orders/*.json", schema: "id BIGINT, at TIMESTAMP"}}
      payments: {read: {connection: landing, format: json, path: "payments/*.json", schema: "of BIGINT, at TIMESTAMP"}}
    stream:
      inputs:
        orders: {watermark: {column: at, delay: 2m}, max_files_per_batch: 1}
        payments: {watermark: {column: at, delay: 2m}, max_files_per_batch: 1}
      state_partitions: 1
      unmatched_rows: unmatched
    transform:
      sql: SELECT id, orders.at FROM orders JOIN payments ON id = of
        AND payments.at BETWEEN orders.at - INTERVAL 5 MINUTES AND orders.at + INTERVAL 5 MINUTES
    write: {connection: lake, path: matched, mode: append}
""",
}
WORLDS: Mapping[str, tuple[str, ...]] = {
    "batch": ("raw", "newest", "days", "counts"),
    "stream": ("seen",),
    "state in a file": ("raw", "newest", "seen"),
    "partitions": ("raw", "by_k", "copied"),
    "kept rows": ("matched",),
}
"""The nodes of each kind of world; that of a state file has no ``system``."""
KEYS = 3
ROWS = 4
"""Rows of each file that lands."""


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

    def __init__(self, root: Path, kind: str = "batch") -> None:
        self.root = root
        self.pristine = root.with_name(f"{root.name}.pristine")
        self.kind = kind
        self.names = WORLDS[kind]
        self.landed = 0
        root.mkdir(parents=True)
        (root / "landing").mkdir()
        head = _HEAD.replace(_SYSTEM, "") if kind == "state in a file" else _HEAD
        (root / "odibi.yaml").write_text(head + "".join(_NODES[name] for name in self.names), encoding="utf-8")

    @property
    def looks(self) -> tuple[str, ...]:
        """Commands that change no row."""
        node = f"p.{self.names[0]}"
        # A stream has no HWM in the state.
        marked = () if self.names[0] in ("seen", "matched") else (f"state get {node}", f"state history {node}")
        explained = ("explain p.newest --key k=1", "lineage p.newest") if "newest" in self.names else ()
        # Whether rows differ is what an audit is asked, and no damage.
        audited = (f"audit {node}",) if marked else ()
        return (
            "plan", "ls", f"show {node}", "state list", *marked, "runs list", "runs last p", "state recover --dry-run",
            "tables maintain --dry-run", "tables maintain --yes", "tables repair --dry-run", "metrics",
            *explained, *audited,
        )  # fmt: skip

    def build(self, deliveries: int = 3) -> None:
        """Run the project over some deliveries, with checkpoints of some logs, and keep a copy."""
        for number in range(deliveries):
            self.land()
            done = self.odi("run")
            if done.code:
                raise RuntimeError(done.text)
            # One of a version in between, and one of the newest, whose commit is beside it.
            names = {1: (self.names[0], "system/meta_runs"), 2: (self.names[-1], "system/meta_state")}.get(number, ())
            for table in (self.root / "lake" / name for name in names):
                if table.is_dir() and not (table / "_delta_log" / "_last_checkpoint").exists():
                    deltalake.DeltaTable(table).create_checkpoint()
        self._kept = self.landed
        shutil.copytree(self.root, self.pristine, symlinks=True)

    def put_back(self) -> None:
        """Undo whatever was done since the copy was made."""
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root, symlinks=True)
        self.landed = self._kept

    def keep(self) -> Callable[[], None]:
        """Copy the folder as it is now. What is returned puts it back."""
        copy, landed = self.root.with_name(f"{self.root.name}.kept"), self.landed
        if copy.exists():
            shutil.rmtree(copy)
        shutil.copytree(self.root, copy, symlinks=True)

        def back() -> None:
            shutil.rmtree(self.root)
            shutil.copytree(copy, self.root, symlinks=True)
            self.landed = landed

        return back

    def put_back_file(self, path: str) -> None:
        """Put one file or folder back from the copy, as who has a copy would."""
        place, copy = self.root / path, self.pristine / path
        remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy.is_dir():
            shutil.copytree(copy, place, symlinks=True)
        else:
            shutil.copy2(copy, place)

    def land(self) -> None:
        """Land the next delivery."""
        self.landed += 1
        ids = self._ids(self.landed)
        if "matched" in self.names:
            self._write(f"orders/{self.landed:04d}.json", map(json.dumps, map(_order, ids)))
            # The last order of a delivery is paid by nobody.
            self._write(f"payments/{self.landed:04d}.json", map(json.dumps, map(_payment, ids[:-1])))
            return
        self._write(f"{self.landed:04d}.csv", ["id,k,v", *(f"{row},{row % KEYS},v{row}" for row in ids)])
        if "copied" in self.names:
            rows = [{"id": row, "k": row % KEYS, "v": f"v{row}"} for row in ids]
            deltalake.write_deltalake(self.root / "landing" / "table", pa.Table.from_pylist(rows), mode="append")

    def _write(self, name: str, lines: Iterable[str]) -> None:
        file = self.root / "landing" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
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
        printed = [stream.buffer.getvalue().decode() for stream in (out, err)]
        return Answer(command, code, *printed)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a node's table."""
        return sorted(tuple(record[column] for column in self._columns(name)) for record in self._records(name))

    def _records(self, name: str) -> list[dict[str, Any]]:
        reader = deltalake.DeltaTable(self.root / "lake" / name).scan()
        return list(pa.RecordBatchReader.from_stream(reader).read_all().to_pylist())

    def expected(self, name: str) -> list[tuple[object, ...]]:
        """The rows that a node's table should have, computed in Python from what has landed."""
        ids = [row for number in range(1, self.landed + 1) for row in self._ids(number)]
        if name == "newest":
            return sorted((key, row, f"v{row}") for key, row in {row % KEYS: row for row in ids}.items())
        if name in ("counts", "by_k"):
            return sorted((key, sum(row % KEYS == key for row in ids)) for key in {row % KEYS for row in ids})
        if name == "matched":
            return sorted((row,) for row in ids if (row + 1) % ROWS)
        return sorted((row, row % KEYS, f"v{row}") for row in ids)

    def wrong(self) -> list[str]:
        """The nodes whose rows are not those expected, and the tables of kept rows."""
        found = [name for name in self.names if self.rows(name) != self.expected(name)]
        return [*found, *(["unmatched"] if "matched" in self.names and not self._has_kept_rows() else [])]

    def _has_kept_rows(self) -> bool:
        """Whether orders that nobody paid are kept, or doctor says which are not."""
        # A query that began anew keeps them once more.
        sides = (side for record in self._records("unmatched") for side in record["row"].values())
        kept = sorted({side["id"] for side in sides if side is not None})
        wanted = [ROWS * number - 1 for number in range(1, self.landed)]
        return kept == wanted or (set(kept) < set(wanted) and "lacks the rows of" in self.odi("doctor").text)

    @staticmethod
    def _ids(number: int) -> range:
        return range((number - 1) * ROWS, number * ROWS)

    @staticmethod
    def _columns(name: str) -> tuple[str, ...]:
        named = {"newest": ("k", "id", "v"), "counts": ("k", "n"), "by_k": ("k", "n"), "matched": ("id",)}
        return named.get(name, ("id", "k", "v"))


def _order(row: int) -> dict[str, Any]:
    return {"id": row, "at": _hour(row)}


def _payment(row: int) -> dict[str, Any]:
    return {"of": row, "at": _hour(row)}


def _hour(row: int) -> str:
    """The time of a delivery: the next one takes what nobody paid out of the state."""
    return datetime.fromtimestamp(1_704_103_200 + 3600 * (row // ROWS), UTC).isoformat()


def remove(path: Path) -> None:
    """Take away whatever is at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
