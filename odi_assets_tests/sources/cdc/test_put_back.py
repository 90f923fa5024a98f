"""A server that is put back from an older copy of its data: what was captured since is in no log of it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import IdentityMismatchError
from odi_assets.sources.cdc.mark import lsn_of
from odi_assets_tests.sources.cdc.conftest import capture_of, held, opened, rows_of, run_all
from odi_assets_tests.sources.sql.servers import PostgresServer, postgres, postgres_again, postgres_program


@pytest.fixture
def folder() -> Iterator[Path]:
    if postgres_program("initdb") is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        yield Path(name)


def change_until(server: PostgresServer, least: int) -> None:
    """Change rows of a server until its log ends above a position."""
    with opened(server) as database:
        database.execute("UPDATE orders SET state = 'of another history' WHERE id = 3")
        while lsn_of(database.execute("SELECT pg_current_wal_lsn()::text").fetchall()[0][0]) <= least:
            database.execute("INSERT INTO orders SELECT max(id) + 1, 'more' FROM orders")


@pytest.mark.parametrize("is_beyond", [True, False], ids=["its log goes on beyond", "its log ends below"])
def test_a_server_that_was_put_back_stops_the_capture_and_new_snapshots_go_on(
    folder: Path, tmp_path: Path, spark: SparkSession, is_beyond: bool
) -> None:
    with postgres(folder) as server, opened(server) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        database.execute("INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 10) g")
        box = capture_of(server, tmp_path, spark)("orders")
        run_all(box)
    subprocess.run(["cp", "-a", str(folder / "data"), str(folder / "copy")], check=True)
    with postgres_again(folder, server.port), opened(server) as database:
        database.execute("INSERT INTO orders SELECT g, 'of the first history' FROM generate_series(100, 1000) g")
        run_all(box)
        # A server that was stopped and went on is the same one.
        database.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
        run_all(box)
        assert held(box, "orders") == rows_of(database, "orders")
    (folder / "data").rename(folder / "lost")
    (folder / "copy").rename(folder / "data")
    end = lsn_of(box.hwm("changes")["end"])
    with postgres_again(folder, server.port), opened(server) as database:
        change_until(server, end + 1000 if is_beyond else 0)
        with pytest.raises(IdentityMismatchError, match="put back from an older copy") as stopped:
            box.run("changes")
        assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
        box.run("changes", full_refresh=True, accept_loss=True)
        run_all(box)
        assert held(box, "orders") == rows_of(database, "orders")
