"""State that cannot be looked at is an error of every command, and never "nothing was loaded" or "nothing has run"."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT
from odi_assets_tests.state.test_runs_contract import run

COMMANDS = (
    "state list", "state get shop.orders", "state history shop.orders", "state export", "state set shop.orders 7",
    "state reset shop.orders --to-nothing --yes", "state delete shop.orders --yes", "state recover",
    "state recover --dry-run", "state migrate --from project --to copy.json --yes", "catalog state odibi.yaml",
    "store list", "runs list", "runs last shop", "runs show run-1", "doctor", "plan", "system maintain",
    "system maintain --dry-run",
)  # fmt: skip


def refused(odi: Odi, commands: tuple[str, ...] = COMMANDS) -> None:
    for command in commands:
        answer = odi(*command.split())
        assert answer.code == 1, (command, answer)
        assert "Traceback" not in answer.err + answer.out, answer.err
        assert "this is a bug" not in answer.err
        assert "→" in answer.err or command.startswith(("doctor", "plan")), (command, answer.err)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["json", "delta"])
@pytest.mark.parametrize("trouble", ["file", "link"])
def test_a_folder_of_state_that_is_none_is_an_error_of_every_command(
    shop: Path, odi: Odi, system: str, trouble: str
) -> None:
    if system == "json":
        (shop / "odibi.yaml").write_text(PROJECT.replace("system: {connection: lake, path: system}\n", ""))
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm("shop.orders", 5)
    state.record_runs([run(1, pipeline="shop", node="orders")])
    folder = shop / ".odibi" if system == "json" else shop / "lake"
    folder.rename(shop / "away")
    if trouble == "file":
        folder.write_text("in the way")
    else:
        folder.symlink_to(shop / "nowhere")
    refused(odi)
    folder.unlink()
    (shop / "away").rename(folder)
    assert odi("state", "get", "shop.orders").out == "5\n"


def test_notes_of_attempts_that_cannot_be_looked_at_are_an_error(shop: Path, odi: Odi) -> None:
    (shop / ".odibi").mkdir()
    (shop / ".odibi" / "in_flight").write_text("in the way")
    refused(odi, ("doctor", "system maintain", "state recover"))


@pytest.mark.slow
def test_maintenance_goes_on_beside_a_table_that_cannot_be_read_and_fails(shop: Path, odi: Odi) -> None:
    Project.load(shop / "odibi.yaml").open_state().set_hwm("shop.orders", 5)
    (shop / "lake" / "orders").write_text("in the way")
    answer = odi("system", "maintain")
    assert answer.code == 1
    assert "small files compacted" in answer.err
    assert f"{shop / 'lake' / 'orders'}" in answer.err


@pytest.mark.parametrize(
    "system", ["", "system: {connection: lake}\n", "system: {connection: lake, meta_state_path: s}\n"]
)
def test_a_file_without_pipelines_is_about_state_alone(tmp_path: Path, odi: Odi, system: str) -> None:
    head = f"project: x\nconnections: {{lake: {{type: local, base_path: lake}}}}\n{system}"
    (tmp_path / "odibi.yaml").write_text(head)
    assert odi("config", "check").code == 0
    assert odi("state", "set", "a.b", "5").code == 0
    assert odi("state", "get", "a.b").out == "5\n"
    for command in ("state list", "runs list", "plan", "run", "doctor", "state recover", "system maintain",
                    "tables maintain --yes", "state export", "catalog state odibi.yaml"):  # fmt: skip
        assert odi(*command.split()).code == 0, command
    assert odi("run", "--json").out == "[]\n"
    for command in ("run p", "plan p", "runs last p", "state rewind p.n --list"):
        answer = odi(*command.split())
        assert (answer.code, "this is a bug" in answer.err) == (2, False), command


def test_doctor_names_the_database_that_only_a_plan_asks(
    tmp_path: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odibi.yaml").write_text("""
project: shop
connections:
  shop: {type: postgres, host: 127.0.0.1, port: 1, database: shop, user: u, password: p}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: shop
  nodes:
  - name: orders
    read: {connection: shop, format: sql, table: public.orders, incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: orders, mode: append}
""")
    answer = odi("doctor")
    assert answer.code == 0
    assert "Not looked at: 1 table of databases, shop:public.orders among them" in answer.err + answer.out
    assert "odi plan asks the databases" in answer.err + answer.out
