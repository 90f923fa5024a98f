"""Moving state between stores, Odibi's own among them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.config.models import ProjectConfig
from odi_assets.errors import ConfigError, StateError
from odi_assets.state import LocalJSONStateBackend, RunStatus, StateBackend
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.factory import open_store
from odi_assets.state.transfer.migrate import migration
from odi_assets_tests.state.delta.test_catalog import odibi_state
from odi_assets_tests.state.test_factory import config
from odi_assets_tests.state.test_runs_contract import run

NOW = datetime(2013, 1, 31, 12, tzinfo=UTC)
ODIBI = {
    "pipelines": {
        "shop": {
            "last_run": "2013-01-31T12:00:00",
            "nodes": {
                "orders": {"success": True, "timestamp": "2013-01-31T11:00:00", "metadata": {"rows": 5}},
                "spending": {"success": False, "timestamp": None, "metadata": {}},
            },
        }
    },
    "hwm": {"orders_hwm": "2013-01-31 05:00:00", "orders.last_processed_id": 12345, "nan": float("nan")},
}


def local(folder: Path) -> LocalJSONStateBackend:
    return LocalJSONStateBackend(folder / "state.json")


def catalog(folder: Path) -> CatalogStateBackend:
    return CatalogStateBackend(str(folder / "meta_runs"), str(folder / "meta_state"))


def move(source: StateBackend, target: StateBackend, **how: Any) -> tuple[int, int]:
    """Keys and runs that a migration wrote."""
    transfer = migration(source, target, **how)
    transfer.apply()
    return len(transfer.moves), transfer.runs_added


def contents(backend: StateBackend) -> dict[str | None, Any]:
    seen = {name: backend.in_environment(name) for name in backend.environments()}
    return {name: (there.histories(), there.list_runs()) for name, there in seen.items()}


@pytest.mark.parametrize(("one", "other"), [(local, catalog), (catalog, local)], ids=["to Delta", "to JSON"])
def test_all_of_a_store_is_in_the_other_one_and_a_second_time_changes_nothing(
    tmp_path: Path, one: Any, other: Any
) -> None:
    source, target = one(tmp_path / "source"), other(tmp_path / "target")
    for environment in (None, "prod"):
        there = source.in_environment(environment)
        for day in (29, 30):
            there.set_hwm("k", datetime(2013, 1, day), target_commit=day, run_id="r")
        there.set_hwm("gone", b"\x00")
        there.delete_hwm("gone")
        there.record_runs([run(2, attempt=2), run(1, hwm_after={"version": 3}, metrics={"a": [1]})])
    assert move(source, target) == (4, 4)
    assert contents(target) == contents(source)
    assert move(source, target) == (0, 0)
    assert contents(target) == contents(source)


def test_a_key_that_moved_on_in_the_target_stays_and_the_rest_follows(tmp_path: Path) -> None:
    source, target = local(tmp_path), catalog(tmp_path)
    source.set_hwm("a", 1)
    source.set_hwm("b", 1)
    move(source, target)
    target.set_hwm("a", 5)
    source.set_hwm("b", 2)
    source.record_runs([run(1)])
    transfer = migration(source, target)
    assert [difference.after.key for difference in transfer.kept] == ["a"]
    transfer.apply()
    assert (target.get_hwm("a"), target.get_hwm("b"), len(target.list_runs())) == (5, 2, 1)
    assert move(source, target, force=True) == (1, 0)
    assert target.get_hwm("a") == 1
    assert target.history("a")[0].revision == 3


def test_an_hwm_that_was_reset_in_the_target_is_not_moved_forward_again(tmp_path: Path) -> None:
    source, target = local(tmp_path), catalog(tmp_path)
    source.set_hwm("a", 9)
    move(source, target)
    target.reset_hwm("a", 4)
    assert move(source, target) == (0, 0)
    assert target.get_hwm("a") == 4


# -- Odibi's stores ----------------------------------------------------------------------------------------------------


def test_odibis_state_file_comes_over_with_its_last_runs(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(ODIBI), encoding="utf-8")
    source, target = local(tmp_path), catalog(tmp_path)
    assert move(source, target, renames={"orders_hwm": "shop.orders"}) == (3, 2)
    assert target.get_hwm("shop.orders") == "2013-01-31 05:00:00"
    assert target.get_hwm("orders.last_processed_id") == 12345
    assert target.get_last_run_info("shop", "orders")["metadata"] == {"rows": 5}
    assert target.get_last_run_status("shop", "spending") is False
    assert move(source, target, renames={"orders_hwm": "shop.orders"}) == (0, 0)
    assert json.loads((tmp_path / "state.json").read_text()).keys() == ODIBI.keys()


def test_runs_that_this_tool_noted_in_odibis_form_are_not_doubled(tmp_path: Path) -> None:
    source, target = local(tmp_path), catalog(tmp_path)
    source.save_pipeline_run("shop", ODIBI["pipelines"]["shop"])
    assert move(source, target) == (0, 2)
    assert move(source, target) == (0, 0)


def test_odibis_tables_come_over_with_their_runs(tmp_path: Path) -> None:
    odibi_state(tmp_path / "old", orders="2013-01-31 00:00:00", raw=41)
    rows = {
        "run_id": ["r", "r"],
        "project": ["p", "p"],
        "pipeline_name": ["shop", "shop"],
        "node_name": ["orders", "spending"],
        "status": ["SUCCESS", "FAILED"],
        # pandas makes floats of ints beside a null.
        "rows_processed": pa.array([5.0, float("nan")]),
        "duration_ms": [10, 20],
        "metrics_json": ['{"a": 1}', None],
        "environment": pa.array([None, "prod"], pa.string()),
        "timestamp": pa.array([NOW, NOW], pa.timestamp("us", "UTC")),
        "date": [NOW.date(), NOW.date()],
    }
    write_deltalake(str(tmp_path / "old" / "meta_runs"), pa.table(rows))
    source, target = catalog(tmp_path / "old"), local(tmp_path)
    assert move(source, target) == (2, 2)
    assert target.get_hwm("raw") == 41
    assert [(r.status, r.rows_processed) for r in target.list_runs()] == [(RunStatus.SUCCESS, 5)]
    (failed,) = target.in_environment("prod").list_runs()
    assert (failed.status, failed.rows_processed) == (RunStatus.FAILURE, None)
    assert move(source, target) == (0, 0)


def test_odibis_nameless_environment_can_become_that_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(ODIBI), encoding="utf-8")
    source, target = local(tmp_path), catalog(tmp_path)
    move(source, target, into="dev", rename_environment=True)
    assert target.environments() == ["dev"]
    assert len(target.in_environment("dev").list_hwms()) == 3


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_two_keys_do_not_get_one_name(tmp_path: Path) -> None:
    source, target = local(tmp_path), catalog(tmp_path)
    source.set_hwm("a", 1)
    source.set_hwm("b", 1)
    with pytest.raises(StateError, match="two keys would both be named `b`"):
        migration(source, target, renames={"a": "b"})
    with pytest.raises(StateError, match="no key `c` to rename"):
        migration(source, target, renames={"c": "b"})


def test_a_store_that_is_empty_or_the_same_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no state in"):
        migration(local(tmp_path), catalog(tmp_path))
    with pytest.raises(ConfigError, match="onto itself"):
        migration(local(tmp_path), local(tmp_path))


def project() -> ProjectConfig:
    return config({"connection": "lake", "path": "_system"}, environment="dev")


def test_stores_go_by_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".odibi").mkdir()
    (tmp_path / ".odibi" / "state.json").write_text("{}")

    def opened(name: str) -> StateBackend:
        return open_store(name, project(), tmp_path)

    assert repr(opened("project")) == repr(opened("lake:_system")) == repr(opened("lake/_system"))
    assert repr(opened(".odibi/state.json")) == repr(opened(".odibi"))
    assert isinstance(opened("other.json"), LocalJSONStateBackend)
    with pytest.raises(ConfigError, match="how to sign in") as told:
        opened("s3://bucket/secret")
    assert "CONNECTION:PATH" in str(told.value)


def test_another_project_file_is_a_store(tmp_path: Path) -> None:
    text = """
    project: other
    connections: {lake: {type: local, base_path: lake}}
    system: {connection: lake, path: elsewhere}
    pipelines:
    - pipeline: p
      nodes: [{name: n, read: {connection: lake, path: x.csv, format: csv}, write: {connection: lake, path: n}}]
    """
    (tmp_path / "other.yaml").write_text(text)
    store = open_store(str(tmp_path / "other.yaml"), project(), tmp_path)
    assert isinstance(store, CatalogStateBackend)
    assert store.meta_state_path == str(tmp_path / "lake" / "elsewhere" / "meta_state")
