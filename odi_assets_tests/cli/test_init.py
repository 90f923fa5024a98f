"""``odi init``: projects to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.sample.shop_db import TABLE, execute
from odi_assets_tests.cli.conftest import Odi


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


def test_the_client_of_the_examples_database_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found"):
        execute(tmp_path, "SELECT 1 FROM orders")
    execute(tmp_path, TABLE, create=True)
    assert "40.00" in execute(tmp_path, "SELECT amount FROM orders;")
    with pytest.raises(ConfigError, match="duplicate key"):
        execute(tmp_path, "INSERT INTO orders VALUES (1, 'ann', 1)")
