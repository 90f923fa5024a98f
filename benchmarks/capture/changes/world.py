"""A PostgreSQL server that can be restarted, a project that captures it, and runs of that project."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg

from benchmarks.capture.kills import killed_at
from benchmarks.capture.postgres import opened
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets_tests.sources.sql.servers import DATABASE, PostgresServer, postgres, postgres_again

SLOT = "odi_sweep"
NAMES = ("a", "b", "c")
"""Tables that nodes apply; `c` has a history too."""
_SCHEMA = """
DROP SCHEMA IF EXISTS other CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (x int, y text); CREATE DOMAIN small AS int;
CREATE TABLE a (id int PRIMARY KEY, n int, m mood, at timestamptz);
CREATE TABLE b (id int PRIMARY KEY, t text NOT NULL UNIQUE, d numeric(10,2), s small);
CREATE TABLE c (id int, k text, body text, p pair, PRIMARY KEY (k, id));
ALTER TABLE c ALTER body SET STORAGE EXTERNAL;
INSERT INTO a SELECT g, g, 'low', '2024-01-01Z' FROM generate_series(1, 30) g;
INSERT INTO b SELECT g, 't' || g, g / 4.0, g FROM generate_series(1, 20) g;
INSERT INTO c SELECT g, 'k' || g, repeat(md5(g::text), 100), ROW(g, 'y')::pair FROM generate_series(1, 10) g
"""


@dataclass
class ServerInHand:
    """A server that can be stopped in any way, and started again."""

    folder: Path
    server: PostgresServer
    _running: ExitStack

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        return opened(self.server, autocommit=autocommit)

    def restart(self, how: signal.Signals) -> None:
        """Stop it as ``pg_ctl stop`` does: SIGINT is `-m fast`, SIGQUIT `-m immediate`."""
        file = self.folder / "data" / "postmaster.pid"
        process = int(file.read_text(encoding="utf-8").split()[0])
        os.kill(process, how)
        while _lives(process):
            time.sleep(0.02)
        self._running.close()
        file.unlink(missing_ok=True)
        self.server = self._running.enter_context(postgres_again(self.folder, self.server.port))

    def empty(self) -> None:
        """Drop what a life has left, and make the tables."""
        with self.connect() as database:
            # What waits for a transaction that is open is refused.
            database.execute(f"ALTER DATABASE {DATABASE} SET lock_timeout = '300ms'")
            for (name,) in database.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                database.execute(f"ROLLBACK PREPARED '{name}'")
            database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            for (name,) in database.execute("SELECT pubname FROM pg_publication").fetchall():
                database.execute(f'DROP PUBLICATION "{name}"')
            database.execute(_SCHEMA)


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def started(folder: Path) -> Iterator[ServerInHand]:
    """A server of its own, with its data in ``folder``."""
    with ExitStack() as running:
        yield ServerInHand(folder, running.enter_context(postgres(folder)), running)


@dataclass
class World:
    """A server, a project beside it, and what is open at the server.

    Attributes:
        patterns: ``tables`` of the capture.
        applied: the tables that nodes apply.
        capture: the name of the node that captures.
        rows: of a chunk.
        open: a transaction that goes on over runs.
        expected_stop: something happened at which a run may stop.
        begun_again: the change log begins again since it was looked at.
        blamed: the tables that the last stop names.
        added: the tables that were given a key of their own.
    """

    server: ServerInHand
    folder: Path
    spark: Any
    patterns: list[str]
    applied: list[str] = field(default_factory=lambda: list(NAMES))
    capture: str = "changes"
    rows: int = 1000
    open: psycopg.Connection[Any] | None = None
    expected_stop: bool = False
    begun_again: bool = False
    blamed: set[str] = field(default_factory=set)
    added: list[str] = field(default_factory=list)
    kills: int = 0
    _runs: int = 0

    @classmethod
    def born(cls, server: ServerInHand, folder: Path, spark: Any, draw: random.Random) -> World:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        server.empty()
        listed, wide = [f"public.{name}" for name in NAMES], ["public.*"]
        applied = list(draw.choice([(), (), (), NAMES]))
        world = cls(server, folder, spark, draw.choice([listed, wide]), applied, rows=draw.choice([7, 1000]))
        world.save()
        return world

    @property
    def file(self) -> Path:
        return self.folder / "odibi.yaml"

    @property
    def nodes(self) -> list[str]:
        histories = ["c_history"] if "c" in self.applied else []
        return [self.capture, *self.applied, *histories]

    def save(self) -> None:
        """Write the project file."""
        connection = self.server.server.connection.rstrip().removesuffix("}")
        tables = ", ".join(f'"{one}"' for one in self.patterns)
        lines = [
            "project: sweep\nconnections:",
            f"{connection}, log: {{slot: {SLOT}, create: true}}}}\n  lake: {{type: local, base_path: lake}}",
            "system: {connection: lake, path: system}\npipelines:\n- pipeline: p\n  nodes:",
            f"  - name: {self.capture}\n    read: {{connection: db, format: cdc, tables: [{tables}], "
            f"snapshot: {{rows: {self.rows}}}}}\n    write: {{connection: lake, path: changes}}",
        ]
        for node in self.nodes[1:]:
            name = node.removesuffix("_history")
            history = ", history: true" if node != name else ""
            lines.append(f"  - name: {node}\n    apply: {{changes: {self.capture}, table: public.{name}{history}}}")
            lines.append(f"    write: {{connection: lake, path: {node}}}")
        self.file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(self, node: str) -> NodeResult:
        """Run a node in this process; raises what the node's step would."""
        self._runs += 1
        project = Project.load(self.file)
        history = RunHistory(project, project.open_state(), f"run-{self._runs}")
        return run_node(NodeRun(history, NodeKey("p", node), lambda: self.spark), RunRequest())

    def run_and_kill(self, draw: random.Random) -> str:
        """Run the capture in a process that dies by SIGKILL at a named point or at any moment; what happened."""
        try:
            point = killed_at(self.file, self.capture, draw)
        except RuntimeError as stopped:
            return f"not killed: {stopped}"
        self.kills += point is not None
        return "not killed" if point is None else f"killed at {point}"

    def rows_of(self, node: str) -> Any:
        """The table of a node as Arrow has it; None if there is none."""
        handle = TableHandle.open(Project.load(self.file).target(NodeKey("p", node)))
        return handle.table.to_pyarrow_table() if handle.exists else None

    def close(self) -> None:
        """End what is open."""
        if self.open is not None:
            self.open.close()
            self.open = None


def error_text(error: BaseException) -> str:
    """What a user sees of an error."""
    return f"{type(error).__name__}: {cast(object, error)}"
