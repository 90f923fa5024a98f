"""A whole other run inside each look of a command: what a command reads one after the other is of several moments.

A look is the opening of a Delta table: of a node, of an upstream node, of state, of the history. Before each of them in
turn, files land and all nodes run, as a run that was started twice does it. Then the command goes on with what it has
read so far.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from benchmarks.change_sweep.judge import Violation
from benchmarks.change_sweep.runs import command
from benchmarks.change_sweep.world import Home
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.spark.session import open_session

_PROJECT = """\
project: between
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - {name: added, read: {READ, incremental: files}, write: {connection: lake, path: added, mode: append}}
  - {name: newest, read: {READ, incremental: files}, write: {connection: lake, path: newest, mode: upsert, keys: [id]}}
  - name: days
    read: {READ, incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: days, mode: partition_overwrite, partition_by: [day]}
  - name: below
    inputs: {rows: {node: added, incremental: version}}
    write: {connection: lake, path: below, mode: append}
  - name: changes
    inputs: {rows: {node: newest, incremental: version}}
    write: {connection: lake, path: changes, mode: upsert, keys: [id]}
  - {name: whole, inputs: {rows: {node: added}}, write: {connection: lake, path: whole, mode: overwrite}}
""".replace(
    "READ", 'connection: landing, format: csv, path: "*.csv", schema: "id BIGINT, day DATE", options: {header: "true"}'
)
NODES = ("added", "newest", "days", "below", "changes", "whole")
COMMANDS = (
    *(("run", "p", "--node", node) for node in NODES),
    ("run",),
    ("plan",),
    ("doctor",),
    ("state", "recover"),
    ("tables", "maintain", "--retain-hours", "0", "--yes"),
    ("state", "rewind", "p.added", "--to-version", "0", "--cascade", "--yes"),
    *(("audit", node) for node in ("added", "newest", "below", "changes")),
)
"""What runs while others commit. None of these may find fault with what another run does."""
_BELOW = ("below", "changes", "whole")
"""The nodes that read other nodes' tables."""
_WRITING = ("run", "state", "tables")
_FIRST = re.compile("FencedError|StateConflictError|committed .* first|changed since|somebody else")
"""What a command says that comes second. It changed nothing, and works when it is typed again."""


@dataclass
class Between:
    """What came of the commands.

    Attributes:
        tried: how many commands had a run in one of their looks.
        second: how many ended because the other run had committed first, and said so.
    """

    tried: int = 0
    second: int = 0
    violations: list[Violation] = field(default_factory=list)


def between(
    folder: Path, say: Callable[[str], None], commands: Sequence[tuple[str, ...]] = COMMANDS, every: int = 1
) -> Between:
    """Try each command with a run in each of its looks, in the Spark session that is active.

    Args:
        every: try one look of so many.
    """
    found, numbers = Between(), itertools.count(1)
    place = _Place(folder, numbers)
    place.make()
    for arguments in commands:
        before = found.tried
        for look in itertools.count(1 + next(numbers) % every, every):
            tried, violation = place.tried(arguments, look, found)
            if violation is not None:
                say(f"  {violation}")
                found.violations.append(violation)
                place.make()
            if not tried:
                break
            found.tried += 1
        say(f"  odi {' '.join(arguments)}: {found.tried - before} looks; {len(found.violations)} violations")
    return found


@dataclass
class _Place:
    """A project, and how many rows have landed there."""

    folder: Path
    numbers: Iterator[int]
    rows: int = 0

    @property
    def home(self) -> Home:
        return Home(self.folder, {})

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "landing").mkdir(parents=True)
        (self.folder / "odibi.yaml").write_text(_PROJECT, encoding="utf-8")
        self.rows = 0
        self.land()
        self.run_others()

    def land(self) -> None:
        """A file of one row."""
        self.rows += 1
        line = f"{self.rows},2024-01-0{1 + self.rows % 5}"
        scratch = self.folder / "landing" / ".next"
        scratch.write_text(f"id,day\n{line}\n", encoding="utf-8")
        scratch.replace(self.folder / "landing" / f"{self.rows:05}.csv")

    def run_others(self, nodes: Sequence[str] = NODES) -> None:
        """Run nodes, as another process would."""
        project = Project.load(self.folder / "odibi.yaml")
        history = RunHistory(project, project.open_state(), f"other-{next(self.numbers)}")
        for node in nodes:
            run_node(NodeRun(history, NodeKey("p", node), lambda: open_session().spark))

    def tried(self, arguments: tuple[str, ...], look: int, found: Between) -> tuple[bool, Violation | None]:
        """Whether a command has made so many looks, and what is wrong after it; None if nothing is."""
        self.land()
        if arguments[-1] in _BELOW:
            self.run_others(NODES[:2])

        def other() -> None:
            self.land()
            self.run_others()

        with _looks(look, other) as looks:
            code, out, err = command(self.home, *arguments)
        what = f"odi {' '.join(arguments)}, a run in look {look}"
        if code and arguments[0] in _WRITING and _FIRST.search(err):
            found.second += 1
        elif code:
            return True, Violation("needless stop", f"{what}: {out}{err}")
        return looks() >= look, self._after(what)

    def _after(self, what: str) -> Violation | None:
        """The next run loads what is left, and all agrees."""
        for arguments in (("run",), ("doctor",)):
            code, out, err = command(self.home, *arguments)
            if code:
                return Violation("dead end", f"{what}, then odi {arguments[0]}: {out}{err}")
        for node in NODES:
            ids = sorted(DeltaTable(self.folder / "lake" / node).to_pyarrow_table(columns=["id"])["id"].to_pylist())
            wanted = list(range(1, self.rows + 1))
            if ids != wanted:
                missing, surplus = len(set(wanted) - set(ids)), len(ids) - len(set(ids))
                return Violation("silent", f"{what}: {node} has {ids}", missing, surplus)
        return None


@contextmanager
def _looks(at: int | None, other: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Count the looks of a block, and call ``other`` before one of them."""
    opened, count = DeltaTable.__init__, 0

    def counted(self: DeltaTable, *args: Any, **how: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            DeltaTable.__init__ = opened  # type: ignore[method-assign]
            other()
        opened(self, *args, **how)

    DeltaTable.__init__ = counted  # type: ignore[method-assign]
    try:
        yield lambda: count
    finally:
        DeltaTable.__init__ = opened  # type: ignore[method-assign]
