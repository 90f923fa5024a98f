"""A project that captures a server in hand, and runs of that project."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.capture.changes.server import NAMES, ServerInHand
from benchmarks.capture.kills import killed_at
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node


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
    open: Any = None
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
        listed, wide = [f"{server.schema}.{name}" for name in NAMES], [f"{server.schema}.*"]
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
            f"{connection}{self.server.log}}}\n  lake: {{type: local, base_path: lake}}",
            "system: {connection: lake, path: system}\npipelines:\n- pipeline: p\n  nodes:",
            f"  - name: {self.capture}\n    read: {{connection: db, format: cdc, tables: [{tables}], "
            f"snapshot: {{rows: {self.rows}}}}}\n    write: {{connection: lake, path: changes}}",
        ]
        for node in self.nodes[1:]:
            name = node.removesuffix("_history")
            history = ", history: true" if node != name else ""
            table = f"{self.server.schema}.{name}"
            lines.append(f"  - name: {node}\n    apply: {{changes: {self.capture}, table: {table}{history}}}")
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
            point = killed_at(self.file, self.capture, self.server.points, draw)
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
