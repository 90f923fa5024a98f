"""The address of a database, as ``odi init --from`` takes it: ``postgresql://user:password@host:port/database``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from pydantic import SecretStr

from odi_assets.config.models import ServerConnection
from odi_assets.errors import ConfigError
from odi_assets.scaffold.names import slug

_TYPES = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}
_OPTIONS = {
    "postgres": ("sslmode", "sslrootcert", "sslcert", "sslkey"),
    "mysql": ("sslMode", "serverSslCert"),
}
"""Parts of an address after its ``?`` that may go into a project file: none of them is a secret."""
_SHAPE = "postgresql://USER@HOST:PORT/DATABASE, or mysql:// or mariadb://"


@dataclass(frozen=True)
class DatabaseAddress:
    """Where a database is, and who signs in.

    Attributes:
        connection: with the password, if one is known.
        variable: the environment variable that the project file takes the password from.
        password_given: the password stood in the address.
    """

    connection: ServerConnection
    variable: str
    password_given: bool = field(default=False)

    @property
    def shown(self) -> str:
        """The database in words, without secrets."""
        connection = self.connection
        host = f"[{connection.host}]" if ":" in connection.host else connection.host
        return f"{'postgresql' if connection.type == 'postgres' else 'mysql'}://{host}:{connection.port}/{connection.database}"


def read_address(text: str, environment: Mapping[str, str]) -> DatabaseAddress:
    """The address that ``text`` is. A password that it lacks is taken from the environment.

    No message holds any of ``text``: what is wrong with it may be where its password begins.

    Raises:
        ConfigError: it is no address of a database.
    """
    scheme, slashes, rest = text.partition("://")
    kind = _TYPES.get(scheme.lower())
    if not slashes or kind is None:
        raise ConfigError("`--from` takes the address of a PostgreSQL, MySQL or MariaDB database", fix=f"as {_SHAPE}")
    # A password may hold any sign; all that is before the last @ is user and password.
    who, _, location = rest.rpartition("@")
    user, colon, password = who.partition(":")
    location, _, query = location.partition("?")
    server, _, database = location.partition("/")
    match = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>\d{1,5}))?", server)
    if match is None or not user or not database:
        missing = "a user" if not user else "a database" if not database else "a host and a port that can be read"
        raise ConfigError(f"the address of `--from` lacks {missing}", fix=f"write it as {_SHAPE}")
    name = unquote(database)
    base = re.sub(r"^(?=\d)", "DB_", slug(name, "db")).upper()
    variable = f"{base}_PASSWORD"
    secret = unquote(password) if colon else environment.get(variable, "")
    connection = ServerConnection(
        **({"port": int(match["port"])} if match["port"] else {}),
        type=kind,
        host=unquote(match["v6"] or match["host"] or "localhost"),
        database=name,
        user=unquote(user),
        password=SecretStr(secret) if secret else None,
        options=_options(query, kind),
    )
    return DatabaseAddress(connection, variable, bool(colon and password))


def _options(query: str, kind: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS[kind])):
        raise ConfigError(
            f"the address of `--from` has {', '.join(unknown)} after its `?`, which is not taken over",
            fix=f"leave it out, and write it into `options` of the connection; {', '.join(_OPTIONS[kind])} are taken",
        )
    return options
