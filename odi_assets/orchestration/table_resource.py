"""A node's Delta table as a resource for assets that stand beside the nodes, through dagster-deltalake.

Its typed storage configurations and ``DeltaTableResource`` serve for reading. Its IO managers do not write our tables:
with them a time-partitioned write can end with the last partition alone (dagster-io/dagster#34064).
"""

from __future__ import annotations

from dagster_deltalake import AzureConfig, DeltaTableResource, GcsConfig, LocalConfig, S3Config
from deltalake import DeltaTable
from pydantic import Field

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import AzureBlobConnection, Connection, GcsConnection, S3Connection
from odi_assets.nodes.project import Project

StorageConfig = AzureConfig | S3Config | GcsConfig | LocalConfig


class NodeTableResource(DeltaTableResource):
    """The Delta table of a node. Its configuration, which the UI shows, holds no secret.

    Keys and tokens are taken from the project file when the table is loaded.
    """

    project_file: str = Field(description="Project file that holds the node.")
    node: str = Field(description="The node, as `pipeline.node`.")

    def load(self) -> DeltaTable:
        """The table at ``version``, or as it stands now."""
        location = Project.shared(self.project_file).target(NodeKey.parse(self.node))
        client = self.client_options.str_dict() if self.client_options else {}
        options = {**self.storage_options.str_dict(), **location.storage_options, **client}
        return DeltaTable(self.url, version=self.version, storage_options=options)


def delta_table_resource(project: Project, key: NodeKey | str) -> NodeTableResource:
    """The table of a node as a resource: ``resources={"delays": delta_table_resource(project, "flights.delays")}``.

    Raises:
        ConfigError: there is no such node.
    """
    key = NodeKey.parse(key) if isinstance(key, str) else key
    connection = project.config.connections[project.node(key).write.connection]
    return NodeTableResource(
        url=project.target(key).uri,
        storage_options=storage_config(connection),
        project_file=str(project.path),
        node=str(key),
    )


def storage_config(connection: Connection) -> StorageConfig:
    """What may be shown of a connection, in dagster-deltalake's types: names and places, no secrets."""
    if isinstance(connection, AzureBlobConnection):
        return AzureConfig(account_name=connection.account_name, container_name=connection.container)
    if isinstance(connection, S3Connection):
        return S3Config(bucket=connection.bucket, region=connection.region, endpoint=connection.endpoint)
    if isinstance(connection, GcsConnection):
        return GcsConfig(bucket=connection.bucket)
    return LocalConfig()
