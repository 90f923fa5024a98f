"""Databases where files belong, and files where a database does."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models import KafkaConnection, SqlConnection


def connections(project: ProjectView) -> Iterator[Mistake]:
    """Find tables that would be written to a database, and reads whose format is not one of their connection."""
    system = project.config.system
    tables: dict[Path, str] = {} if system is None else {("system", "connection"): system.connection}
    for node in project.nodes:
        tables[(*node.path, "write", "connection")] = node.config.write.connection
        for at, read in node.config.reads.items():
            name = read.connection
            connection = project.connection(name)
            if connection is None:
                continue
            is_database = isinstance(connection, SqlConnection)
            wants_one = read.NEEDS == "database"
            if is_database and read.NEEDS == "store":
                text = f"`{name}` is a database: write `format: sql`, and a `table` or a `query`"
                yield Mistake(text, at=(*node.path, *at, "format"))
            if isinstance(connection, KafkaConnection) and read.NEEDS == "store":
                text = f"`{name}` has topics: write `format: debezium`, and `topics`"
                yield Mistake(text, at=(*node.path, *at, "format"))
            if wants_one and not is_database:
                text = "is no database: name a connection of type postgres, mysql, mssql or sql"
                yield about(name, text, at=(*node.path, *at, "connection"))
    for path, name in tables.items():
        if isinstance(project.connection(name), SqlConnection):
            yield about(name, "is a database, and Delta tables are kept in files: name another connection", at=path)
        elif isinstance(project.connection(name), KafkaConnection):
            yield about(name, "has topics, and Delta tables are kept in files: name another connection", at=path)
