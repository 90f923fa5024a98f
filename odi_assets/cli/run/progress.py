"""Progress of a run: a live line on a terminal, a plain line per node elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from odi_assets.cli.terminal.output import console
from odi_assets.nodes.result import is_left_out
from odi_assets.spark.progress import running_stages
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.events import NodeEvent
    from odi_assets.nodes.result import NodeResult


class SparkColumn(ProgressColumn):
    """Spark's stages that are running now."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        del task
        stages = running_stages()
        if stages is None:
            return Text("")
        tasks = f"{stages.tasks_done}/{stages.tasks} tasks"
        return Text(f"Spark: {counted(stages.stages, 'stage')}, {tasks}", style="dim")


_ONE_LINE = Column(no_wrap=True, overflow="ellipsis")


class RunProgress(Progress):
    """Listens to a run of ``keys`` and shows it on stderr; keeps the results of the nodes that ended.

    A context manager: the live line is gone when it ends.
    """

    def __init__(self, keys: Sequence[NodeKey]) -> None:
        shown_on = console(sys.stderr)
        super().__init__(
            SpinnerColumn(),
            TextColumn("[{task.completed:.0f}/{task.total:.0f}]", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.description}", markup=False, table_column=_ONE_LINE),
            TimeElapsedColumn(),
            SparkColumn(table_column=_ONE_LINE),
            console=shown_on,
            transient=True,
            disable=not shown_on.is_terminal,
            redirect_stdout=False,
        )
        self.results: list[NodeResult] = []
        self._nodes = len(keys)
        self._line = self.add_task("starting", total=self._nodes)

    def begin(self, pipeline: str, nodes: int) -> None:
        """A pipeline is about to run."""
        self.console.print(f"{pipeline}: {counted(nodes, 'node')}", soft_wrap=True)

    def listen(self, event: NodeEvent) -> None:
        """A node started, came further or ended, or a resumed run decided that it runs again."""
        if event.kind == "progressed":
            self.update(self._line, description=f"{event.key}: {event.reason}")
        elif event.reason is not None:
            self.console.print(f"{event.key} runs: {event.reason}", soft_wrap=True)
        elif event.result is None:
            self.update(self._line, description=str(event.key))
        else:
            self.results.append(event.result)
            how = f"[{len(self.results)}/{self._nodes}] {event.key}: {outcome(event.result)}"
            self.console.print(how, soft_wrap=True)
            self.update(self._line, completed=len(self.results))


def outcome(result: NodeResult) -> str:
    """How a node ended, in a few words: ``SUCCESS, 2,226 rows, 3.1 s``."""
    status, seconds = result.status.value, f"{result.seconds:.1f} s"
    if status == "SKIPPED":
        return f"{status}, {result.error}" if is_left_out(result) else status
    if status == "NO_DATA":
        return f"{status}, nothing new, {seconds}"
    rows = f", {counted(result.rows_written, 'row')}" if result.rows_written is not None else ""
    return f"{status}{rows}, {seconds}"
