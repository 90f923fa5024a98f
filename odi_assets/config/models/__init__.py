"""The project file as typed models. Names are Odibi's wherever Odibi has one."""

from odi_assets.config.models.connections import (
    AccountKeyAuth,
    AzureAuth,
    AzureBlobConnection,
    Connection,
    GcsConnection,
    LocalConnection,
    S3Connection,
    SasAuth,
    StoreConnection,
)
from odi_assets.config.models.databases import (
    JdbcConnection,
    ServerConnection,
    SqlConnection,
)
from odi_assets.config.models.fields import Strict
from odi_assets.config.models.increments import (
    Boundary,
    CursorIncrement,
    DateFormat,
    FilesIncrement,
    Increment,
    InputIncrement,
    OnChange,
    OnNull,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
)
from odi_assets.config.models.nodes import (
    FileFormat,
    InputConfig,
    NodeConfig,
    PartitionConfig,
    PipelineConfig,
    ReadConfig,
    TransformConfig,
)
from odi_assets.config.models.project import AutomationConfig, ProjectConfig, RetryConfig, SparkConfig, SystemConfig
from odi_assets.config.models.writes import SchemaPolicy, WriteConfig
from odi_assets.config.write_modes import WriteMode

__all__ = [
    "AccountKeyAuth",
    "AutomationConfig",
    "AzureAuth",
    "AzureBlobConnection",
    "Boundary",
    "Connection",
    "CursorIncrement",
    "DateFormat",
    "FileFormat",
    "FilesIncrement",
    "GcsConnection",
    "Increment",
    "InputConfig",
    "InputIncrement",
    "JdbcConnection",
    "LocalConnection",
    "NodeConfig",
    "OnChange",
    "OnNull",
    "PartitionConfig",
    "PipelineConfig",
    "ProjectConfig",
    "ReadConfig",
    "RetryConfig",
    "RollingWindowIncrement",
    "S3Connection",
    "SasAuth",
    "SchemaPolicy",
    "ServerConnection",
    "SparkConfig",
    "SqlConnection",
    "StatefulIncrement",
    "StoreConnection",
    "Strict",
    "SystemConfig",
    "TransformConfig",
    "VersionIncrement",
    "WriteConfig",
    "WriteMode",
]
