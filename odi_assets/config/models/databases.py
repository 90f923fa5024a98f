"""Connections to SQL databases."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, mistakes
from odi_assets.config.models.fields import Option, Secret, Size, SlotName, Strict, Text

Port = Annotated[int, Field(ge=1, le=65535)]
_PORTS = {"postgres": 5432, "mysql": 3306, "mssql": 1433}


class LogSettings(Strict):
    """How the log of a server is read, for `format: cdc`."""

    slot: SlotName | None = Field(
        default=None,
        description="Replication slot of this capture, of the plugin `pgoutput`; no two captures share one. "
        "`type: postgres` needs it.",
    )
    publication: Text | None = Field(default=None, description="Publication; named as the slot unless given.")
    create: bool = Field(
        default=False, description="Make the slot and the publication, and add tables to it, where they are missing."
    )
    server_id: int | None = Field(
        default=None,
        ge=1,
        le=2**32 - 1,
        description="Number under which the log is read from `type: mysql`, as replicas have one. Unless given, it is "
        "read without one, as mysqlbinlog does.",
    )
    warn_lag: Size = Field(
        default=1 << 30,
        description="Bytes of the log that a capture may be behind, as in `1GB`, before the asset check `log_lag` and "
        "`odi doctor` warn.",
    )


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


class ServerConnection(_Database):
    """A database of PostgreSQL; of MySQL or MariaDB; of Microsoft SQL Server or Azure SQL."""

    type: Literal["postgres", "mysql", "mssql"]
    host: Text = Field(default="localhost", description="Name or address of the server.")
    port: Port = Field(
        default_factory=lambda validated_fields: _PORTS[validated_fields["type"]],
        description="Port of the server; unless given 5432 of postgres, 3306 of mysql, 1433 of mssql.",
    )
    database: Text = Field(description="Database.")
    log: LogSettings | None = Field(
        default=None, description="How the server's log is read, for `format: cdc`; of postgres and mysql."
    )

    @model_validator(mode="after")
    def _log_fits_its_type(self) -> ServerConnection:
        if self.log is None:
            return self
        of_type = {"postgres": ("slot", "publication", "create", "warn_lag"), "mysql": ("server_id", "warn_lag")}.get(
            self.type, ()
        )
        if not of_type:
            raise mistakes([Mistake(f"is nothing for `type: {self.type}`", at=("log",), where="key")])
        log_mistakes = [
            Mistake(f"is nothing for `type: {self.type}`; `log` of it has {', '.join(of_type)}", at=("log", name))
            for name in sorted(self.log.model_fields_set - {*of_type})
        ]
        if self.type == "postgres" and self.log.slot is None:
            log_mistakes.append(Mistake("needs `slot`, the replication slot of this capture", at=("log",)))
        if log_mistakes:
            raise mistakes(log_mistakes)
        return self


class JdbcConnection(_Database):
    """Any other database with a JDBC driver."""

    type: Literal["sql"]
    url: Text = Field(description="JDBC address, as in `jdbc:h2:mem:db`, without user and password.")
    driver: Text = Field(description="Class of the JDBC driver.")


SqlConnection = ServerConnection | JdbcConnection
