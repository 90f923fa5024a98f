"""The database of ``odi init --example cdc``: a small PostgreSQL server in a folder of the project.

``python -m odi_assets.sample.shop_postgres start`` starts it, ``stop`` ends it, ``change`` changes some rows; anything
else is SQL. Nobody reaches it but through a socket in its folder, which belongs to its user alone.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from odi_assets.errors import ConfigError, OdiError
from odi_assets.util.extras import install_command
from odi_assets.util.lazy import psycopg

FOLDER = "postgres"
_DATABASE = "shop"
_PORT = 5432
_LONGEST_SOCKET = 107
"""Bytes that the path of a socket may have."""
_PLACES = (
    *("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/local/opt/postgresql*/bin"),
    *("/opt/homebrew/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin"),
)
"""Where packages put the programs of a server that are not on PATH."""
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
port = {port}
wal_level = logical
shared_buffers = 16MB
"""
_TABLES = (
    "CREATE TABLE customers (customer_id int PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE orders (order_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id int NOT NULL "
    "REFERENCES customers, amount numeric(10,2) NOT NULL)",
    "INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, 'cem')",
    "INSERT INTO orders (customer_id, amount) VALUES (1, 12.50), (2, 8.00), (1, 5.25), (3, 40.00)",
)
_CHANGES = (
    "INSERT INTO orders (customer_id, amount) VALUES (2, 7.50)",
    "UPDATE orders SET amount = amount + 1 WHERE order_id = (SELECT min(order_id) FROM orders)",
    "DELETE FROM orders WHERE order_id = (SELECT min(order_id) FROM orders WHERE customer_id = 3)",
    "UPDATE customers SET name = 'bea' WHERE customer_id = 2",
)


def socket_folder(root: Path) -> Path:
    """The folder of the server's data and of its socket, which a connection names as its host.

    Raises:
        ConfigError: its path is too long for a socket.
    """
    folder = (root / FOLDER).resolve()
    if len(os.fsencode(folder / f".s.PGSQL.{_PORT}")) > _LONGEST_SOCKET:
        raise ConfigError(f"{folder} is too long a path for a socket", fix="name a folder with a shorter path")
    return folder


def make(root: Path) -> None:
    """Make the server's data, with the tables of the shop. It does not run afterwards.

    Raises:
        ConfigError: no PostgreSQL is installed, or no driver; or it cannot be made here.
    """
    initdb = _program("initdb")
    if find_spec("psycopg") is None:
        raise ConfigError("the log of a database is read with psycopg", fix=f"run: {install_command('postgres')}")
    data = socket_folder(root)
    data.mkdir(parents=True)
    try:
        _give_away(data)
        # Who may look into the folder may do anything in the database.
        _run([initdb, "-D", str(data), "-U", _DATABASE, "-A", "trust", "-E", "UTF8", "--no-locale"], data)
        quoted = str(data).replace("'", "''")
        with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(_SETTINGS.format(folder=quoted, port=_PORT))
        start(root)
        try:
            _execute(root, [f"CREATE DATABASE {_DATABASE}"], "postgres")
            _execute(root, list(_TABLES))
        finally:
            stop(root)
    except BaseException:
        shutil.rmtree(data)
        raise


def start(root: Path) -> None:
    """Start the server, and wait until it answers; one that runs goes on."""
    data = _made(root)
    if _is_running(data):
        return
    _run([_program("pg_ctl"), "-D", str(data), "-l", str(data / "server.log"), "-w", "start"], data)


def stop(root: Path) -> None:
    """Stop the server; transactions that go on are rolled back."""
    data = _made(root)
    if _is_running(data):
        _run([_program("pg_ctl"), "-D", str(data), "-m", "fast", "-w", "stop"], data)


def change(root: Path) -> str:
    """Order something, raise an order, withdraw another, and rename a customer, in one transaction each; in words."""
    _execute(root, list(_CHANGES))
    return "\n".join(_CHANGES)


def execute(root: Path, statement: str) -> str:
    """Run SQL in the database, and return the rows that it answers, a line each."""
    rows = _execute(root, [statement])
    return "\n".join("\t".join(map(str, row)) for row in rows)


def _execute(root: Path, statements: list[str], database: str = _DATABASE) -> list[tuple[Any, ...]]:
    data = _made(root)
    if not _is_running(data):
        raise ConfigError("the server does not run", fix="python -m odi_assets.sample.shop_postgres start")
    rows: list[tuple[Any, ...]] = []
    address = {"host": str(data), "port": _PORT, "user": _DATABASE, "dbname": database}
    try:
        with psycopg.connect(**address, autocommit=True) as opened:  # type: ignore[arg-type]
            for statement in statements:
                cursor = opened.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise ConfigError(f"the database refused it: {str(error).strip()}", fix="correct the SQL") from error
    return rows


def _made(root: Path) -> Path:
    data = socket_folder(root)
    if not (data / "PG_VERSION").is_file():
        raise ConfigError(f"{data} is no database of the example", fix="go to the folder that odi init made")
    return data


def _program(name: str) -> str:
    """A program of PostgreSQL's server, of the newest one that is installed.

    Raises:
        ConfigError: none is installed.
    """
    beside = sorted((folder for pattern in _PLACES for folder in Path("/").glob(pattern[1:])), key=_version)
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(beside))])
    program = shutil.which(name, path=path)
    if program is None:
        raise ConfigError(
            f"the example has a PostgreSQL server of its own, and `{name}` is not here",
            fix="install one (Debian: apt install postgresql; Fedora: dnf install postgresql-server; macOS: brew "
            "install postgresql; conda install postgresql), or put its programs on PATH",
        )
    return program


def _version(folder: Path) -> tuple[int, str]:
    digits = "".join(sign if sign.isdigit() else " " for sign in str(folder)).split()
    return (int(digits[0]) if digits else 0), str(folder)


def _is_running(data: Path) -> bool:
    ended = _ended([_program("pg_ctl"), "-D", str(data), "status"], data)
    return ended.returncode == 0


def _run(command: list[str], data: Path) -> None:
    ended = _ended(command, data)
    if ended.returncode:
        log = data / "server.log"
        said = (ended.stderr or ended.stdout).strip()
        raise ConfigError(
            f"{Path(command[0]).name} failed: {said.splitlines()[-1] if said else 'it says nothing'}",
            fix=f"see {log}" if log.is_file() else "see what it says; the folder has to be one that its user reaches",
        )


def _ended(command: list[str], data: Path) -> subprocess.CompletedProcess[str]:
    # A server holds open what it was started with: a pipe of ours would never end.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        ended = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, **_as_user(data)
        )
        said.seek(0)
        return subprocess.CompletedProcess(command, ended.returncode, "", said.read())


def _as_user(data: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: where we are root, it runs as whom the folder was given to."""
    if os.geteuid() != 0:
        return {}
    owner = data.stat()
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def _give_away(data: Path) -> None:
    """Give the folder to the user of PostgreSQL's packages, where we are root.

    Raises:
        ConfigError: there is no such user, or it cannot reach the folder.
    """
    if os.geteuid() != 0:
        data.chmod(0o700)
        return
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise ConfigError("PostgreSQL does not run as root", fix="become another user") from None
    os.chown(data, user.pw_uid, user.pw_gid)
    data.chmod(0o700)
    if _ended(["/bin/sh", "-c", 'cd "$0" && test -w .', str(data)], data).returncode:
        raise ConfigError(
            f"PostgreSQL does not run as root, and the user postgres does not reach {data}",
            fix="become another user, or name a folder that all may go through, as one of /tmp",
        )


def main(arguments: list[str]) -> int:
    """Start or stop the server of the current folder, change rows, or run the SQL that the arguments are."""
    root, text = Path.cwd(), " ".join(arguments)
    try:
        if text == "start":
            start(root)
        elif text == "stop":
            stop(root)
        else:
            print(change(root) if text == "change" else execute(root, text))
    except OdiError as error:
        print(f"odi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
