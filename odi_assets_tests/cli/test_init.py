"""``odi init``: projects to begin with."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pyspark
import pytest

from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.sample import shop_db
from odi_assets.sample.shop_db import TABLE, execute
from odi_assets.spark.jvm.java import find_java
from odi_assets_tests.cli.conftest import Odi


@pytest.mark.slow
@pytest.mark.parametrize("example_name", ["files", "sql", "stream"])
def test_init_makes_a_project_that_loads_and_overwrites_nothing(odi: Odi, tmp_path: Path, example_name: str) -> None:
    answer = odi("init", "made", "--example", example_name)
    assert answer.code == 0
    assert all(Path(line).is_file() or line == "made/shop_db" for line in answer.out.splitlines())
    assert "cd made" in answer.err
    assert Project.load(tmp_path / "made" / "odibi.yaml").warnings == ()
    (tmp_path / "made" / "odibi.yaml").write_text("mine", encoding="utf-8")
    again = odi("init", "made", "--example", example_name)
    assert (again.code, again.out) == (2, "")
    assert "has odibi.yaml" in again.err
    assert (tmp_path / "made" / "odibi.yaml").read_text(encoding="utf-8") == "mine"


def test_init_writes_nothing_where_one_file_is_in_the_way(odi: Odi, tmp_path: Path) -> None:
    (tmp_path / "landing").write_text("a file", encoding="utf-8")
    answer = odi("init")
    assert (answer.code, answer.out) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["landing"]
    assert odi("init", "x", "--example", "streams").code == 2


@pytest.mark.slow
def test_the_client_of_the_examples_database_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found"):
        execute(tmp_path, "SELECT 1 FROM orders")
    execute(tmp_path, TABLE, create=True)
    assert "40.00" in execute(tmp_path, "SELECT amount FROM orders;")
    with pytest.raises(ConfigError, match="duplicate key"):
        execute(tmp_path, "INSERT INTO orders VALUES (1, 'ann', 1)")


@pytest.mark.slow
def test_the_client_of_the_examples_database_waits_until_the_jvm_of_the_last_run_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tmp_path, TABLE, create=True)
    other = open_elsewhere(tmp_path)
    assert other.stdin is not None
    threading.Timer(1.0, other.stdin.close).start()
    assert "40.00" in execute(tmp_path, "SELECT amount FROM orders")
    assert other.wait() == 0
    monkeypatch.setattr(shop_db, "_WAIT_SECONDS", 0.0)
    with open_elsewhere(tmp_path) as other, pytest.raises(ConfigError, match="let the run that reads it end first"):
        execute(tmp_path, "SELECT amount FROM orders")


def open_elsewhere(folder: Path) -> subprocess.Popen[str]:
    """Open the database in a JVM that has it until its stdin closes."""
    jars = os.pathsep.join(map(str, (Path(pyspark.__file__).parent / "jars").glob("derby*.jar")))
    command = [str(find_java().executable), "-cp", jars, "org.apache.derby.tools.ij"]
    opened = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert opened.stdin is not None
    assert opened.stdout is not None
    opened.stdin.write("CONNECT 'jdbc:derby:shop_db';\nVALUES 'it is open';\n")
    opened.stdin.flush()
    next(line for line in opened.stdout if line.startswith("it is open"))
    return opened


@pytest.mark.usefixtures("jvm")
def test_a_second_run_of_the_first_project_has_nothing_to_do_and_a_file_more_is_summed_up_with_the_others(
    odi: Odi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert odi("init", "made").code == 0
    monkeypatch.chdir(tmp_path / "made")
    assert odi("run").code == 0
    assert [result["status"] for result in json.loads(odi("run", "--json").out)] == ["NO_DATA", "NO_DATA"]
    first = tmp_path / "made" / "landing" / "orders" / "2024-01-01.csv"
    head = first.read_text(encoding="utf-8").splitlines()[0]
    first.with_name("2024-01-09.csv").write_text(f"{head}\n9,ann,1.00,2024-01-09\n", encoding="utf-8")
    before = {row["customer"]: row["orders"] for row in json.loads(odi("show", "spending", "--json").out)}
    assert odi("run").code == 0
    after = {row["customer"]: row["orders"] for row in json.loads(odi("show", "spending", "--json").out)}
    assert after == {**before, "ann": before["ann"] + 1}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--cdc",), "--cdc is for the tables of a database"),
        (("--schema", "a", "--tables", "b"), "--schema, --tables is for"),
        (("--from", "postgresql://me:secret@h/d", "--example", "sql"), "two projects"),
        (("--from", "postgresql://me:secret@h/d", "--cdc", "--append-only", "a"), "says nothing there"),
        (
            (
                "--from",
                "shop.db",
            ),
            "PostgreSQL, MySQL or MariaDB",
        ),
        (("--from", "postgresql://me:secret@127.0.0.1:1/d"), "cannot be reached"),
    ],
)
def test_init_from_a_database_says_what_does_not_go_and_shows_no_password(
    odi: Odi, tmp_path: Path, options: tuple[str, ...], what: str
) -> None:
    answer = odi("init", "made", *options)
    assert answer.code != 0
    assert answer.out == ""
    assert what in answer.err
    assert "secret" not in answer.err
    assert list(tmp_path.iterdir()) == []
