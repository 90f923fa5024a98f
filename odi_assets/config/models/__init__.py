"""The project file as typed models. Names are Odibi's wherever Odibi has one."""

from odi_assets.config.models.connections import (
    AccountKeyAuth,
    AzureAuth,
    AzureBlobConnection,
    Connection,
    GcsConnection,
    KafkaConnection,
    LocalConnection,
    S3Connection,
    SasAuth,
    StoreConnection,
)
from odi_assets.config.models.databases import JdbcConnection, ServerConnection, SqlConnection
from odi_assets.config.models.fields import Strict
from odi_assets.config.models.increments import (
    CTID,
    Boundary,
    ChunksConfig,
    ClockGuard,
    CursorIncrement,
    CursorsIncrement,
    DateFormat,
    DrivingCursor,
    FilesIncrement,
    Increment,
    InputIncrement,
    OnChange,
    OnNull,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
)
from odi_assets.config.models.nodes import InputConfig, NodeConfig, PipelineConfig, TransformConfig
from odi_assets.config.models.operation.alerts import AlertConfig, EmailAlert, LogAlert, WebhookAlert
from odi_assets.config.models.operation.automation import AutomationConfig, FreshnessConfig, JobConfig, NodeAutomation
from odi_assets.config.models.operation.partitions import PartitionConfig, ValuesConfig, is_key
from odi_assets.config.models.project import ProjectConfig, RetryConfig, SystemConfig
from odi_assets.config.models.reads import Read, ReadConfig
from odi_assets.config.models.spark import SparkConfig
from odi_assets.config.models.stream import OutputMode, StateStoreKind, StreamInput, StreamSettings, Watermark
from odi_assets.config.models.writes import SchemaPolicy, WriteConfig
from odi_assets.config.write_modes import WriteMode

__all__ = [
    "CTID",
    "AccountKeyAuth",
    "AlertConfig",
    "AutomationConfig",
    "AzureAuth",
    "AzureBlobConnection",
    "Boundary",
    "ChunksConfig",
    "ClockGuard",
    "Connection",
    "CursorIncrement",
    "CursorsIncrement",
    "DateFormat",
    "DrivingCursor",
    "EmailAlert",
    "FilesIncrement",
    "FreshnessConfig",
    "GcsConnection",
    "Increment",
    "InputConfig",
    "InputIncrement",
    "JdbcConnection",
    "JobConfig",
    "KafkaConnection",
    "LocalConnection",
    "LogAlert",
    "NodeAutomation",
    "NodeConfig",
    "OnChange",
    "OnNull",
    "OutputMode",
    "PartitionConfig",
    "PipelineConfig",
    "ProjectConfig",
    "Read",
    "ReadConfig",
    "RetryConfig",
    "RollingWindowIncrement",
    "S3Connection",
    "SasAuth",
    "SchemaPolicy",
    "ServerConnection",
    "SparkConfig",
    "SqlConnection",
    "StateStoreKind",
    "StatefulIncrement",
    "StoreConnection",
    "StreamInput",
    "StreamSettings",
    "Strict",
    "SystemConfig",
    "TransformConfig",
    "ValuesConfig",
    "VersionIncrement",
    "Watermark",
    "WebhookAlert",
    "WriteConfig",
    "WriteMode",
    "is_key",
]
