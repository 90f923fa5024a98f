"""Nodes and pipelines: what is read, how it is transformed, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistake, mistakes
from odi_assets.config.models.apply import ApplyConfig, written_out
from odi_assets.config.models.checks import Check, CheckConfig, checks_of, repeated_names
from odi_assets.config.models.fields import Cron, FunctionRef, Name, Names, Owner, PipelineName, Strict, Tags, Text
from odi_assets.config.models.increments import (
    DrivingCursor,
    Increment,
    InputIncrement,
    RollingWindowIncrement,
    VersionIncrement,
)
from odi_assets.config.models.operation.automation import FreshnessConfig, NodeAutomation, TimeZone
from odi_assets.config.models.operation.partitions import PartitionConfig
from odi_assets.config.models.reads import Read, ReadConfig
from odi_assets.config.models.stream import StreamSettings
from odi_assets.config.models.writes import WriteConfig
from odi_assets.errors import ConfigError


def _require_node_or_read(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": ["node"]}, {"required": ["read"]}]


class InputConfig(Strict):
    """Another node's table, whole unless ``incremental`` is set; of a stream node, also a source outside the
    pipeline."""

    model_config = ConfigDict(json_schema_extra=_require_node_or_read)

    node: Text = Field(default="", description="`node` of this pipeline, or `pipeline.node`.")
    read: Read | None = Field(
        default=None, description="Of a stream node: a source outside the pipeline, in the place of `node`."
    )
    incremental: InputIncrement | None = Field(
        default=None, description="Take only what is new in the table; without it, everything."
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, data: Any) -> Any:
        return {"node": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _node_or_read(self) -> InputConfig:
        if not self.node and self.read is None:
            raise mistake("names nothing to read: give a `node`, or in a stream node a `read`")
        if self.node and self.read is not None:
            raise mistake("is for an input that is no node: give `node` or `read`", at=("read",))
        return self


def view_name(item: Any, position: int) -> str:
    """Return the view name of an item in a list of inputs: the name of its node; ``[2]`` for one that names no node."""
    reference = item.get("node") if isinstance(item, Mapping) else item
    return reference.removeprefix("$").rpartition(".")[2] if isinstance(reference, str) else f"[{position}]"


def named_inputs(value: Any) -> Any:
    """Return inputs by view name for a list of them; what is no list, as it is.

    Raises:
        PydanticCustomError: two items would have one view name.
    """
    if not isinstance(value, list | tuple):
        return value
    named: dict[str, Any] = {}
    twice: list[Mistake] = []
    for position, item in enumerate(value):
        view = view_name(item, position)
        if view in named:
            text = "gives two inputs one name: name them, as in `inputs: {a: one.node, b: other.node}`"
            twice.append(about(view, text, at=(position,)))
        named[view] = item
    if twice:
        raise mistakes(twice)
    return named


def _check_views(inputs: Mapping[str, InputConfig]) -> Mapping[str, InputConfig]:
    view_mistakes: list[Mistake] = []
    seen: set[str] = set()
    for view in inputs:
        if view.lower() == "df":
            view_mistakes.append(Mistake("`df` is what `read` gives: call the input something else", at=(view,)))
        elif not view.replace("_", "").isalnum() or not view.isascii():
            view_mistakes.append(Mistake(f"`{view}` is not a view name: letters, digits and `_` only", at=(view,)))
        elif view.lower() in seen:
            view_mistakes.append(Mistake(f"`{view}` is there twice; Spark's views know no capitals", at=(view,)))
        seen.add(view.lower())
    if view_mistakes:
        raise mistakes(view_mistakes)
    return inputs


class TransformConfig(Strict):
    """Exactly one of the three. SQL sees each input as a view under its name, and what ``read`` gives as ``df``."""

    sql: Text | None = Field(default=None, description="A Spark SQL query over the inputs' names, and `df`.")
    sql_file: Text | None = Field(default=None, description="File that holds the query, relative to the project file.")
    function: FunctionRef | None = Field(default=None, description="A Python function of DataFrames: `module:name`.")
    params: dict[str, Any] = Field(default_factory=dict, description="Arguments of the function.")

    @model_validator(mode="after")
    def _exactly_one(self) -> TransformConfig:
        keys = [name for name in ("sql", "sql_file", "function") if getattr(self, name) is not None]
        if not keys:
            raise mistake("has nothing to do: give one of `sql`, `sql_file` or `function`")
        if len(keys) > 1:
            raise mistake(f"has `{'` and `'.join(keys)}`: give one of them", at=(keys[-1],))
        return self

    def sql_text(self, root: Path) -> str:
        """The query, from the project file or from the file that it names.

        Args:
            root: the project file's folder.

        Raises:
            ConfigError: the file cannot be read.
        """
        if self.sql is not None:
            return self.sql
        path = root / str(self.sql_file)
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"`sql_file` {path} cannot be read: {error.strerror}", fix="correct the path") from error


class NodeConfig(Strict):
    """One step of a pipeline: read and/or inputs, then transform, then write."""

    IGNORED: ClassVar = frozenset({"explanation", "explanation_file", "runbook_url"})
    DEFAULTS: ClassVar = {
        "enabled": True,
        "columns": {},
        "streaming": False,
        "transformer": None,
        "params": {},
        "pre_sql": [],
        "post_sql": [],
        "materialized": None,
        "cache": False,
        "log_level": None,
        "on_error": "fail_later",
        "validation": None,
        "contracts": [],
        "schema_policy": None,
        "privacy": None,
        "sensitive": False,
    }

    name: Name = Field(description="Name of the node, unique in its pipeline.")
    description: str | None = Field(default=None, description="What the table holds; shown in Dagster.")
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`.")
    tags: Tags = Field(default=(), description="Tags of the asset.")
    depends_on: Names = Field(default=(), description="Nodes to run first, without reading them.")
    read: Read | None = Field(default=None, description="A source outside the pipeline; the view `df` in SQL.")
    inputs: Annotated[dict[str, InputConfig], BeforeValidator(named_inputs), AfterValidator(_check_views)] = Field(
        default_factory=dict, description="Other nodes' tables: a list of nodes, or view names and nodes."
    )
    stream: StreamSettings | None = Field(
        default=None,
        description="Run the node as a Structured Streaming query: `stream: {}` reads its inputs as streams.",
    )
    cursor: DrivingCursor | None = Field(
        default=None, description="Stream of a cursor document that says when there is something to `read`."
    )
    apply: ApplyConfig | None = Field(
        default=None, description="Make a table of a database from a change log, in the place of `inputs`."
    )
    transform: TransformConfig | None = Field(default=None, description="Without it, what is read is written.")
    partition: PartitionConfig | None = Field(default=None, description="Partitions to backfill by.")
    automation: NodeAutomation | None = Field(
        default=None,
        description="Dagster requests runs of the node, in the place of the pipeline's sensor: `eager`, once what it "
        "reads has changed; `on_cron 0 6 * * *`, at these times. The node then has no partitions in Dagster.",
    )
    freshness: FreshnessConfig | None = Field(
        default=None, description="How long the table may be without new rows, as in `{within: 26h}`."
    )
    write: WriteConfig = Field(description="The node's table.")
    checks: tuple[CheckConfig, ...] = Field(
        default=(), description="What the rows of an increment must be, before they are committed."
    )
    quarantine: Text | None = Field(
        default=None,
        description="Folder, under the connection of `write`, of a table that takes the rows that fail a check.",
    )

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, data: Any) -> Any:
        """Give nodes that capture or apply a log what there is no choice about."""
        if not isinstance(data, Mapping):
            return data
        if data.get("validation") or data.get("contracts"):
            from odi_assets.config.models.odibi_checks import with_checks

            data = with_checks(data)
        return written_out(data)

    @model_validator(mode="after")
    def _can_be_checked(self) -> NodeConfig:
        keys = [name for name in ("checks", "quarantine") if getattr(self, name)]
        what = "a stream" if self.stream is not None else "a capture" if self.captures else "an apply node"
        check_mistakes: list[Mistake] = []
        if keys and (self.stream is not None or self.captures or self.apply is not None):
            text = f"is not for {what}: check its rows in a node that reads its table"
            check_mistakes = [Mistake(text, at=(name,), where="key") for name in keys]
        elif self.quarantine is not None and not any(check.by_row and check.blocks for check in self.all_checks):
            text = "never gets a row: no check of severity `error` says which rows are wrong"
            check_mistakes = [Mistake(text, at=("quarantine",), where="key")]
        elif repeated := list(repeated_names(self.checks)):
            check_mistakes = [replace(name_mistake, at=("checks", *name_mistake.at)) for name_mistake in repeated]
        if check_mistakes:
            raise mistakes(check_mistakes)
        return self

    @model_validator(mode="after")
    def _requested_without_partitions(self) -> NodeConfig:
        if self.automation is not None and self.partition is not None and self.partition.in_dagster:
            text = "is not for a node with `automation`: Dagster would request single partitions of it"
            raise mistake(f"{text}, and never what is new; leave one of the two out", at=("partition", "in_dagster"))
        return self

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """Its checks, one by one, each with its name."""
        return tuple(check for _, check in checks_of(self.checks))

    @property
    def kind(self) -> Literal["batch", "stream"]:
        """Its kind; ``nodes.kinds`` says what a kind does."""
        return "batch" if self.stream is None else "stream"

    @property
    def captures(self) -> bool:
        """Whether it writes a change log."""
        return self.read is not None and self.read.CAPTURES

    @property
    def captures_server(self) -> bool:
        """Whether it captures the log of a database's server itself."""
        return self.captures and self.read is not None and self.read.NEEDS == "database"

    @property
    def is_of_log(self) -> bool:
        """Whether it captures a log or applies one: most of its runs need no Spark."""
        return self.captures or self.apply is not None

    @property
    def references(self) -> dict[tuple[str | int, ...], str]:
        """The nodes that it names in ``inputs``, ``depends_on`` and ``checks``, by where it names them."""
        applies = self.apply is not None
        named: dict[tuple[str | int, ...], str] = {
            ("apply", view) if applies else ("inputs", view, "node"): node_input.node
            for view, node_input in self.inputs.items()
            if node_input.read is None
        }
        looked_up: dict[tuple[str | int, ...], str] = {
            ("checks", i, "references", "node"): check.references.node
            for i, check in enumerate(self.checks)
            if check.references is not None
        }
        return {**named, **{("depends_on", i): name for i, name in enumerate(self.depends_on)}, **looked_up}

    @property
    def reads(self) -> dict[tuple[str, ...], ReadConfig]:
        """The sources outside the pipeline, by where they are in the node: ``("inputs", "orders", "read")``."""
        reads: dict[tuple[str, ...], ReadConfig] = {} if self.read is None else {("read",): self.read}
        return reads | {
            ("inputs", view, "read"): node_input.read
            for view, node_input in self.inputs.items()
            if node_input.read is not None
        }

    @property
    def folders_beside(self) -> dict[tuple[str, ...], str]:
        """The folders that it names on its table's connection, beside the table's, by where they are in the node."""
        named = {} if self.stream is None else {("stream", key): path for key, path in self.stream.paths.items()}
        return named | ({("quarantine",): self.quarantine} if self.quarantine else {})

    def follows_table(self, read: ReadConfig) -> bool:
        """Whether it takes only what is new of a Delta table that it reads by its path."""
        return self.stream is not None or isinstance(read.incremental, VersionIncrement)

    @property
    def increments(self) -> dict[tuple[str, ...], Increment]:
        """The increments of its sources, by where they are in the node: ``("inputs", "flights", "incremental")``."""
        increment_by_path: dict[tuple[str, ...], Increment | None] = {}
        if self.read is not None:
            increment_by_path["read", "incremental"] = self.read.incremental
        increment_by_path |= {
            ("inputs", view, "incremental"): source.incremental for view, source in self.inputs.items()
        }
        return {path: increment for path, increment in increment_by_path.items() if increment is not None}

    @property
    def state_keys(self) -> dict[tuple[str, ...], str | None]:
        """The state keys that its increments give, None for the node's own; by where the increments are."""
        paths_and_increments = self.increments.items()
        return {
            path: increment.state_key
            for path, increment in paths_and_increments
            if not isinstance(increment, RollingWindowIncrement)
        }


class PipelineConfig(Strict):
    """Nodes that run together: one Dagster job, with a schedule if it has one."""

    IGNORED: ClassVar = frozenset({"layer"})
    DEFAULTS: ClassVar = {"freshness_sla": None, "freshness_anchor": "run_completion", "auto_cache_threshold": 3}

    pipeline: PipelineName = Field(description="Name of the pipeline.")
    description: str | None = Field(default=None, description="What it is for; shown in Dagster.")
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`, of nodes without one.")
    schedule: Cron | None = Field(default=None, description="Cron, five fields: `30 6 * * *`.")
    timezone: TimeZone | None = Field(
        default=None, description="Time zone of `schedule` and of `on_cron`; `automation.timezone` unless given."
    )
    tags: Tags = Field(default=(), description="Tags of the job.")
    nodes: tuple[NodeConfig, ...] = Field(min_length=1, description="The steps.")
