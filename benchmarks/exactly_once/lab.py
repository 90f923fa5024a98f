"""Projects in a folder that goes away, and their nodes run as Dagster runs them, but for Dagster."""

from __future__ import annotations

import shutil
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.connections.location import Location
    from odi_assets.nodes.planning.planner import NodePlan
    from odi_assets.nodes.result import NodeResult
    from odi_assets.spark.session import SessionHandle

SCHEMA = (
    "id BIGINT, customer INT, name STRING, price DECIMAL(16,6), ordered_at TIMESTAMP, day DATE, gift BOOLEAN, "
    "score DOUBLE"
)
"""The columns of ``benchmarks.write.rows``, for readers that need not look for themselves then."""

READ = f"""{{connection: landing, format: parquet, path: orders, schema: "{SCHEMA}", incremental: {{mode: files}}}}"""
"""The ``read`` of nodes that take what lands."""

_HEAD = """
project: exactly_once
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
CONNECTIONSsystem: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
"""


class Pipeline:
    """A project with one pipeline, ``p``, that reads Parquet files landing in ``orders``."""

    def __init__(self, root: Path, nodes: str, connections: str = "") -> None:
        from odi_assets.nodes.project import Project

        root.mkdir(parents=True, exist_ok=True)
        file = root / "odibi.yaml"
        if not file.exists():
            head = _HEAD.replace("CONNECTIONS", connections)
            file.write_text(head + textwrap.indent(textwrap.dedent(nodes), "  "), encoding="utf-8")
        self.root = root
        self.landing = root / "landing" / "orders"
        self.landing.mkdir(parents=True, exist_ok=True)
        self.project = Project.load(file)
        self.state = self.project.open_state()
        self._runs = count()
        self._landed = count()

    def land(self, files: Path) -> Path:
        """A folder with copies of the Parquet files of another one, which are new to the pipeline.

        A new link to a file changes the times of all its links: files that are known already would be looked at again.
        """
        folder = self.landing / f"{next(self._landed):05}"
        folder.mkdir()
        for file in files.glob("*.parquet"):
            shutil.copyfile(file, folder / file.name)
        return folder

    def plan(self, node: str) -> NodePlan:
        from odi_assets.config.graph import NodeKey
        from odi_assets.nodes.planning.planner import plan_node

        return plan_node(self.project, self.state, NodeKey("p", node))

    def run(self, spark: SparkSession, node: str) -> NodeResult:
        """The whole protocol.

        Raises:
            RuntimeError: there was nothing to do, which would be measured as very fast.
        """
        from odi_assets.config.graph import NodeKey
        from odi_assets.nodes.run_history import RunHistory
        from odi_assets.nodes.run_node import NodeRun, run_node
        from odi_assets.state.records import RunStatus

        history = RunHistory(self.project, self.state, f"run-{next(self._runs)}")
        result = run_node(NodeRun(history, NodeKey("p", node), lambda: spark))
        if result.status is RunStatus.NO_DATA:
            raise RuntimeError(f"{result.key}: {result.increment}")
        return result

    def seconds(self, spark: SparkSession, node: str) -> float:
        """What :meth:`run` takes."""
        return seconds_of(lambda: self.run(spark, node))

    def target(self, node: str) -> Location:
        from odi_assets.config.graph import NodeKey

        return self.project.target(NodeKey("p", node))


class Lab:
    """A folder of projects, and one warm Spark session."""

    def __init__(self, options: Options, root: Path) -> None:
        self.say = options.say
        self.root = root
        self._made = count()

    @cached_property
    def spark(self) -> SparkSession:
        return open_spark().spark

    def pipeline(self, nodes: str, modules: Mapping[str, str] | None = None, connections: str = "") -> Pipeline:
        """A new project, with the text of the Python modules beside its file, by name.

        Args:
            connections: lines of the project file, beside ``landing`` and ``lake``.
        """
        root = self.root / f"project{next(self._made)}"
        root.mkdir()
        for name, text in (modules or {}).items():
            (root / f"{name}.py").write_text(text, encoding="utf-8")
        return Pipeline(root, nodes, connections)

    def files(self, rows: DataFrame, count: int | None = None) -> Path:
        """A folder with ``rows`` as Parquet, to land from; in ``count`` files, or as many as Spark likes."""
        folder = self.root / f"files{next(self._made)}"
        (rows if count is None else rows.coalesce(count)).write.parquet(str(folder))
        return folder


def open_spark() -> SessionHandle:
    """The session that measures run in: as a project gets it, with memory for all of them."""
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    return open_session(SparkConfig(conf={"spark.driver.memory": "4g"}), app_name="benchmarks")


@contextmanager
def lab(options: Options) -> Iterator[Lab]:
    """A lab in a folder that is removed in the end. Its session stays, warm, for the next one."""
    root = Path(tempfile.mkdtemp(prefix="odi-benchmark-"))
    try:
        yield Lab(options, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def seconds_of(call: Callable[[], object]) -> float:
    """How long ``call`` takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
