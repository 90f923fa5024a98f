"""System tables of Odibi before 2.5, which have no column ``environment``."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.test_runs_contract import run

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    moments = pa.timestamp("us", "UTC")
    for key, value in (("orders_hwm", '"2024-01-31"'), ("seen", "5")):
        state = {"key": [key], "value": [value], "updated_at": pa.array([NOON], moments)}
        write_deltalake(str(tmp_path / "meta_state"), pa.table(state), mode="append")
    for number in range(2):
        runs = {
            "run_id": [f"old-{number}"],
            "pipeline_name": ["flights"],
            "node_name": ["raw"],
            "status": ["SUCCESS"],
            "rows_processed": pa.array([number], pa.int64()),
            "duration_ms": pa.array([5], pa.int64()),
            "metrics_json": ["{}"],
            "timestamp": pa.array([NOON.replace(minute=number)], moments),
            "date": [date(2024, 1, 31)],
        }
        write_deltalake(str(tmp_path / "meta_runs"), pa.table(runs), mode="append")
    return tmp_path


def test_they_are_the_environment_without_a_name(tables: Path) -> None:
    backend = open_backend("catalog", tables)
    assert (backend.get_hwm("orders_hwm"), backend.get_hwm("seen"), backend.get_hwm("no")) == ("2024-01-31", 5, None)
    assert [entry.key for entry in backend.list_hwms()] == ["orders_hwm", "seen"]
    assert [entry.value for entry in backend.history("seen")] == [5]
    assert sorted(backend.histories()) == ["orders_hwm", "seen"]
    assert backend.environments() == [None]
    assert [record.run_id for record in backend.list_runs()] == ["old-1", "old-0"]
    assert [record.run_id for record in backend.list_runs(pipeline="flights", limit=5)] == ["old-1", "old-0"]
    assert backend.get_last_run("flights", "raw").run_id == "old-1"
    assert sorted(backend.find_run_ids("old")) == ["old-0", "old-1"]


def test_a_named_environment_has_nothing_there(tables: Path) -> None:
    backend = open_backend("catalog", tables, "dev")
    assert (backend.get_hwm("seen"), backend.list_hwms(), backend.history("seen"), backend.histories()) == (
        None, [], [], {},
    )  # fmt: skip
    assert (backend.list_runs(), backend.list_runs(limit=1), backend.find_run_ids("old")) == ([], [], [])


def test_they_are_looked_at_for_maintenance_before_anything_of_ours_is_in_them(tables: Path) -> None:
    backend = open_backend("catalog", tables)
    assert backend.maintain(keep_runs_for=None, dry_run=True)["runs_dropped"] == 0
    backend.maintain()
    assert backend.get_hwm("seen") == 5
    assert len(backend.list_runs()) == 2


@pytest.mark.parametrize("environment", [None, "dev"])
def test_they_are_written_and_what_was_there_stays(tables: Path, environment: str | None) -> None:
    backend = open_backend("catalog", tables, environment)
    assert isinstance(backend, CatalogStateBackend)
    backend.set_hwm("seen", 6)
    backend.record_runs([run(1, timestamp=datetime.now(UTC))])
    assert backend.get_hwm("seen") == 6
    assert backend.get_last_run("flights", "raw").run_id == "run-1"
    nameless = open_backend("catalog", tables)
    assert nameless.get_hwm("orders_hwm") == "2024-01-31"
    assert nameless.get_hwm("seen") == (6 if environment is None else 5)
    assert {record.run_id for record in nameless.list_runs()} >= {"old-0", "old-1"}
    assert DeltaTable(backend.meta_state_path).to_pyarrow_dataset().count_rows() >= 2
    backend.maintain()
    assert nameless.get_hwm("orders_hwm") == "2024-01-31"
