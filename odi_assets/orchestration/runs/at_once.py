"""Runs below ``odi dev --connect``: which of them share its Spark Connect server, and which steps run at once.

A run without a JVM of its own needs little beside its processes, so nodes that do not wait for each other run at once,
each in a process. Everywhere else, the steps of a run share a process, and with it a JVM.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig
from dagster._core.executor.base import Executor
from dagster._core.executor.in_process import InProcessExecutor
from dagster._core.executor.multiprocess import MultiprocessExecutor

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.spark.shared_server import shared_server

_NAME = "nodes_at_once"
_OF_THE_JVM = frozenset(
    {
        "sparkContext",
        "SparkContext",
        "rdd",
        "_sc",
        "_jsc",
        "_jvm",
        "_jdf",
        "_jsparkSession",
        "SQLContext",
        "HiveContext",
    }
)
"""What PySpark has in a session with a JVM in its own process only."""
_LOADED_BEFORE = ("odi_assets.definitions", "pyspark.sql.connect.session", "pyspark.sql.connect.functions")
"""Modules that the processes of a run share, so that each of them begins in little time."""


def nodes_of(job: dg.JobDefinition, project: Project) -> set[NodeKey]:
    """The nodes that a job, or the part of it that was selected for a run, materializes."""
    keys, names = job.asset_layer.executable_asset_keys, DagsterNames.of(project)
    return {key for key in project.graph.nodes if names.asset(key) in keys}


def own_jvm(project: Project, keys: Collection[NodeKey]) -> dict[NodeKey, str]:
    """The nodes among ``keys`` that Spark Connect cannot run as a JVM of their own can, each with the reason.

    A stream's query would run in the server, beyond the end of its run. A function is taken to use the JVM if its
    module names something that PySpark has with a JVM only.
    """
    reasons: dict[NodeKey, str] = {}
    for key in keys:
        node = project.graph.node(key)
        function = node.transform.function if node.transform is not None else None
        if node.stream is not None:
            reasons[key] = "it is a stream"
        elif function is not None and (use := _use_of_the_jvm(function.partition(":")[0], project.root)) is not None:
            reasons[key] = f"its function uses the JVM ({use})"
    return reasons


@cache
def _use_of_the_jvm(module: str, root: Path) -> str | None:
    file = _file_of(module, root)
    if file is None:
        return None
    for item in ast.walk(ast.parse(file.read_bytes(), str(file))):
        if not isinstance(item, ast.Attribute | ast.alias):
            continue
        name = item.attr if isinstance(item, ast.Attribute) else item.name
        if name in _OF_THE_JVM:
            return f"{file.name}:{item.lineno}: {name}"
    return None


def _file_of(module: str, root: Path) -> Path | None:
    """The source of a module; what lies beside the project file comes first, as when it is imported."""
    beside = root.joinpath(*module.split("."))
    for file in (beside.with_suffix(".py"), beside / "__init__.py"):
        if file.is_file():
            return file
    try:
        spec = find_spec(module)
    except ImportError:
        # Who imports the module says what is wrong.
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.origin.endswith(".py") else None


def run_executor(project: Project) -> dg.ExecutorDefinition:
    """The executor of a project's runs: in one process; below ``odi dev --connect``, nodes of one level at once."""
    if shared_server() is None:
        return dg.in_process_executor

    @dg.executor(name=_NAME, requirements=multiple_process_executor_requirements())
    def at_once(context: dg.InitExecutorContext) -> Executor:
        del context
        return _NodesAtOnce(project)

    return at_once


def is_one_process(project: Project, job: dg.JobDefinition) -> bool:
    """Whether one process runs all steps of a job, one after the other."""
    if job.executor_def.name != _NAME:
        return job.executor_def.name == dg.in_process_executor.name
    nodes = nodes_of(job, project)
    # Nodes that apply a log take in the same version of it, which their process knows.
    apply_a_log = any(project.graph.node(key).apply is not None for key in nodes)
    return apply_a_log or bool(own_jvm(project, nodes)) or max(_levels(project, nodes).values(), default=0) < 2


def _levels(project: Project, nodes: Collection[NodeKey]) -> Mapping[int, int]:
    """How many of ``nodes`` may run at once, by how many of them one after the other come before."""
    levels: dict[NodeKey, int] = {}
    for key in project.graph.order(None):
        if key in nodes:
            levels[key] = 1 + max(
                (levels[above] for above in project.graph.upstream(key) if above in levels), default=0
            )
    return Counter(levels.values())


class _NodesAtOnce(Executor):
    """Dagster's executor in processes for a run in which nodes may run at once, else the one in a process."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def retries(self) -> RetryMode:
        return RetryMode.ENABLED

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        return StepDependencyConfig.default()

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        job = plan_context.reconstructable_job.get_definition()
        executor: Executor = (
            InProcessExecutor(self.retries)
            if is_one_process(self._project, job)
            else MultiprocessExecutor(
                self.retries,
                max_concurrent=None,
                start_method="forkserver",
                explicit_forkserver_preload=_LOADED_BEFORE,
            )
        )
        return executor.execute(plan_context, execution_plan)
