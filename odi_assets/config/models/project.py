"""The project file as typed models. Names are Odibi's wherever Odibi has one."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import mistake, mistakes
from odi_assets.config.models.connections import Connection
from odi_assets.config.models.durations import Duration
from odi_assets.config.models.fields import Names, Option, Owner, Strict, Text
from odi_assets.config.models.nodes import PipelineConfig
from odi_assets.config.models.operation.alerts import AlertConfig
from odi_assets.config.models.operation.automation import AutomationConfig, JobConfig
from odi_assets.config.spark_settings import other_values


class RetryConfig(Strict):
    """Waits 1, 2, 4, 8, 16 s plus up to 1 s, five retries, unless set otherwise."""

    enabled: bool = Field(default=True, description="False: nothing is tried again.")
    retries: int = Field(default=5, ge=0, description="Attempts after the first.")
    max_attempts: int | None = Field(default=None, ge=1, description="Odibi's way: attempts, the first included.")
    backoff: Literal["exponential", "linear", "constant"] = Field(
        default="exponential", description="How the waits grow: doubled, by one `base_delay` each, or not."
    )
    base_delay: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="Seconds before the first retry.")
    max_delay: float = Field(default=16.0, ge=0, allow_inf_nan=False, description="Longest wait, in seconds.")
    jitter: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="The most seconds that are added to a wait at random."
    )

    @model_validator(mode="after")
    def _counted_once(self) -> RetryConfig:
        if self.max_attempts is not None and "retries" in self.model_fields_set:
            raise mistake("counts the attempts a second time: keep `retries`", at=("max_attempts",))
        return self

    @property
    def attempts(self) -> int:
        """How often something is tried at most."""
        if not self.enabled:
            return 1
        return self.max_attempts or self.retries + 1

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed ``attempt`` (the first is 1), without the random part."""
        growth = {"exponential": 2.0 ** (attempt - 1), "linear": float(attempt), "constant": 1.0}[self.backoff]
        return min(self.base_delay * growth, self.max_delay)


class SystemConfig(Strict):
    """Where the system tables live: ``path`` holds both, or each has a path of its own."""

    DEFAULTS: ClassVar = {
        "schema_name": None,
        "sync_to": None,
        "sync_from": None,
        "cost_per_compute_hour": None,
        "databricks_billing_enabled": False,
        "retention_days": None,
        "optimize_catalog": False,
        "sync_timeout_seconds": 30.0,
        "async_derived_updates": True,
        "async_lineage": True,
        "skip_sync_wait_in_databricks": True,
    }

    connection: Text = Field(description="Name of a connection.")
    path: Text = Field(default="_odibi_system", description="Folder of both tables, under the connection.")
    meta_runs_path: Text | None = Field(default=None, description="Folder of the table of runs.")
    meta_state_path: Text | None = Field(default=None, description="Folder of the table of high-water marks.")
    environment: Text | None = Field(default=None, description="Whose state this is, where several share the tables.")
    retry: RetryConfig = Field(default=RetryConfig(), description="The same as `retry` at the top of the file.")
    keep_runs_for: Duration | None = Field(
        default=None, description="How long run history is kept, as in `90d`; for ever unless given."
    )


class SparkConfig(Strict):
    """Spark settings of this project."""

    master: Text | None = Field(default=None, description="Spark master, as in `local[4]`.")
    remote: Text | None = Field(default=None, description="Spark Connect address, as in `sc://host:15002`.")
    conf: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark configuration.")
    packages: Names = Field(
        default=(),
        description="JARs that a new session fetches from Maven, as in `org.postgresql:postgresql:42.7.8`; nothing is "
        "fetched unless it is named here.",
    )

    @model_validator(mode="after")
    def _check_conf(self) -> SparkConfig:
        if conf_mistakes := list(other_values(self.conf)):
            raise mistakes(conf_mistakes)
        return self


class EnvironmentConfig(Strict):
    """What differs in one environment. Mappings are merged with the mappings of the file, key by key."""

    connections: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        repr=False,
        description="Connections; one with a `type` replaces the file's as a whole, another one changes keys of it.",
    )
    system: dict[str, Any] = Field(default_factory=dict, repr=False, description="Keys of `system`.")
    variables: dict[str, Option] = Field(default_factory=dict, repr=False, description="What `${NAME}` means here.")
    environment: Text | None = Field(
        default=None, description="Whose state this is; the name of the environment unless given."
    )
    spark: dict[str, Any] = Field(default_factory=dict, repr=False, description="Keys of `spark`.")
    retry: dict[str, Any] = Field(default_factory=dict, description="Keys of `retry`.")
    automation: dict[str, Any] = Field(default_factory=dict, description="Keys of `automation`.")
    alerts: list[Any] = Field(default_factory=list, repr=False, description="In the place of the file's `alerts`.")


class ProjectConfig(Strict):
    """The whole project file."""

    IGNORED: ClassVar = frozenset({"story", "lineage", "logging", "semantic"})
    DEFAULTS: ClassVar = {
        "vars": {},
        "performance": {
            "use_arrow": True,
            "spark_config": {},
            "delta_table_properties": {},
            "skip_null_profiling": False,
            "skip_catalog_writes": False,
            "skip_run_logging": False,
        },
    }

    project: Text = Field(description="Name of the project.")
    engine: Literal["spark"] = Field(default="spark", description="What computes the nodes.")
    environment: Text | None = Field(default=None, description="Whose state this is: dev, prod …")
    description: str | None = Field(default=None, description="What the project is for.")
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`, of pipelines without one.")
    version: str = Field(default="1.0.0", description="Version of the project.")
    connections: dict[str, Connection] = Field(description="Where files and tables are, by name.")
    pipelines: tuple[PipelineConfig, ...] = Field(
        default=(), min_length=1, description="What runs; without it, the file is about connections and state alone."
    )
    jobs: tuple[JobConfig, ...] = Field(default=(), description="Jobs of nodes of several pipelines, by their tags.")
    alerts: tuple[AlertConfig, ...] = Field(
        default=(), description="Who is to know what, by Slack, Teams, another webhook, e-mail or the log."
    )
    system: SystemConfig | None = Field(
        default=None, description="Where state and run history are kept; without it, in `.odibi/state.json`."
    )
    retry: RetryConfig = Field(
        default=RetryConfig(), description="How often, and after what waits, stores and conflicts are tried again."
    )
    spark: SparkConfig = Field(default=SparkConfig(), description="Spark settings.")
    requires: Names = Field(
        default=(),
        description="Packages whose kinds of sources or table engines the file uses, as in `odi-sqlite`.",
    )
    python: Names = Field(
        default=(), description="Modules with nodes written in Python; those beside this file are found first."
    )
    variables: dict[str, Option] = Field(
        default_factory=dict,
        repr=False,
        description="What `${NAME}` means where the process's environment does not set NAME.",
    )
    environments: dict[str, EnvironmentConfig] = Field(
        default_factory=dict, description="What differs in each environment; `--env NAME` or ODI_ENV chooses one."
    )
    automation: AutomationConfig = Field(
        default=AutomationConfig(), description="How sensors look for new data and request runs."
    )

    @model_validator(mode="after")
    def _one_retry_policy(self) -> ProjectConfig:
        if self.system is not None and "retry" in self.system.model_fields_set:
            if "retry" in self.model_fields_set:
                raise mistake("is given at the top of the file too: keep that one", at=("system", "retry"))
            # The model is frozen for everybody else.
            self.__dict__["retry"] = self.system.retry
        return self
