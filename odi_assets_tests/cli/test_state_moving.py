"""``odi state export | import | migrate``."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from odi_assets.errors import StateError
from odi_assets.nodes.project import Project
from odi_assets.state import LocalJSONStateBackend, StateBackend
from odi_assets.store import StateStoreProvider
from odi_assets.store.copies import copies_of_stores
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import odi as odi_process
from odi_assets_tests.state.test_runs_contract import run


@pytest.fixture
def state(shop: Path) -> StateBackend:
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm("shop.orders", date(2013, 1, 31))
    state.set_hwm("shop.spending", Decimal("7.50"))
    state.record_runs([run(1, pipeline="shop", node="orders")])
    return state


@pytest.mark.usefixtures("state")
def test_an_export_is_one_json_document_on_stdout(odi: Odi) -> None:
    answer = odi("state", "export")
    assert (answer.code, answer.err) == (0, "2 keys\n")
    document = json.loads(answer.out)
    assert (document["format"], document["version"], document["project"]) == ("odi-state", 1, "shop")
    (only,) = document["environments"]
    assert [(key["key"], key["value"], key["value_type"]) for key in only["keys"]] == [
        ("shop.orders", "2013-01-31", "date"),
        ("shop.spending", "7.50", "decimal"),
    ]
    assert "runs" not in only
    assert len(json.loads(odi("state", "export", "--runs").out)["environments"][0]["runs"]) == 1


def test_an_export_brings_back_what_was_lost(state: StateBackend, odi: Odi, shop: Path) -> None:
    assert odi("state", "export", "backup.json", "--runs", "--history").code == 0
    assert odi("state", "import", "backup.json", "--yes").err.endswith("Nothing to do: all of it is there already.\n")
    before = state.list_hwms()
    (shop / "lake" / "system").rename(shop / "lost")
    planned = odi("state", "import", "backup.json", "--dry-run")
    assert (planned.code, planned.out.splitlines()[1].split()[:3]) == (0, ["shop.orders", "added", "2013-01-31"])
    assert "This would write 2 keys, 1 run." in planned.err
    assert state.list_hwms() == []
    assert odi("state", "import", "backup.json").code == 2
    assert state.list_hwms() == []
    assert odi("state", "import", "backup.json", "--yes").code == 0
    assert state.list_hwms() == before
    assert len(state.list_runs()) == 1


def test_an_import_that_would_move_a_mark_back_changes_nothing(state: StateBackend, odi: Odi) -> None:
    odi("state", "export", "backup.json")
    state.set_hwm("shop.orders", date(2013, 2, 1))
    state.delete_hwm("shop.spending")
    for how in ([], ["--yes"], ["--dry-run"]):
        answer = odi("state", "import", "backup.json", *how)
        assert answer.code == 1
        assert "would move back: shop.orders, shop.spending" in answer.err
        assert "--force" in answer.err
    assert [entry.value for entry in state.list_hwms()] == [date(2013, 2, 1)]
    assert odi("state", "import", "backup.json", "--force", "--yes").code == 0
    assert [entry.value for entry in state.list_hwms()] == [date(2013, 1, 31), Decimal("7.50")]


@pytest.mark.slow
def test_a_document_comes_through_a_pipe_with_yes_only(shop: Path, state: StateBackend) -> None:
    exported = odi_process("state", "export", cwd=shop)
    state.delete_hwm("shop.orders")
    assert odi_process("state", "import", "--force", cwd=shop, stdin=exported.stdout).returncode == 2
    done = odi_process("state", "import", "-", "--force", "--yes", cwd=shop, stdin=exported.stdout)
    assert done.returncode == 0, done.stderr
    assert state.get_hwm("shop.orders") == date(2013, 1, 31)


def test_state_of_one_environment_can_be_put_into_another(state: StateBackend, odi: Odi) -> None:
    odi("state", "export", "backup.json")
    assert odi("state", "import", "backup.json", "--into", "dev", "--yes").code == 0
    assert state.in_environment("dev").get_hwm("shop.orders") == date(2013, 1, 31)
    listed = json.loads(odi("state", "export", "--all-environments").out)["environments"]
    assert [item["environment"] for item in listed] == [None, "dev"]


@pytest.mark.parametrize("content", ["{", '{"format": "x"}', None, "\udcff"])
def test_a_document_that_cannot_be_read_is_bad_input_and_changes_nothing(
    state: StateBackend, odi: Odi, shop: Path, content: str | None
) -> None:
    if content is not None:
        (shop / "bad.json").write_bytes(content.encode(errors="surrogateescape"))
    before = state.list_hwms()
    answer = odi("state", "import", "bad.json", "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("odi: bad.json")
    assert state.list_hwms() == before


def test_state_of_odibi_is_migrated_once(odi: Odi, shop: Path) -> None:
    (shop / ".odibi").mkdir()
    (shop / ".odibi" / "state.json").write_text(json.dumps({"pipelines": {}, "hwm": {"orders_hwm": 41, "other": "x"}}))
    move = ["state", "migrate", "--from", ".odibi/state.json"]
    hint = odi(*move, "--dry-run")
    assert hint.code == 0
    assert "--rename orders_hwm=shop.orders" in hint.err
    state = Project.load().open_state()
    assert state.list_hwms() == []
    assert odi(*move, "--rename", "orders_hwm=shop.orders").code == 2
    assert odi(*move, "--rename", "orders_hwm=shop.orders", "--yes").code == 0
    assert {entry.key: entry.value for entry in state.list_hwms()} == {"other": "x", "shop.orders": 41}
    again = odi(*move, "--rename", "orders_hwm=shop.orders")
    assert (again.code, again.out) == (0, "")
    assert "Nothing to do" in again.err


@pytest.mark.usefixtures("state")
def test_a_migration_back_to_a_file_tells_each_key_as_json(odi: Odi, shop: Path) -> None:
    answer = odi("state", "migrate", "--from", "project", "--to", "copy.json", "--yes", "--json")
    assert answer.code == 0
    told = json.loads(answer.out)
    assert [(key["key"], key["effect"]) for key in told["keys"]] == [
        ("shop.orders", "added"),
        ("shop.spending", "added"),
    ]
    assert (told["runs_added"], told["runs_there"]) == (1, 0)
    assert LocalJSONStateBackend(shop / "copy.json").get_hwm("shop.spending") == Decimal("7.50")


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("arguments", [["--from", "nowhere"], ["--from", "project"], ["--from", "s3://b/x"], []])
def test_a_migration_from_nowhere_is_bad_input(odi: Odi, arguments: list[str]) -> None:
    answer = odi("state", "migrate", *arguments, "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert "→" in answer.err


def test_a_forced_import_says_that_the_log_counts_over_older_entries_of_runs(state: StateBackend, odi: Odi) -> None:
    state.set_hwm("shop.orders", date(2013, 1, 31), run_id="r1", target_commit=3)
    odi("state", "export", "backup.json")
    state.set_hwm("shop.orders", date(2013, 2, 1), run_id="r2", target_commit=4)
    answer = odi("state", "import", "backup.json", "--force", "--yes")
    assert answer.code == 0
    assert "1 key of runs, shop.orders among them, move back in state alone" in answer.err
    assert "odi state rewind" in answer.err


@pytest.mark.usefixtures("state")
def test_a_migration_takes_the_state_stores_of_nodes_along(odi: Odi, shop: Path) -> None:
    def put(folder: str, key: str) -> None:
        provider = StateStoreProvider(str(shop / folder))
        with provider.get_store(provider.latest_version()) as store:
            store.put(key.encode(), b"seen")
            store.commit()

    def held(folder: str) -> set[str]:
        return {key.decode() for key in StateStoreProvider(str(shop / folder)).latest()[1].items}

    here, there = "lake/system/stores/shop.orders", "laptop/stores/shop.orders"
    move = ("state", "migrate", "--from", "project", "--to", "laptop/state.json")
    put(here, "a")
    planned = odi(*move, "--dry-run")
    assert "state store shop.orders: is copied" in planned.err
    assert "This would write 2 keys, 1 run, 1 state store." in planned.err
    assert not (shop / "laptop").exists()
    assert odi(*move, "--yes").err.endswith("Written: 2 keys, 1 run, 1 state store.\n")
    assert held(there) == {"a"}
    assert odi(*move, "--yes").err.endswith("Nothing to do: all of it is there already.\n")
    put(here, "b")
    assert "state store shop.orders: is brought up to date" in odi(*move, "--yes").err
    assert held(there) == {"a", "b"}
    put(there, "c")
    put(here, "d")
    again = odi(*move, "--json")
    assert json.loads(again.out)["stores"] == {"shop.orders": "back"}
    assert "state store shop.orders" not in again.out + again.err
    assert "is there already, and stays" in odi(*move).err
    assert held(there) == {"a", "b", "c"}
    odi("state", "migrate", "--from", "laptop/state.json", "--into", "dev", "--yes")
    assert held("lake/system/stores/dev/shop.orders") == {"a", "b", "c"}


def test_a_store_that_is_written_while_it_is_copied_is_left_alone(tmp_path: Path) -> None:
    def put(folder: str, key: bytes) -> None:
        provider = StateStoreProvider(str(tmp_path / folder / "stores" / "p.n"))
        with provider.get_store(provider.latest_version()) as store:
            store.put(key, b"seen")
            store.commit()

    source, target = (LocalJSONStateBackend(tmp_path / name / "state.json") for name in ("here", "there"))
    put("here", b"a")
    put("here", b"b")
    (planned,) = copies_of_stores(source, target)
    put("there", b"c")
    with pytest.raises(StateError, match="was written by somebody else while it was copied"):
        planned.apply()
    assert set(StateStoreProvider(str(tmp_path / "there/stores/p.n")).latest()[1].items) == {b"c"}
