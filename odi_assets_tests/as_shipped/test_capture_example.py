"""The example of a capture, which has a PostgreSQL server of its own: as the page shows it, and as it says itself."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from odi_assets.sample.examples import NEXT, Example
from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.as_shipped.test_console import Session, follow
from odi_assets_tests.as_shipped.test_projects import MATERIALIZE
from odi_assets_tests.sources.sql.servers import postgres_program

STOP = "python -m odi_assets.sample.shop_postgres stop"


@pytest.fixture
def folder(installed: Installed) -> Iterator[Path]:
    """An empty folder that other users reach: as root, the server runs as another one. What runs there is stopped."""
    if postgres_program("initdb") is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    with tempfile.TemporaryDirectory(prefix="capture-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
        if (Path(made) / "shop").is_dir():
            installed.run(STOP, Path(made) / "shop")


@pytest.mark.usefixtures("jvm")
def test_the_page_on_captures_prints_what_it_shows(installed: Installed, folder: Path) -> None:
    session = Session(installed, folder)
    follow(session, "cdc.md")
    ended = installed.run('python -m odi_assets.sample.shop_postgres "SELECT 1"', folder / "shop")
    assert "the server does not run" in ended.stderr


@pytest.mark.usefixtures("jvm")
def test_the_example_does_what_it_says_to_type_next(installed: Installed, folder: Path) -> None:
    shown = installed.run("odi init --example cdc shop", folder)
    assert shown.returncode == 0, shown.stderr
    shop = folder / "shop"
    for step in NEXT[Example.CDC]:
        assert step.command in shown.stderr
        installed.done(step.command, shop)
    orders = json.loads(installed.done("odi show orders --json", shop))
    answered = installed.done(
        'python -m odi_assets.sample.shop_postgres "SELECT order_id, amount FROM orders ORDER BY order_id"', shop
    )
    assert sorted(f"{row['order_id']}\t{row['amount']}" for row in orders) == answered.split("\n")[:-1]
    installed.done(MATERIALIZE, shop)
    installed.done("odi doctor", shop)
    again = installed.run("odi init --example cdc shop", folder)
    assert (again.returncode, again.stdout) == (2, "")


def test_without_a_server_the_example_says_what_to_install(
    installed: Installed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odi_assets.errors import ConfigError
    from odi_assets.sample import shop_postgres

    del installed
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(shop_postgres, "_PLACES", ())
    with pytest.raises(ConfigError, match="apt install postgresql"):
        shop_postgres.make(folder / "shop")
    assert not (folder / "shop").exists()
