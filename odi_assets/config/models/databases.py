"""Connections to SQL databases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from odi_assets.config.models.fields import Option, Secret, Strict, Text

Port = Annotated[int, Field(ge=1, le=65535)]


class _Database(Strict):
    user: Text | None = Field(default=None, description="Who signs in.")
    password: Secret | None = Field(default=None, description="The user's password; write `${VARIABLE}`.")
    driver: Text | None = Field(default=None, description="Class of the JDBC driver, where it is not the usual one.")
    options: dict[str, Option] = Field(
        default_factory=dict, repr=False, description="Properties of the JDBC driver, as in `sslmode: require`."
    )
    look_timeout: float = Field(
        default=20,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that a look at the cursor without Spark may take; 0 leaves all looks to Spark.",
    )


class _Server(_Database):
    host: Text = Field(default="localhost", description="Name or address of the server.")
    database: Text = Field(description="Database.")


class PostgresConnection(_Server):
    """A PostgreSQL database."""

    type: Literal["postgres"]
    port: Port = Field(default=5432, description="Port of the server.")


class MysqlConnection(_Server):
    """A database of MySQL or MariaDB."""

    type: Literal["mysql"]
    port: Port = Field(default=3306, description="Port of the server.")


class MssqlConnection(_Server):
    """A database of Microsoft SQL Server or Azure SQL."""

    type: Literal["mssql"]
    port: Port = Field(default=1433, description="Port of the server.")


class JdbcConnection(_Database):
    """Any other database with a JDBC driver."""

    type: Literal["sql"]
    url: Text = Field(description="JDBC address, as in `jdbc:h2:mem:db`, without user and password.")
    driver: Text = Field(description="Class of the JDBC driver.")


SqlConnection = PostgresConnection | MysqlConnection | MssqlConnection | JdbcConnection


def with_place(read: Any) -> Any:
    """A ``read`` of a database with the place in it that assets and messages name: its table's, as a path."""
    if not isinstance(read, dict) or read.get("format") != "sql" or "path" in read:
        return read
    table = read.get("table")
    return {**read, "path": table.replace(".", "/") if isinstance(table, str) and table else "query"}
