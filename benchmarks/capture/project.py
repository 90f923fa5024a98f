"""Projects whose one node captures tables of a database."""

from __future__ import annotations

from pathlib import Path

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.cdc.source import LogSource


def log_source(connection: str, folder: Path, tables: str, rows: int) -> LogSource:
    """The source of a node that captures tables.

    Args:
        connection: the connection `db` of the project file.
        tables: with their schemas, divided by commas.
        rows: of a chunk.
    """
    file = folder / "odibi.yaml"
    file.write_text(
        f"project: capture\nconnections:\n{connection.rstrip()}\n  lake: {{type: local, base_path: lake}}\n"
        "system: {connection: lake, path: system}\npipelines:\n- pipeline: p\n  nodes:\n  - name: changes\n"
        f"    read: {{connection: db, format: cdc, tables: [{tables}], snapshot: {{rows: {rows}}}}}\n"
        "    write: {connection: lake, path: changes}\n",
        encoding="utf-8",
    )
    (found,) = Node.of(Project.load(file), NodeKey("p", "changes")).sources
    if not isinstance(found, LogSource):
        raise AssertionError("the node captures a log")
    return found
