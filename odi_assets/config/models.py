"""The project file as typed models. Names are Odibi's wherever Odibi has one."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from odi_assets.config.duration import Lag


class Strict(BaseModel):
    """Unknown keys are mistakes; a loaded model never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


# -- connections ------------------------------------------------------------------------------------------------------


class LocalConnection(Strict):
    """A folder of this machine, relative to the project file's folder."""

    type: Literal["local"] = "local"
    base_path: str = "./data"


class AccountKeyAuth(Strict):
    mode: Literal["account_key"] = "account_key"
    account_key: SecretStr


class SasAuth(Strict):
    mode: Literal["sas"]
    sas_token: SecretStr


AzureAuth = Annotated[AccountKeyAuth | SasAuth, Field(discriminator="mode")]


class AzureBlobConnection(Strict):
    """A container of Azure Blob Storage or Data Lake Storage Gen2. ``endpoint`` is for emulators and private clouds."""

    type: Literal["azure_blob"]
    account_name: str
    container: str
    base_path: str = ""
    endpoint: str | None = None
    auth: AzureAuth


class S3Connection(Strict):
    """A bucket of Amazon S3 or of a server that speaks its protocol."""

    type: Literal["s3"]
    bucket: str
    base_path: str = ""
    region: str | None = None
    endpoint: str | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None


class GcsConnection(Strict):
    """A bucket of Google Cloud Storage."""

    type: Literal["gcs"]
    bucket: str
    base_path: str = ""
    endpoint: str | None = None
    service_account_key: SecretStr | None = None


Connection = Annotated[
    LocalConnection | AzureBlobConnection | S3Connection | GcsConnection, Field(discriminator="type")
]


# -- nodes ------------------------------------------------------------------------------------------------------------


class IncrementalMode(StrEnum):
    STATEFUL = "stateful"
    ROLLING_WINDOW = "rolling_window"
    FILES = "files"
    VERSION = "version"


class StatefulIncrement(Strict):
    """``HWM < column <= upper``, where upper is fixed before reading."""

    mode: Literal["stateful"]
    column: str
    fallback_column: str | None = None
    state_key: str | None = None
    watermark_lag: Lag | None = None


class RollingWindowIncrement(Strict):
    """The last ``lookback`` units of ``column``, counted back from now in UTC; keeps no HWM."""

    mode: Literal["rolling_window"]
    column: str
    lookback: int = Field(gt=0)
    unit: Literal["minute", "hour", "day", "week", "month", "year"] = "day"


class FilesIncrement(Strict):
    """Files that are new by (mtime, path)."""

    mode: Literal["files"]
    state_key: str | None = None


class VersionIncrement(Strict):
    """Rows that an upstream Delta table gained in commits after the last one read."""

    mode: Literal["version"]
    state_key: str | None = None


Increment = Annotated[
    StatefulIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement, Field(discriminator="mode")
]
InputIncrement = Annotated[
    StatefulIncrement | RollingWindowIncrement | VersionIncrement, Field(discriminator="mode")
]


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    DELTA = "delta"


class ReadConfig(Strict):
    """A source outside the pipeline. ``path`` may be a glob; ``schema`` is Spark DDL: ``"id BIGINT, name STRING"``."""

    connection: str
    format: FileFormat
    path: str
    schema_ddl: str | None = Field(default=None, alias="schema")
    options: dict[str, str] = Field(default_factory=dict)
    incremental: Increment | None = None


class InputConfig(Strict):
    """Another node's table: ``node`` of this pipeline, or ``pipeline.node``. Whole unless ``incremental`` is set."""

    node: str
    incremental: InputIncrement | None = None


class TransformConfig(Strict):
    """Exactly one of the three. SQL sees each input as a view under its name, and what ``read`` gives as ``df``."""

    sql: str | None = None
    sql_file: str | None = None
    function: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)


class PartitionConfig(Strict):
    """One Dagster partition per ``every`` of ``column``; the table is partitioned by ``column`` too."""

    column: str
    every: Literal["hour", "day", "month"] = "day"
    start: date
    end: date | None = None


class WriteMode(StrEnum):
    APPEND = "append"
    APPEND_ONCE = "append_once"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"
    PARTITION_OVERWRITE = "partition_overwrite"


class WriteConfig(Strict):
    """The node's Delta table. ``keys`` identify a row: needed by upsert and append_once."""

    connection: str
    path: str
    mode: WriteMode = WriteMode.OVERWRITE
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()


class NodeConfig(Strict):
    """One step of a pipeline: read and/or inputs, then transform, then write."""

    name: str
    description: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    read: ReadConfig | None = None
    inputs: dict[str, InputConfig] = Field(default_factory=dict)
    transform: TransformConfig | None = None
    partition: PartitionConfig | None = None
    write: WriteConfig


class PipelineConfig(Strict):
    pipeline: str
    description: str | None = None
    owner: str | None = None
    schedule: str | None = None
    tags: tuple[str, ...] = ()
    nodes: tuple[NodeConfig, ...] = Field(min_length=1)


# -- project ----------------------------------------------------------------------------------------------------------


class RetryConfig(Strict):
    """Waits 1, 2, 4, 8, 16 s plus up to 1 s, five retries, unless set otherwise."""

    retries: int = Field(default=5, ge=0)
    base_delay: float = Field(default=1.0, ge=0)
    max_delay: float = Field(default=16.0, ge=0)
    jitter: float = Field(default=1.0, ge=0)


class SystemConfig(Strict):
    """Where the system tables live: ``path`` holds both, or each has a path of its own."""

    connection: str
    path: str = "_odibi_system"
    meta_runs_path: str | None = None
    meta_state_path: str | None = None
    environment: str | None = None
    retry: RetryConfig = RetryConfig()


class SparkConfig(Strict):
    """Spark settings of this project; ``remote`` is a Spark Connect address (``sc://host:15002``)."""

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)


class ProjectConfig(Strict):
    """The whole project file."""

    project: str
    engine: Literal["spark"] = "spark"
    environment: str | None = None
    description: str | None = None
    owner: str | None = None
    version: str = "1.0.0"
    connections: dict[str, Connection]
    pipelines: tuple[PipelineConfig, ...] = Field(min_length=1)
    system: SystemConfig | None = None
    spark: SparkConfig = SparkConfig()
