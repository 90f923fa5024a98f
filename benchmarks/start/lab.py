"""A folder with a project, landing files for it and for the bare script, and commands that are timed as a whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.harness import Options

SCHEMA = "id BIGINT, c1 STRING, c2 STRING, c3 DOUBLE, c4 DOUBLE, c5 BIGINT, c6 DATE, c7 STRING"
_PROJECT = f"""\
project: start
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
system: {{connection: lake, path: system}}
pipelines:
- pipeline: p
  nodes:
  - name: rows
    read:
      connection: landing
      format: csv
      path: "*.csv"
      schema: "{SCHEMA}"
      options: {{header: "true"}}
      incremental: files
    write: {{connection: lake, path: rows, mode: append}}
"""
_HEAD = ",".join(part.split()[0] for part in SCHEMA.split(", ")) + "\n"
_REPOSITORY = Path(__file__).parents[2]
_SCRIPT = Path(__file__).with_name("script.py")


@dataclass(frozen=True)
class Taken:
    """What a whole command took: seconds until the prompt is back, and CPU seconds with all its children."""

    seconds: float
    cpu: float


@dataclass
class StartLab:
    """A project in a folder of its own."""

    folder: Path
    options: Options
    _drawn: random.Random = field(default_factory=lambda: random.Random(22))
    _files: int = 0

    @classmethod
    @contextmanager
    def opened(cls, options: Options) -> Iterator[StartLab]:
        """A lab whose archive of classes is made, and whose files go in the end."""
        with tempfile.TemporaryDirectory(prefix="odi-start-") as folder:
            lab = cls(Path(folder), options)
            for name in ("landing", "bare"):
                (lab.folder / name).mkdir()
            (lab.folder / "odibi.yaml").write_text(_PROJECT, encoding="utf-8")
            options.say("the archive of classes ...")
            lab.odi("java", "prepare")
            yield lab

    def land(self, rows: int, folder: str = "landing") -> Path:
        """A new CSV file of 8 columns; about 95 bytes a row."""
        self._files += 1
        number, draw = self._files, self._drawn.random
        file = self.folder / folder / f"{number:06}.csv"
        with file.with_suffix(".tmp").open("w", encoding="utf-8") as out:
            out.write(_HEAD)
            for row in range(rows):
                texts = f"{draw():.16f},{draw():.16f}"
                out.write(
                    f"{number}{row:07},{texts},{draw():.6f},{draw() * 1e6:.4f},{row},2024-01-0{row % 9 + 1},text\n"
                )
        return file.with_suffix(".tmp").rename(file)

    def land_again(self, file: Path) -> Path:
        """A copy of a landing file with one row more."""
        self._files += 1
        copy = file.with_name(f"{self._files:06}.csv")
        shutil.copyfile(file, copy.with_suffix(".tmp"))
        with copy.with_suffix(".tmp").open("a", encoding="utf-8") as out:
            out.write(f"{self._files},a,b,0.5,0.5,0,2024-01-01,one more\n")
        return copy.with_suffix(".tmp").rename(copy)

    def sample(self) -> Path:
        """A copy of the sample, with half of January landed."""
        folder = self.folder / "sample"
        folder.mkdir()
        shutil.copy(_REPOSITORY / "odibi.yaml", folder)
        shutil.copytree(_REPOSITORY / "data" / "landing", folder / "data" / "landing")
        self.odi("sample", "reset", "--yes", "--days", "15", where=folder)
        return folder

    def landed(self) -> int:
        """How many files have landed, each with a row that no other has."""
        return len(list((self.folder / "landing").glob("*.csv")))

    def ids(self) -> list[int]:
        """The ids of all rows of the node's table."""
        rows = DeltaTable(str(self.folder / "lake" / "rows")).scan(columns=["id"])
        return [row["id"] for batch in pa.RecordBatchReader.from_stream(rows) for row in batch.to_pylist()]

    def odi(self, *arguments: str, environment: Mapping[str, str] | None = None, where: Path | None = None) -> Taken:
        """A command of ``odi``, in a process of its own."""
        return self._timed([sys.executable, "-m", "odi_assets.cli", *arguments], environment, where)

    def bare(self, file: Path) -> Taken:
        """The bare script."""
        return self._timed(
            [sys.executable, str(_SCRIPT), SCHEMA, str(file), str(self.folder / "bare-table")], None, None
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command of ``odi`` that goes on while somebody else kills it."""
        command = [sys.executable, "-m", "odi_assets.cli", *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.folder, stdin=quiet, stdout=quiet, stderr=quiet)

    def _timed(self, command: list[str], environment: Mapping[str, str] | None, where: Path | None) -> Taken:
        with tempfile.TemporaryFile() as output:
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=where or self.folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
            if status:
                output.seek(0)
                raise RuntimeError(f"{' '.join(command)} ended with {status}:\n{output.read().decode()[-3000:]}")
        return Taken(seconds, used.ru_utime + used.ru_stime)


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def makers() -> list[psutil.Process]:
    """The processes that make an archive."""
    name = "odi_assets.spark.jvm.prepare"
    return [one for one in psutil.process_iter() if any(name in part for part in command_of(one))]


def processes_of(folder: Path) -> list[psutil.Process]:
    """The processes whose current folder is ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found
