"""Odibi 3.15.1, on pandas and on Spark, and this tool at work on the same system tables, side by side and for real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets.delta.retry import Retry
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets_tests.state.conftest import QUICK
from odi_assets_tests.state.odibi.odibi_engines import Odibi, odibi
from odi_assets_tests.state.test_runs_contract import run

STATE = ["key", "value", "environment", "updated_at"]
RUNS = [
    *("run_id", "project", "pipeline_name", "node_name", "status", "rows_processed", "duration_ms", "metrics_json"),
    *("environment", "timestamp", "date"),
]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Odibi]]:
    """Odibi on each of its engines."""
    with (
        odibi("pandas", tmp_path_factory.mktemp("pandas")) as pandas,
        odibi("spark", tmp_path_factory.mktemp("spark")) as spark,
    ):
        yield {"pandas": pandas, "spark": spark}


class Shared:
    """One folder of system tables, and all who use it."""

    def __init__(self, folder: Path, engines: dict[str, Odibi], environment: str | None = None) -> None:
        self.folder = folder
        self.engines = engines
        for engine in engines.values():
            engine("open", folder=str(folder), environment=environment)
        self.ours = self.opened(environment)

    def opened(self, environment: str | None = None) -> CatalogStateBackend:
        tables = (str(self.folder / "meta_runs"), str(self.folder / "meta_state"))
        return CatalogStateBackend(*tables, environment=environment, retry=Retry(QUICK))

    def values(self, key: str) -> list[Any]:
        """A key's value as each engine of Odibi reads it."""
        return [engine("get", key=key) for engine in self.engines.values()]

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.folder / name))

    def is_odibis(self) -> None:
        """Both tables have Odibi's columns and properties, and each key has one row."""
        for name, columns in (("meta_state", STATE), ("meta_runs", RUNS)):
            table = self.table(name)
            assert [field.name for field in table.schema().fields] == columns
            assert table.protocol()[:2] == (1, 2)
        keys = [key for key, _, _ in self.engines["pandas"]("rows")]
        assert len(keys) == len(set(keys))


@pytest.fixture(params=["pandas", "spark"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, engines: dict[str, Odibi]) -> Shared:
    """Tables that one of Odibi's engines made."""
    shared = Shared(tmp_path, engines)
    engines[request.param]("bootstrap")
    return shared


def test_each_reads_what_the_others_set_and_the_last_one_counts(shared: Shared) -> None:
    pandas, spark = shared.engines["pandas"], shared.engines["spark"]
    pandas("set", key="a_hwm", value=1)
    assert spark("get", key="a_hwm") == shared.ours.get_hwm("a_hwm") == 1
    assert shared.ours.set_hwm("a_hwm", 2).revision == 1
    assert shared.values("a_hwm") == [2, 2]
    for number, engine in enumerate((spark, pandas, spark), 3):
        engine("set", key="a_hwm", value=10 * number)
        entry = shared.opened().get_entry("a_hwm")
        assert (entry.value, entry.value_type) == (10 * number, None)
        assert shared.ours.set_hwm("a_hwm", 10 * number + 5).revision == entry.revision + 1
        assert shared.values("a_hwm") == [10 * number + 5] * 2
    told = [(entry.revision, entry.value) for entry in shared.opened().history("a_hwm")]
    assert told == [(7, 55), (6, 50), (5, 45), (4, 40), (3, 35), (2, 30), (1, 2), (0, 1)]
    assert shared.table("meta_state").metadata().configuration == {}
    assert shared.table("meta_runs").metadata().configuration == {}
    shared.is_odibis()


def test_batches_types_and_deletions_of_each_are_seen_by_the_others(shared: Shared) -> None:
    pandas, spark = shared.engines["pandas"], shared.engines["spark"]
    spark("batch", updates={"n1_hwm": 1, "n2_hwm": "2024-01-31"})
    values = {"day": date(2024, 1, 31), "amount": Decimal("1.10"), "at": datetime(2024, 1, 31, tzinfo=UTC), "n1_hwm": 7}
    shared.ours.set_hwm_batch([{"key": key, "value": value} for key, value in values.items()])
    assert {entry.key: entry.value for entry in shared.opened().list_hwms()} == {**values, "n2_hwm": "2024-01-31"}
    assert shared.values("day") == ["2024-01-31"] * 2
    assert shared.values("n1_hwm") == [7, 7]
    pandas("batch", updates={"n1_hwm": 8, "day": "2024-02-29"})
    assert shared.ours.get_hwm("n1_hwm") == 8
    assert shared.ours.set_hwm("day", date(2024, 3, 1)).value_type == "date"
    assert spark("get", key="day") == "2024-03-01"
    shared.ours.delete_hwm("n2_hwm")
    assert shared.values("n2_hwm") == [None, None]
    for key, engine in (("day", pandas), ("n1_hwm", spark)):
        assert engine("clear", key=key) in (True, False)
        assert engine("get", key=key) is None
        assert shared.opened().get_hwm(key) is None
        assert shared.opened().get_entry(key, deleted=True).deleted
    assert [entry.key for entry in shared.ours.list_hwms()] == ["amount", "at"]
    shared.ours.set_hwm("day", date(2024, 4, 1))
    assert shared.values("day") == ["2024-04-01"] * 2
    shared.is_odibis()


@pytest.mark.parametrize("shared", ["spark"], indirect=True)
def test_what_a_kill_left_out_of_odibis_table_is_put_there_by_the_next_read(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.ours.set_hwm("a_hwm", 1)
    with monkeypatch.context() as patch:
        patch.setattr(CatalogStateBackend, "_mirror", lambda *_: None)
        shared.ours.set_hwm("a_hwm", 2)
    assert shared.values("a_hwm") == [1, 1]
    assert shared.opened().get_hwm("a_hwm") == 2
    assert shared.values("a_hwm") == [2, 2]


@pytest.mark.parametrize("shared", ["pandas"], indirect=True)
def test_runs_of_each_are_seen_by_the_others_and_can_be_synced(shared: Shared, tmp_path: Path) -> None:
    ours = run(1, node="n", table_version=4, hwm_before=date(2024, 1, 1), attempt=2, metrics={"rows": 3})
    expected = []
    for name, engine in shared.engines.items():
        engine("run", run_id=f"odibi-{name}", pipeline="flights", node="n")
        shared.ours.record_runs([run(10 + len(expected), node="n")])
        expected += [f"odibi-{name}", f"run-{10 + len(expected)}"]
    shared.ours.record_runs([ours])
    for engine in shared.engines.values():
        assert engine("runs") == sorted([*expected, "run-1"])
        assert engine("last", pipeline="flights", node="n")["success"] is True
        copied = engine("sync", folder=str(tmp_path / "copy"))
        assert copied["success"], copied
    assert sorted(found.run_id for found in shared.opened().list_runs()) == sorted([*expected, "run-1"])
    assert shared.opened().list_runs(run_id="run-1")[0].metrics == {"rows": 3}
    shared.is_odibis()


@pytest.mark.parametrize("shared", ["spark"], indirect=True)
def test_odibis_compaction_and_ours_leave_all_of_it_readable(shared: Shared) -> None:
    for number in range(3):
        shared.ours.set_hwm("a_hwm", number)
        shared.ours.record_runs([run(number)])
    before = (shared.ours.histories(), shared.ours.list_runs())
    for engine in shared.engines.values():
        assert all(done["success"] for done in engine("optimize").values())
        assert shared.ours.maintain()["rows_mirrored"] == 0
        assert (shared.ours.histories(), shared.ours.list_runs()) == before
    assert shared.values("a_hwm") == [2, 2]
    shared.is_odibis()


@pytest.mark.parametrize("shared", ["pandas"], indirect=True)
def test_writers_of_both_at_once_lose_nothing(shared: Shared) -> None:
    keys = [f"k{number}" for number in range(6)]
    for engine in shared.engines.values():
        for key in keys[:3]:
            engine.begin("set", key=f"{key}_{id(engine)}", value=1)
    for key in keys:
        shared.ours.set_hwm(key, 7)
    for engine in shared.engines.values():
        for _ in keys[:3]:
            engine.answer()
    found = {entry.key: entry.value for entry in shared.opened().list_hwms()}
    assert found == {
        **dict.fromkeys(keys, 7),
        **{f"{key}_{id(engine)}": 1 for engine in shared.engines.values() for key in keys[:3]},
    }
    for key in found:
        assert shared.values(key) == [found[key]] * 2
    shared.is_odibis()


def test_an_environment_of_the_project_is_one_for_all(tmp_path: Path, engines: dict[str, Odibi]) -> None:
    shared = Shared(tmp_path, engines, environment="dev")
    engines["spark"]("bootstrap")
    engines["pandas"]("set", key="a_hwm", value=1)
    assert shared.ours.get_hwm("a_hwm") == 1
    shared.ours.set_hwm("a_hwm", 2)
    shared.opened("prod").set_hwm("a_hwm", 99)
    assert shared.values("a_hwm") == [2, 2]
    engines["spark"]("set", key="a_hwm", value=3)
    assert (shared.ours.get_hwm("a_hwm"), shared.opened("prod").get_hwm("a_hwm")) == (3, 99)
    shared.is_odibis()


def test_tables_that_we_made_are_odibis_too_once_they_are_shared(tmp_path: Path, engines: dict[str, Odibi]) -> None:
    shared = Shared(tmp_path, engines)
    for number in range(3):
        shared.ours.set_hwm("a_hwm", number)
        shared.ours.record_runs([run(number)])
    shared.ours.set_hwm("day", date(2024, 1, 31))
    with pytest.raises(RuntimeError, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        engines["spark"]("set", key="a_hwm", value=5)
    before = (shared.ours.histories(), shared.ours.list_runs())
    assert shared.opened().share_with_odibi() == {"meta_state": 2, "meta_runs": 3}
    assert (shared.ours.histories(), shared.ours.list_runs()) == before
    assert shared.values("a_hwm") == [2, 2]
    for name, engine in engines.items():
        engine("bootstrap")
        engine("set", key="a_hwm", value=f"by {name}")
        assert shared.ours.get_hwm("a_hwm") == f"by {name}"
        engine("run", run_id=name, pipeline="flights", node="raw")
        assert name in engine("runs")
        shared.ours.reset_hwm("a_hwm", 7)
        assert shared.values("a_hwm") == [7, 7]
    assert len(shared.ours.list_runs()) == 5
    shared.is_odibis()


def test_tables_can_be_made_for_both_before_either_ran(tmp_path: Path, engines: dict[str, Odibi]) -> None:
    shared = Shared(tmp_path, engines)
    assert shared.ours.share_with_odibi() == {"meta_state": 0, "meta_runs": 0}
    for engine in engines.values():
        engine("bootstrap")
    engines["spark"]("set", key="a_hwm", value=1)
    shared.ours.set_hwm("b_hwm", 2)
    assert (shared.ours.get_hwm("a_hwm"), shared.values("b_hwm")) == (1, [2, 2])
    shared.is_odibis()
