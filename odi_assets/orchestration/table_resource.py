"""A node's Delta table as a resource for assets beside the nodes, through dagster-deltalake.

We use its storage configurations and its ``DeltaTableResource`` for reading. We do not use its IO managers: a
time-partitioned write through them can leave only the last partition (dagster-io/dagster#34064).
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
    """The Delta table of a node. Its configuration, which the UI shows, holds no secret: keys and tokens come from the
    project file when the table is loaded."""

    project_file: str = Field(description="Project file that holds the node.")
    environment: str | None = Field(default=None, description="Which of the file's `environments`.")
    node: str = Field(description="The node, as `pipeline.node`.")

    def load(self) -> DeltaTable:
        """The table at ``version``, else at its newest version."""
        location = Project.shared(self.project_file, self.environment).target(NodeKey.parse(self.node))
        client = self.client_options.str_dict() if self.client_options else {}
        options = {**self.storage_options.str_dict(), **location.storage_options, **client}
        return DeltaTable(self.url, version=self.version, storage_options=options)


def delta_table_resource(project: Project, key: NodeKey | str) -> NodeTableResource:
    """The table of a node as a resource: ``resources={"delays": delta_table_resource(project, "flights.delays")}``.

    Raises:
        ConfigError: there is no such node.
    """
    key = NodeKey.parse(key) if isinstance(key, str) else key
    connection = project.config.connections[project.graph.node(key).write.connection]
    return NodeTableResource(
        url=project.target(key).uri,
        storage_options=storage_config(connection),
        project_file=str(project.path),
        environment=project.chosen,
        node=str(key),
    )


def storage_config(connection: Connection) -> StorageConfig:
    """The part of a connection without secrets, in dagster-deltalake's types."""
    if isinstance(connection, AzureBlobConnection):
        return AzureConfig(account_name=connection.account_name, container_name=connection.container)
    if isinstance(connection, S3Connection):
        return S3Config(bucket=connection.bucket, region=connection.region, endpoint=connection.endpoint)
    if isinstance(connection, GcsConnection):
        return GcsConfig(bucket=connection.bucket)
    return LocalConfig()
