"""Resources: Spark and state of the project file, for its nodes and for assets beside them.

The Spark resource has what a ``LazyPySparkResource`` of dagster-pyspark has: ``spark_session``, ``spark_context`` and
``spark_config``, so it can stand where one is expected. It is none, because the module of that class imports PySpark,
which a run with nothing new and a code server do without. That class also makes sessions without the settings that our
tables need (UTC, timestamps with statistics) and without the project file's settings, knows no Spark Connect, gives no
useful error if there is no Java, and never stops what it started. So the session comes from
``odi_assets.spark.session`` and ends with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, PrivateAttr

from odi_assets.config.models import SparkConfig
from odi_assets.nodes.project import Project
from odi_assets.orchestration.runs.at_once import own_jvm
from odi_assets.orchestration.runs.in_flight import nodes_of_run
from odi_assets.spark.session import SessionHandle, open_session
from odi_assets.spark.shared_server import shared_server
from odi_assets.state.backend import StateBackend
from odi_assets.state.manager import StateManager

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource[Any]):
    """The run's Spark session. It starts when a step first asks for it, serves all steps of the process, and stops with
    the run unless it was there before."""

    spark_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Spark settings that override the project file's; names may be nested at their dots.",
    )
    master: str | None = Field(default=None, description="Spark master; by default, the project file's.")
    remote: str | None = Field(default=None, description="Spark Connect address; by default, the project file's.")
    project_file: str | None = Field(default=None, description="Project file whose `spark` settings to take.")

    environment: str | None = Field(default=None, description="Which of the file's `environments`.")

    _handle: SessionHandle | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session of the run.

        Raises:
            JavaError: there is no Java to start it with.
        """
        if self._handle is None:
            self._handle = self._opened()
        return self._handle.spark

    @property
    def spark_context(self) -> SparkContext:
        """The context of the session."""
        return self.spark_session.sparkContext

    def _opened(self) -> SessionHandle:
        base = self._project().config.spark if self.project_file else SparkConfig()
        all_settings = {"master": self.master, "remote": self.remote or self._shared_server(base)}
        settings = {name: value for name, value in all_settings.items() if value}
        config = base.model_copy(update={**settings, "conf": {**base.conf, **dict(_flat(self.spark_config))}})
        run = self.get_resource_context().run
        return open_session(config, app_name=f"{run.job_name} {run.run_id}" if run else "odi_assets")

    def _project(self) -> Project:
        return Project.shared(str(self.project_file), self.environment)

    def _shared_server(self, base: SparkConfig) -> str | None:
        """The server of ``odi dev --connect``, for a run that it can do; None where the run has a JVM of its own."""
        address, context = shared_server(), self.get_resource_context()
        if (
            address is None
            or base.remote
            or self.master
            or not self.project_file
            or not (context.run and context.instance)
        ):
            return None
        project = self._project()
        return None if own_jvm(project, nodes_of_run(project, context.instance, context.run)) else address

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the session if this resource started it."""
        del context
        if self._handle is not None:
            self._handle.stop()
            self._handle = None


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their whole names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value)


class StateResource(dg.ConfigurableResource[Any]):
    """HWMs and run history, from the state backend that the project file names."""

    project_file: str = Field(description="Project file whose `system` names the state backend.")

    environment: str | None = Field(default=None, description="Which of the file's `environments`.")

    _backend: StateBackend | None = PrivateAttr(default=None)

    @property
    def backend(self) -> StateBackend:
        """The state backend, opened at first use."""
        if self._backend is None:
            self._backend = Project.shared(self.project_file, self.environment).open_state()
        return self._backend

    @property
    def manager(self) -> StateManager:
        """The public API of the state backend, as documented."""
        root = Project.shared(self.project_file, self.environment).root
        return StateManager(project_root=str(root), backend=self.backend)
