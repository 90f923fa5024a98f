"""Databases where files belong, and files where a database does."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.partial_project import PartialProject
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models import FileFormat, SqlConnection


def connections(project: PartialProject) -> Iterator[Mistake]:
    """Find tables that would be written to a database, and reads whose format is not one of their connection."""
    tables: dict[Path, str] = {("system", "connection"): project.system_connection}
    for node in project.nodes:
        tables[(*node.path, "write", "connection")] = node.text("write", "connection")
        name = node.text("read", "connection")
        connection = project.connection(name)
        if node.read is None or connection is None:
            continue
        is_database, wants_one = isinstance(connection, SqlConnection), node.read.format is FileFormat.SQL
        if is_database and not wants_one:
            text = f"`{name}` is a database: write `format: sql`, and a `table` or a `query`"
            yield Mistake(text, at=(*node.path, "read", "format"))
        if wants_one and not is_database:
            text = "is no database: name a connection of type postgres, mysql, mssql or sql"
            yield about(name, text, at=(*node.path, "read", "connection"))
    for path, name in tables.items():
        if isinstance(project.connection(name), SqlConnection):
            yield about(name, "is a database, and Delta tables are kept in files: name another connection", at=path)
