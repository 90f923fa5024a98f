"""A package with a source, installed by pip: processes of ``odi`` run, die, go on and look at its source as at ours."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.shop import environment
from odi_assets_tests.extensions.packages import ENGINES, SQLITE, declare, pip_install

PROJECT = """\
project: shop
requires: [odi-sqlite, odi-dying]
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake, table_engine: dying}
system: {connection: lake, path: system}
spark: {conf: {spark.sql.shuffle.partitions: 1}}
pipelines:
  - pipeline: shop
    nodes:
      - name: orders
        read:
          connection: landing
          format: sqlite
          path: shop.db
          table: orders
          incremental: {mode: stateful, column: id}
        write: {connection: lake, path: orders, mode: append}
"""
DYING = """
import os, signal
from pathlib import Path
from odi_sqlite_engine import NotedEngine

class DyingEngine(NotedEngine):
    def write_on(self, df, handle, spec, stamp):
        at = os.environ.get("DIE", "")
        if at == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = super().write_on(df, handle, spec, stamp)
        if at == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
"""
"""An engine whose process dies before or after the commit."""


class Shop:
    """A project that reads a SQLite file, and processes of ``odi`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder / "shop", folder / "site"
        (self.folder / "landing").mkdir(parents=True)
        (self.folder / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
        self._ask("CREATE TABLE orders (id INTEGER, item TEXT)")
        pip_install(SQLITE, self.site)
        declare(self.site, "odi-dying", {ENGINES: {"dying": "odi_dying:DyingEngine"}}, odi_dying=DYING)

    def order(self, number: int, item: str) -> None:
        self._ask("INSERT INTO orders VALUES (?, ?)", number, item)

    def _ask(self, text: str, *values: object) -> None:
        with closing(sqlite3.connect(self.folder / "landing" / "shop.db")) as database, database:
            database.execute(text, values)

    def odi(self, *arguments: str, installed: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, [SQLITE.parents[2], *([self.site] if installed else [])]))
        command = [sys.executable, "-m", "odi_assets.cli", *arguments]
        env = environment(PYTHONPATH=path, **more)
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def done(self, *arguments: str) -> str:
        ended = self.odi(*arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @property
    def stored(self) -> list[int]:
        table = DeltaTable(str(self.folder / "lake" / "orders"))
        return sorted(table.scan(columns=["id"]).read_all()["id"].to_pylist())


@pytest.mark.usefixtures("jvm")
def test_runs_of_a_packages_source_die_and_go_on_and_lose_and_repeat_no_row(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.order(1, "tea")
    shop.order(2, "milk")
    assert shop.odi("run", DIE="before").returncode == -signal.SIGKILL
    shop.done("run")
    assert shop.stored == [1, 2]
    shop.order(3, "bread")
    assert shop.odi("run", DIE="after").returncode == -signal.SIGKILL
    shop.order(4, "salt")
    shop.done("run")
    assert shop.stored == [1, 2, 3, 4]
    assert "nothing after 4" in shop.done("plan")
    assert (shop.folder / "lake" / "orders.noted").read_text(encoding="utf-8").count("version") == 3
    shop.done("doctor")
    assert shop.done("state", "get", "shop.orders").strip() == "4"


@pytest.mark.usefixtures("jvm")
def test_a_packages_source_is_audited_and_explained_and_gone_it_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.order(1, "tea")
    shop.done("run")
    shop.done("audit", "orders")
    assert "landing:shop.db/orders" in shop.done("explain", "orders", "-k", "id=1")
    gone = shop.odi("run", installed=False)
    assert gone.returncode == 2
    assert "requires[0]: `odi-sqlite` is not installed here" in gone.stderr
    assert "pip install odi-sqlite" in gone.stderr
    assert shop.stored == [1]
