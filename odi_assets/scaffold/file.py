"""The text of a project file: settings in the order in which people read them, a node in a few lines, with comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odi_assets.scaffold.address import DatabaseAddress
from odi_assets.scaffold.names import job_name
from odi_assets.util.yaml_text import flow, in_comment

LAKE, SYSTEM = "lake", "system"
"""The connection of all tables, and the folder of the system's in it."""
Node = Mapping[str, Any]
_WIDTH = 140


@dataclass(frozen=True)
class ProjectFile:
    """A project over one database.

    Attributes:
        connection: what the connection to the database is called.
        asks_password: whether the connection has a password, which is a variable of the environment.
        notes: by node, the comment above it.
        package: the JARs that Spark needs; None if it needs none.
        slot: the replication slot of a capture; None without one.
    """

    address: DatabaseAddress
    connection: str
    asks_password: bool
    nodes: Sequence[Node]
    notes: Mapping[str, Sequence[str]]
    package: str | None = None
    slot: str | None = None

    def text(self, head: Sequence[str]) -> str:
        """The file.

        Args:
            head: the comment that it begins with.
        """
        project = job_name(self.address.connection.database)
        lines = ["# yaml-language-server: $schema=odibi.schema.json", *_comment(head)]
        lines += [f"project: {flow(project)}", "connections:", *self._connection_lines()]
        lines += [f"  {LAKE}: {{type: local, base_path: {LAKE}}}", f"system: {{connection: {LAKE}, path: {SYSTEM}}}"]
        if self.package is not None:
            lines.append(f'spark: {{packages: ["{self.package}"]}}')
        lines += ["pipelines:", f"- pipeline: {flow(project)}", "  nodes:"]
        for node in self.nodes:
            lines += [f"  {line}" for line in _comment(self.notes.get(str(node["name"]), ()))]
            lines += _node_lines(node)
        return "\n".join(lines) + "\n"

    def _connection_lines(self) -> Iterator[str]:
        server = self.address.connection
        settings = {
            "type": server.type,
            "host": server.host,
            "port": server.port,
            "database": server.database,
            "user": server.user,
        }
        yield f"  {flow(self.connection)}:"
        for name, value in settings.items():
            yield f"    {name}: {flow(value)}"
        if self.asks_password:
            yield f'    password: "${{{self.address.variable}}}"'
        if server.options:
            yield f"    options: {flow(server.options)}"
        if self.slot is not None:
            yield f"    log: {flow({'slot': self.slot, 'create': True})}"


def _node_lines(node: Node) -> Iterator[str]:
    """A node in lines: one for each of its parts, more for a long one."""
    yield f"  - name: {flow(node['name'])}"
    for part, settings in node.items():
        if part == "name":
            continue
        line = f"    {part}: {flow(settings)}"
        if len(line) <= _WIDTH:
            yield line
            continue
        yield f"    {part}:"
        for key, value in settings.items():
            if isinstance(value, list) and len(flow(value)) > _WIDTH:
                yield f"      {key}:"
                yield from (f"      - {flow(member)}" for member in value)
            else:
                yield f"      {key}: {flow(value)}"


def _comment(lines: Sequence[str]) -> list[str]:
    return [f"# {in_comment(line)}" for line in lines]
