"""What every state backend does with run history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from odi_assets.state import RunRecord, RunStatus, StateBackend, StateManager
from odi_assets_tests.state.conftest import Reopen

START = datetime(2013, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def run(number: int = 0, *, pipeline: str = "flights", node: str = "raw", **fields: Any) -> RunRecord:
    record = RunRecord(
        run_id=f"run-{number}",
        project="sample",
        pipeline_name=pipeline,
        node_name=node,
        status=RunStatus.SUCCESS,
        rows_processed=number,
        duration_ms=1500,
        timestamp=START + timedelta(minutes=number),
    )
    return replace(record, **fields)


def test_a_run_comes_back_whole(backend: StateBackend, reopen: Reopen) -> None:
    record = run(
        1,
        status=RunStatus.FAILURE,
        rows_processed=None,
        metrics={"rows_read": 5, "nested": {"a": [1, None]}},
        started_at=START,
        partition_key="2013-01-01",
        trigger="schedule",
        attempt=2,
        hwm_before={"version": 3},
        hwm_after="2013-01-31",
        table_version=7,
        code_version="abc",
        error="it's broken\nvery",
    )
    backend.record_runs([record])
    assert reopen().list_runs() == [record]
    assert reopen().get_last_run("flights", "raw") == record
    assert record.date == date(2013, 1, 1)


def test_high_water_marks_of_any_type_are_told_as_json(backend: StateBackend) -> None:
    backend.record_runs([run(hwm_before=date(2013, 1, 1), hwm_after=Decimal("1.5"))])
    (record,) = backend.list_runs()
    assert (record.hwm_before, record.hwm_after) == ("2013-01-01", "1.5")


def test_no_runs_are_no_rows(backend: StateBackend) -> None:
    backend.record_runs([])
    assert backend.list_runs() == []
    assert backend.get_last_run("flights", "raw") is None
    assert backend.get_last_run_status("flights", "raw") is None
    assert backend.get_last_run_info("flights", "raw") is None


def test_runs_are_listed_newest_first_and_filtered(backend: StateBackend, reopen: Reopen) -> None:
    backend.record_runs([run(n, node="raw" if n % 2 else "typed") for n in range(6)])
    backend.record_runs([run(6, pipeline="other")])
    assert [r.run_id for r in reopen().list_runs()] == [f"run-{n}" for n in (6, 5, 4, 3, 2, 1, 0)]
    assert [r.run_id for r in backend.list_runs(pipeline="flights", node="raw")] == ["run-5", "run-3", "run-1"]
    assert [r.run_id for r in backend.list_runs(limit=2)] == ["run-6", "run-5"]
    assert [r.node_name for r in backend.list_runs(run_id="run-4")] == ["typed"]
    assert backend.list_runs(pipeline="flights", limit=0) == []
    assert backend.list_runs(node="nowhere", limit=3) == []


def test_runs_recorded_out_of_order_are_still_told_by_the_time_they_ended(backend: StateBackend) -> None:
    for number in (3, 1, 5, 2, 4):
        backend.record_runs([run(number)])
    backend.record_runs([run(9, node="typed")])
    assert backend.get_last_run("flights", "raw").run_id == "run-5"
    assert [r.run_id for r in backend.list_runs(node="raw", limit=3)] == ["run-5", "run-4", "run-3"]


def test_of_two_attempts_that_ended_together_the_later_attempt_is_the_last(backend: StateBackend) -> None:
    backend.record_runs([run(1, attempt=2, status=RunStatus.SUCCESS), run(1, attempt=1, status=RunStatus.FAILURE)])
    assert backend.get_last_run_status("flights", "raw") is True


@pytest.mark.parametrize(
    ("status", "succeeded"),
    [("SUCCESS", True), ("NO_DATA", True), ("FAILURE", False), ("SKIPPED", False), ("LOST", False)],
)
def test_the_last_run_status_tells_whether_the_node_succeeded(
    backend: StateBackend, reopen: Reopen, status: str, succeeded: bool
) -> None:
    backend.record_runs([run(1), run(2, status=RunStatus(status), metrics={"rows_read": 3}, error="why")])
    assert reopen().get_last_run_status("flights", "raw") is succeeded
    info = reopen().get_last_run_info("flights", "raw")
    assert info["success"] is succeeded
    assert info["metadata"] == {"rows_read": 3}
    assert (info["status"], info["run_id"], info["error"]) == (status, "run-2", "why")


def test_environments_share_no_runs(reopen: Reopen) -> None:
    reopen("dev").record_runs([run(1, environment="whatever")])
    reopen("prod").record_runs([run(2, status=RunStatus.FAILURE)])
    assert reopen("dev").get_last_run_status("flights", "raw") is True
    assert reopen("prod").get_last_run_status("flights", "raw") is False
    assert reopen().list_runs() == []
    assert [r.environment for r in reopen("dev").list_runs()] == ["dev"]


def test_names_with_quotes_are_names(backend: StateBackend) -> None:
    backend.record_runs([run(1, pipeline="it's", node='a "b"')])
    assert backend.get_last_run_status("it's", 'a "b"') is True
    assert backend.get_last_run_status("it", 'a "b"') is None


def test_a_long_history_is_told_in_full_and_in_order(backend: StateBackend, reopen: Reopen) -> None:
    for number in range(150):
        backend.record_runs([run(number, node=f"n{number % 3}")])
    assert [r.rows_processed for r in reopen().list_runs()] == list(range(149, -1, -1))
    assert reopen().get_last_run("flights", "n0").rows_processed == 147
    assert [r.rows_processed for r in reopen().list_runs(node="n1", limit=40)] == list(range(148, 30, -3))[:40]
    backend.maintain()
    assert [r.rows_processed for r in reopen().list_runs()] == list(range(149, -1, -1))
    assert reopen().get_last_run("flights", "n0").rows_processed == 147


def test_maintenance_drops_old_runs_but_the_newest_of_each_node(backend: StateBackend, reopen: Reopen) -> None:
    now = datetime.now(UTC)
    backend.record_runs([run(n, node="old", timestamp=now - timedelta(days=40 + n)) for n in range(5)])
    backend.record_runs([run(n, node="new", timestamp=now - timedelta(days=20 * n)) for n in range(5)])
    assert backend.maintain(keep_runs_for=timedelta(days=30))["runs_dropped"] == 7
    assert [(r.node_name, r.rows_processed) for r in reopen().list_runs()] == [("new", 0), ("new", 1), ("old", 0)]
    assert backend.maintain(keep_runs_for=timedelta(days=30))["runs_dropped"] == 0


# -- Odibi's documented face -------------------------------------------------------------------------------------------


@dataclass
class NodeOutcome:
    """Shaped like Odibi's NodeResult."""

    success: bool
    duration: float = 1.25
    rows_processed: int | None = None
    error: Exception | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class PipelineOutcome:
    """Shaped like Odibi's PipelineResults."""

    node_results: dict[str, NodeOutcome]
    end_time: str = "2013-01-01T12:30:00+00:00"

    def to_dict(self) -> dict[str, Any]:
        return {"pipeline_name": "flights", "end_time": self.end_time, "node_count": len(self.node_results)}


def test_a_pipeline_run_is_saved_from_a_results_object(backend: StateBackend, reopen: Reopen) -> None:
    results = PipelineOutcome(
        {
            "raw": NodeOutcome(
                True, rows_processed=3, metadata={"timestamp": "2013-01-01T12:00:00+00:00", "x": date.max}
            ),
            "typed": NodeOutcome(False, error=ValueError("no")),
        }
    )
    StateManager(backend=backend).save_pipeline_run("flights", results)
    state = StateManager(backend=reopen())
    assert state.get_last_run_status("flights", "raw") is True
    assert state.get_last_run_status("flights", "typed") is False
    assert state.get_last_run_status("flights", "absent") is None
    info = state.get_last_run_info("flights", "raw")
    assert info["success"] is True
    assert info["metadata"]["x"] == "9999-12-31"
    assert (info["rows_processed"], info["duration_ms"]) == (3, 1250)
    assert state.get_last_run_info("flights", "typed")["error"] == "no"


def test_a_pipeline_run_is_saved_from_a_mapping(backend: StateBackend) -> None:
    nodes = {"raw": {"success": True, "timestamp": "2013-01-01T12:00:00", "metadata": {"rows": 3}}}
    StateManager(backend=backend).save_pipeline_run("flights", {"last_run": "2013-01-01T12:30:00", "nodes": nodes})
    assert StateManager(backend=backend).get_last_run_info("flights", "raw")["metadata"] == {"rows": 3}


def test_what_a_results_object_holds_beside_the_known_fields_is_kept(backend: StateBackend, reopen: Reopen) -> None:
    node = {"success": True, "metadata": {"rows": 3}, "rows_read": 9, "schema": {"a": "INT"}, "note": None}
    results = {"last_run": "2013-01-01T12:30:00", "run_id": "mine", "cost": 1.5, "nodes": {"raw": node}}
    StateManager(backend=backend).save_pipeline_run("flights", results)
    info = StateManager(backend=reopen()).get_last_run_info("flights", "raw")
    assert {name: info[name] for name in node} == node
    assert (info["run_id"], info["pipeline"]) == ("mine", {"cost": 1.5})
    typed = NodeOutcome(True, metadata={"rows": 4})
    typed.rows_written, typed.frame, typed.day = 4, object(), date(2013, 1, 2)  # type: ignore[attr-defined]
    StateManager(backend=backend).save_pipeline_run("flights", PipelineOutcome({"typed": typed}))
    info = StateManager(backend=reopen()).get_last_run_info("flights", "typed")
    assert (info["metadata"], info["rows_written"], info["day"]) == ({"rows": 4}, 4, "2013-01-02")
    assert "frame" not in info


def test_the_manager_offers_all_that_state_can_do(backend: StateBackend) -> None:
    state = StateManager(backend=backend)
    state.set_hwm("a", 1)
    state.set_hwm_batch([{"key": "a", "value": 2}, {"key": "b", "value": 1}])
    state.reset_hwm("a", 0)
    assert state.get_hwm("a") == 0
    assert [e.key for e in state.list_hwms()] == ["a", "b"]
    assert state.delete_hwm("b")
    assert [e.value for e in state.history("a")] == [0, 2, 1]


def test_runs_are_found_by_the_beginning_of_their_ids(backend: StateBackend, reopen: Reopen) -> None:
    assert backend.find_run_ids("") == []
    ids = ["it's-1", "it's-2", "it%", "IT"]
    backend.record_runs([run(number, run_id=name) for number, name in enumerate(ids)])
    backend.record_runs([run(9, run_id="it's-1", node="later")])
    reopen("other").record_runs([run(run_id="it's-3")])
    assert reopen().find_run_ids("it's") == ["it's-1", "it's-2"]
    assert reopen().find_run_ids("it%") == ["it%"]
    assert reopen().find_run_ids("x") == []
    backend.record_runs([run(number, run_id=f"many-{number}") for number in range(30)])
    assert reopen().find_run_ids("many")[0] == "many-29"
    assert len(reopen().find_run_ids("many")) == 20


def test_a_dry_run_of_maintenance_counts_and_changes_nothing(backend: StateBackend, reopen: Reopen) -> None:
    backend.record_runs([run(number) for number in range(5)])
    told = backend.maintain(keep_runs_for=timedelta(days=30), dry_run=True)
    assert told["runs_dropped"] == 4
    assert len(reopen().list_runs()) == 5
    assert reopen().maintain(keep_runs_for=timedelta(days=30))["runs_dropped"] == 4
