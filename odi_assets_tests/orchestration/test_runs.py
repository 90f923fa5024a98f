"""Runs of a pipeline, with real Spark and real tables."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, StateError
from odi_assets.nodes.events import NodeEvent
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult, RunSummary
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets.state.records import RunStatus
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, land, make_project

pytestmark = pytest.mark.usefixtures("spark")
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def _statuses(summary: RunSummary) -> dict[str, str]:
    return {result.key.node: result.status.value for result in summary.results}


def _rows(project: Project, node: str) -> list[dict[str, Any]]:
    rows = DeltaTable(str(project.root / "lake" / node)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: tuple(str(value) for value in row.values()))


def _amounts(project: Project) -> dict[tuple[str, str], float]:
    return {(str(row["day"]), row["city"]): row["amount"] for row in _rows(project, "sales_by_day")}


def _materializations(instance: dg.DagsterInstance, node: str) -> list[dg.AssetMaterialization]:
    records = instance.fetch_materializations(dg.AssetKey(["shop", node]), limit=100, ascending=True).records
    return [record.asset_materialization for record in records if record.asset_materialization]


def _observations(instance: dg.DagsterInstance, node: str) -> list[dg.AssetObservation]:
    records = instance.fetch_observations(dg.AssetKey(["shop", node]), limit=100, ascending=True).records
    return [record.asset_observation for record in records if record.asset_observation]


def _check(instance: dg.DagsterInstance, node: str) -> dg.AssetCheckEvaluation:
    """The latest outcome of a node's check."""
    key = dg.AssetCheckKey(dg.AssetKey(["shop", node]), "up_to_date")
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].evaluation
    assert found is not None
    return found


def _values(event: dg.AssetMaterialization | dg.AssetObservation) -> dict[str, Any]:
    return {name: value.value for name, value in event.metadata.items()}


@pytest.fixture
def loaded(project: Project, instance: dg.DagsterInstance) -> Project:
    """The small project after its first load."""
    assert run_pipeline(project, "shop", instance=instance).success
    return project


class TestAFirstRun:
    def test_fills_every_table_and_says_what_it_did(self, project: Project, instance: dg.DagsterInstance) -> None:
        summary = run_pipeline(project, "shop", instance=instance)
        assert summary.success
        assert _statuses(summary) == dict.fromkeys(NODES, "SUCCESS")
        assert [result.key.node for result in summary.results] == [key.node for key in project.graph.order("shop")]
        assert [row["id"] for row in _rows(project, "sales")] == [1, 2, 3, 4, 5]
        assert _amounts(project) == {
            ("2024-01-01", "Oslo"): 11.0,
            ("2024-01-01", "Rome"): 5.5,
            ("2024-01-02", "Rome"): 9.5,
        }

    def test_tells_of_each_node_as_it_starts_and_ends(self, project: Project, instance: dg.DagsterInstance) -> None:
        events: list[NodeEvent] = []
        run_pipeline(project, "shop", instance=instance, on_event=events.append)
        assert [(event.kind, event.key.node) for event in events] == [
            (kind, key.node) for key in project.graph.order("shop") for kind in ("started", "finished")
        ]
        assert all(event.result is not None for event in events if event.kind == "finished")

    def test_shows_its_figures_in_dagster(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        (event,) = _materializations(instance, "raw_sales")
        values = _values(event)
        assert values["dagster/row_count"] == 5
        assert values["rows_read"] == 5
        assert values["rows_written"] == 5
        assert values["dagster/uri"] == str(loaded.root / "lake" / "raw_sales")
        assert values["dagster/table_name"] == "shop.raw_sales"
        assert values["dagster/storage_kind"] == "delta"
        assert values["hwm_before"] == "none"
        assert "2024-01-02.csv" in values["hwm_after"]
        assert values["delta_version"] == 0
        assert values["increment"]
        assert values["seconds"] > 0
        assert [column.name for column in values["dagster/column_schema"].columns] == ["id", "day", "shop", "amount"]

    def test_reports_the_days_it_wrote_as_partitions(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        del loaded
        events = _materializations(instance, "sales_by_day")
        assert [event.partition for event in events] == ["2024-01-01", "2024-01-02"]
        assert [_values(event)["dagster/partition_row_count"] for event in events] == [2, 1]

    def test_is_recorded_in_the_run_history_under_dagsters_run_id(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        summary = run_pipeline(project, "shop", instance=instance)
        records = project.open_state().list_runs(run_id=summary.run_id)
        assert {record.node_name: record.status for record in records} == dict.fromkeys(NODES, RunStatus.SUCCESS)
        record = next(record for record in records if record.node_name == "raw_sales")
        assert (record.trigger, record.attempt, record.rows_processed) == ("cli", 1, 5)
        run = instance.get_run_by_id(summary.run_id)
        assert run is not None
        assert run.job_name == "shop"

    def test_leaves_a_session_that_others_started_running(
        self, project: Project, instance: dg.DagsterInstance, spark: SparkSession
    ) -> None:
        run_pipeline(project, "shop", instance=instance)
        assert spark.range(3).count() == 3


class TestARunWithNothingNew:
    def test_reads_nothing_and_materializes_only_what_has_no_increment(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        summary = run_pipeline(loaded, "shop", instance=instance)
        assert summary.success
        assert _statuses(summary) == {
            "raw_sales": "NO_DATA",
            "shops": "SUCCESS",
            "sales": "NO_DATA",
            "sales_by_day": "NO_DATA",
            "revenue": "NO_DATA",
        }
        assert len(_materializations(instance, "raw_sales")) == 1
        (seen,) = _observations(instance, "raw_sales")
        assert _values(seen)["status"] == "NO_DATA"
        assert _values(seen)["dagster/row_count"] == 5

    def test_says_when_it_looked_and_when_it_gained_rows(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        job = build_definitions(loaded).resolve_job_def("shop")
        assert job.execute_in_process(instance=instance).success
        for node in ("raw_sales", "sales_by_day"):
            check = _check(instance, node)
            assert check.passed
            shown = {name: value.value for name, value in check.metadata.items()}
            assert shown["status"] == "NO_DATA"
            assert 0 < shown["last_new_rows"] < shown["last_checked"]  # type: ignore[operator]
        assert "2024-01-02.csv" in str(_check(instance, "raw_sales").metadata["hwm"].value)

    def test_is_recorded_as_such(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        run_pipeline(loaded, "shop", instance=instance)
        record = loaded.open_state().get_last_run("shop", "sales")
        assert record is not None
        assert record.status is RunStatus.NO_DATA

    def test_materializes_once_what_runs_of_the_shell_have_loaded(self, project: Project, tmp_path: Path) -> None:
        run_pipeline(project, "shop", instance=dg.DagsterInstance.ephemeral())
        with dg.DagsterInstance.local_temp(str(tmp_path)) as later:
            for _ in range(2):
                assert run_pipeline(project, "shop", instance=later).success
            (event,) = _materializations(later, "raw_sales")
            assert (_values(event)["status"], _values(event)["dagster/row_count"]) == ("NO_DATA", 5)
            assert "rows_written" not in _values(event)
            days = _materializations(later, "sales_by_day")
            assert [event.partition for event in days] == ["2024-01-01", "2024-01-02"]
            assert [_values(event)["dagster/partition_row_count"] for event in days] == [2, 1]

    def test_materializes_no_table_that_is_not_there_yet(self, tmp_path: Path) -> None:
        project = make_project(tmp_path / "project")
        with dg.DagsterInstance.local_temp(str(tmp_path)) as lasting:
            summary = run_pipeline(project, "shop", nodes=["raw_sales", "sales"], instance=lasting)
            assert _statuses(summary) == {"raw_sales": "NO_DATA", "sales": "NO_DATA"}
            assert not _materializations(lasting, "sales")
            assert len(_observations(lasting, "sales")) == 1

    def test_within_a_backfill_lets_it_go_on_to_the_nodes_below(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        job = build_definitions(loaded).resolve_implicit_global_asset_job_def()
        sales = dg.AssetKey(["shop", "sales"])
        assert job.execute_in_process(
            instance=instance, asset_selection=[sales], tags={"dagster/backfill": "abcdefgh"}
        ).success
        first, second = _materializations(instance, "sales")
        assert _values(second)["status"] == "NO_DATA"
        assert _values(second)["delta_version"] == _values(first)["delta_version"]


class TestTheNextRun:
    def test_takes_in_only_what_is_new(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        land(loaded.root, "2024-01-03")
        summary = run_pipeline(loaded, "shop", instance=instance)
        read = {result.key.node: result.rows_read for result in summary.results}
        assert (read["raw_sales"], read["sales"]) == (1, 1)
        assert len(_rows(loaded, "sales")) == 6
        assert [event.partition for event in _materializations(instance, "sales_by_day")][2:] == ["2024-01-03"]

    def test_catches_up_with_an_upstream_node_that_a_killed_run_had_loaded(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        land(loaded.root, "2024-01-03")
        run_pipeline(loaded, "shop", nodes=["raw_sales"], instance=instance)
        summary = run_pipeline(loaded, "shop", instance=instance)
        assert _statuses(summary)["raw_sales"] == "NO_DATA"
        assert _statuses(summary)["sales"] == "SUCCESS"
        assert len(_rows(loaded, "sales")) == 6


class TestAFullRefresh:
    def test_reads_everything_again_and_replaces_the_tables(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        summary = run_pipeline(loaded, "shop", RunRequest(full_refresh=True), instance=instance)
        assert _statuses(summary) == dict.fromkeys(NODES, "SUCCESS")
        assert len(_rows(loaded, "raw_sales")) == 5

    def test_can_be_asked_of_one_node_in_the_launchpad(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        job = build_definitions(loaded).resolve_job_def("shop")
        config = {"ops": {"shop__raw_sales": {"config": {"full_refresh": True}}}}
        assert job.execute_in_process(instance=instance, run_config=config).success
        assert len(_materializations(instance, "raw_sales")) == 2
        assert len(_rows(loaded, "raw_sales")) == 5

    def test_of_a_run_that_is_bounded_to_partitions_is_refused(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        result = _backfill(loaded, instance, "2024-01-01", "2024-01-01", {"odi/full_refresh": "true"})
        assert not result.success
        record = loaded.open_state().get_last_run("shop", "sales_by_day")
        assert record is not None
        assert "this run is bounded" in str(record.error)


class TestATableOfAnotherNode:
    def test_is_adopted_where_the_launchpad_or_a_tag_says_so(
        self, loaded: Project, instance: dg.DagsterInstance
    ) -> None:
        text = loaded.path.read_text().replace("project: ", "project: renamed_")
        loaded.path.write_text(text)
        renamed = Project.load(loaded.path)
        job = build_definitions(renamed).resolve_job_def("shop")
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
        (record,) = renamed.open_state().list_runs(pipeline="shop", node="raw_sales", limit=1)
        assert "odi state adopt shop.raw_sales" in str(record.error)
        land(renamed.root, "2024-01-03")
        config = {"ops": {"shop__raw_sales": {"config": {"adopt": True}}}}
        one = [dg.AssetKey(["shop", "raw_sales"])]
        assert job.execute_in_process(instance=instance, run_config=config, asset_selection=one).success
        assert job.execute_in_process(instance=instance, tags={"odi/adopt": "true"}).success
        assert (len(_rows(renamed, "raw_sales")), len(_rows(renamed, "sales"))) == (6, 6)
        assert job.execute_in_process(instance=instance).success


def _backfill(
    project: Project,
    instance: dg.DagsterInstance,
    first: str,
    last: str,
    tags: dict[str, str] | None = None,
    job_name: str = "__ASSET_JOB",
) -> dg.ExecuteInProcessResult:
    job = build_definitions(project).resolve_job_def(job_name)
    return job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(["shop", "sales_by_day"])],
        tags={RANGE_START: first, RANGE_END: last, **(tags or {})},
        raise_on_error=False,
    )


class TestABackfill:
    @pytest.mark.parametrize("job", ["__ASSET_JOB", "shop"])
    def test_replaces_a_range_of_days_in_one_run_and_one_commit(
        self, loaded: Project, instance: dg.DagsterInstance, job: str
    ) -> None:
        before = DeltaTable(str(loaded.root / "lake" / "sales_by_day")).version()
        expected = _amounts(loaded)
        assert _backfill(loaded, instance, "2024-01-01", "2024-01-03", job_name=job).success
        assert DeltaTable(str(loaded.root / "lake" / "sales_by_day")).version() == before + 1
        assert _amounts(loaded) == expected
        events = _materializations(instance, "sales_by_day")[2:]
        assert [(event.partition, _values(event)["dagster/partition_row_count"]) for event in events] == [
            ("2024-01-01", 2),
            ("2024-01-02", 1),
            ("2024-01-03", 0),
        ]

    @pytest.mark.parametrize("ranged", [True, False])
    def test_counts_each_row_in_the_event_of_its_partition_and_the_run_once(
        self, loaded: Project, instance: dg.DagsterInstance, ranged: bool
    ) -> None:
        if ranged:
            assert _backfill(loaded, instance, "2024-01-01", "2024-01-03").success
        events = _materializations(instance, "sales_by_day")[2 if ranged else 0 :]
        values = [_values(event) for event in events]
        record = loaded.open_state().get_last_run("shop", "sales_by_day")
        assert record is not None
        assert sum(one["rows_written"] for one in values) == record.rows_processed == 3
        assert sum(one.get("rows_read", 0) for one in values) == record.metrics["rows_read"]
        assert [one["rows_written"] for one in values] == [one["dagster/partition_row_count"] for one in values]
        assert ["seconds" in one for one in values] == [True, *[False] * (len(values) - 1)]
        table = DeltaTable(str(loaded.root / "lake" / "sales_by_day"))
        assert sum(one["partition_files"] for one in values) == len(table.file_uris())

    def test_leaves_the_hwm_where_it_is(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        before = loaded.open_state().get_hwm("shop.sales_by_day")
        assert _backfill(loaded, instance, "2024-01-01", "2024-01-31").success
        assert loaded.open_state().get_hwm("shop.sales_by_day") == before
        record = loaded.open_state().get_last_run("shop", "sales_by_day")
        assert record is not None
        assert record.partition_key == "2024-01-01...2024-01-31"

    def test_needs_no_partitions_in_dagster(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = f"{PROJECT_FILE.rstrip()}\nautomation: {{partitions: false}}\n"
        project = make_project(tmp_path / "whole", "2024-01-01", "2024-01-02", text=text)
        assert run_pipeline(project, "shop", instance=instance).success
        (event,) = _materializations(instance, "sales_by_day")
        assert (event.partition, _values(event)["dagster/row_count"]) == (None, 3)
        DeltaTable(str(project.root / "lake" / "sales_by_day")).delete("day = '2024-01-01'")
        before = project.open_state().get_hwm("shop.sales_by_day")
        job = build_definitions(project).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["shop", "sales_by_day"])],
            tags={"odi/from": "2024-01-01", "odi/to": "2024-01-02"},
        )
        assert result.success
        assert _amounts(project)[("2024-01-01", "Oslo")] == 11.0
        assert project.open_state().get_hwm("shop.sales_by_day") == before

    @pytest.mark.parametrize("given", ["partition", "automation"])
    def test_of_other_nodes_takes_in_the_increment_of_one_without_partitions_in_dagster(
        self, tmp_path: Path, instance: dg.DagsterInstance, given: str
    ) -> None:
        head, _, tail = PROJECT_FILE.rpartition(
            "partition: {column: day, every: day, start: 2024-01-01, end: 2024-02-01}"
        )
        alone = "partition: {column: day, start: 2024-01-01, in_dagster: false}"
        requested = "automation: eager\n        partition: {column: day, start: 2024-01-01}"
        text = f"{head}{alone if given == 'partition' else requested}{tail}"
        project = make_project(tmp_path / "mixed", "2024-01-01", "2024-01-02", text=text)
        job = build_definitions(project).resolve_implicit_global_asset_job_def()
        above = [dg.AssetKey(["shop", node]) for node in ("raw_sales", "shops", "sales")]
        assert job.execute_in_process(instance=instance, asset_selection=above).success
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["shop", "sales_by_day"]), dg.AssetKey(["shop", "revenue"])],
            partition_key="2024-01-02",
        )
        assert result.success
        record = project.open_state().get_last_run("shop", "revenue")
        assert record is not None
        assert (record.partition_key, record.hwm_after is not None) == (None, True)

    def test_of_a_single_day_leaves_the_others_as_they_are(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        DeltaTable(str(loaded.root / "lake" / "sales_by_day")).delete("day = '2024-01-01'")
        assert ("2024-01-01", "Oslo") not in _amounts(loaded)
        job = build_definitions(loaded).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["shop", "sales_by_day"])],
            partition_key="2024-01-01",
        )
        assert result.success
        assert _amounts(loaded)[("2024-01-01", "Oslo")] == 11.0
        assert ("2024-01-02", "Rome") in _amounts(loaded)


FAILING = PROJECT_FILE.replace("amount FROM raw_sales", "amount FROM raw_sales JOIN no_such_table USING (id)")


class TestAFailedNode:
    @pytest.fixture
    def failing(self, tmp_path: Path) -> Project:
        return make_project(tmp_path / "failing", "2024-01-01", text=FAILING)

    def test_fails_alone_and_those_below_it_are_skipped(self, failing: Project, instance: dg.DagsterInstance) -> None:
        summary = run_pipeline(failing, "shop", instance=instance)
        assert not summary.success
        assert _statuses(summary) == {
            "raw_sales": "SUCCESS",
            "shops": "SUCCESS",
            "sales": "FAILURE",
            "sales_by_day": "SKIPPED",
            "revenue": "SKIPPED",
        }
        results = {result.key.node: result for result in summary.results}
        assert "no_such_table" in str(results["sales"].error)
        assert "shop.sales failed" in str(results["sales_by_day"].error)

    def test_is_recorded_with_its_error_and_so_are_those_it_kept_from_running(
        self, failing: Project, instance: dg.DagsterInstance
    ) -> None:
        summary = run_pipeline(failing, "shop", instance=instance)
        records = {record.node_name: record for record in failing.open_state().list_runs(run_id=summary.run_id)}
        assert records["sales"].status is RunStatus.FAILURE
        assert "no_such_table" in str(records["sales"].error)
        assert records["sales_by_day"].status is RunStatus.SKIPPED

    def test_that_fails_while_it_is_written_is_recorded_too(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = PROJECT_FILE.replace("SELECT id, CAST(day AS DATE)", "SELECT id, CAST(concat(day, 'x') AS DATE)")
        project = make_project(tmp_path / "late", "2024-01-01", text=text)
        summary = run_pipeline(project, "shop", instance=instance)
        assert _statuses(summary)["sales"] == "FAILURE"
        assert _statuses(summary)["sales_by_day"] == "SKIPPED"
        assert not (project.root / "lake" / "sales" / "_delta_log").exists()

    def test_leaves_nodes_with_nothing_new_well_in_dagster(
        self, failing: Project, instance: dg.DagsterInstance
    ) -> None:
        run_pipeline(failing, "shop", instance=instance)
        again = run_pipeline(failing, "shop", instance=instance)
        assert (_statuses(again)["raw_sales"], _statuses(again)["sales"]) == ("NO_DATA", "FAILURE")
        # Dagster paints assets red that a failed run was to materialize and did not.
        record = instance.get_latest_materialization_event(dg.AssetKey(["shop", "raw_sales"]))
        assert record is not None
        assert record.run_id == again.run_id
        first, second = _materializations(instance, "raw_sales")
        assert _values(second)["status"] == "NO_DATA"
        assert second.tags is not None
        assert first.tags is not None
        assert second.tags["dagster/data_version"] == first.tags["dagster/data_version"]

    def test_does_not_fill_the_console_with_dagsters_log(
        self, failing: Project, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run_pipeline(failing, "shop", instance=instance)
        output = "".join(capfd.readouterr())
        assert "STEP_FAILURE" not in output
        assert "Traceback" not in output


class TestAnInterruptedRun:
    def test_keeps_what_it_committed_and_the_next_run_goes_on_from_there(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        def interrupt(event: NodeEvent) -> None:
            if event.kind == "started" and event.key.node == "sales":
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            run_pipeline(project, "shop", instance=instance, on_event=interrupt)
        assert len(_rows(project, "raw_sales")) == 5
        (run,) = instance.get_runs()
        assert run.is_finished
        statuses = {record.node_name: record.status for record in project.open_state().list_runs(run_id=run.run_id)}
        assert statuses["raw_sales"] is RunStatus.SUCCESS
        assert statuses["sales"] is RunStatus.CANCELLED
        assert statuses["sales_by_day"] is RunStatus.SKIPPED
        summary = run_pipeline(project, "shop", instance=instance)
        assert summary.success
        assert len(_rows(project, "sales")) == 5


def test_single_nodes_can_be_run(project: Project, instance: dg.DagsterInstance) -> None:
    summary = run_pipeline(project, "shop", nodes=["shops"], instance=instance)
    assert _statuses(summary) == {"shops": "SUCCESS"}
    assert not (project.root / "lake" / "raw_sales").exists()


def test_an_unknown_node_or_pipeline_is_named_with_a_suggestion(project: Project) -> None:
    with pytest.raises(ConfigError, match="did you mean `sales`"):
        run_pipeline(project, "shop", nodes=["sale"])
    with pytest.raises(ConfigError, match="did you mean `shop`"):
        run_pipeline(project, "shopp")


def test_each_node_has_a_pool_so_that_two_runs_of_it_wait_for_each_other(
    project: Project, instance: dg.DagsterInstance
) -> None:
    summary = run_pipeline(project, "shop", nodes=["shops"], instance=instance)
    run = instance.get_run_by_id(summary.run_id)
    assert run is not None
    assert run.run_op_concurrency is not None
    assert run.run_op_concurrency.all_pools == {"shop__shops"}


def test_increments_and_backfills_of_a_node_have_different_pools_because_both_may_run_at_once(
    project: Project, instance: dg.DagsterInstance
) -> None:
    definitions, pools = build_definitions(project), []
    for job, tags in (("shop", {}), ("__ASSET_JOB", {"dagster/partition": "2024-01-01"})):
        one = definitions.resolve_job_def(job).get_subset(asset_selection={dg.AssetKey(["shop", "sales_by_day"])})
        run = instance.create_run_for_job(one, tags=tags)
        assert run.run_op_concurrency is not None
        pools.append(run.run_op_concurrency.all_pools)
    assert pools == [{"shop__sales_by_day"}, {"shop__sales_by_day__ranges"}]


def test_pools_carry_the_environment_so_that_runs_of_two_environments_do_not_wait_for_each_other(
    project: Project,
) -> None:
    definitions = build_definitions(replace(project, environment="prod eu"))
    job = definitions.resolve_job_def("shop").get_subset(asset_selection={dg.AssetKey(["shop", "shops"])})
    assert {node.definition.pool for node in job.nodes if isinstance(node.definition, dg.OpDefinition)} == {
        "prod_eu__shop__shops"
    }
    assert [node.name for node in job.nodes] == ["shop__shops"]


def test_a_nodes_key_is_its_step_in_the_launchpad(project: Project) -> None:
    job = build_definitions(project).resolve_job_def("shop")
    assert {str(node.name) for node in job.nodes} >= {f"shop__{NodeKey('shop', node).node}" for node in NODES}


@pytest.mark.parametrize("fails_at", ["raw_sales", "sales"])
def test_a_history_that_cannot_be_written_is_told_in_a_line_and_hides_no_result(
    loaded: Project,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    fails_at: str,
) -> None:
    from odi_assets.nodes import run_history

    land(loaded.root, "2024-01-03")
    real = run_history.record

    def full(project: Project, state: Any, result: NodeResult, *rest: Any) -> None:
        if result.key.node in ("sales", "sales_by_day") or fails_at == "raw_sales":
            raise StateError("the state cannot be written: no space left on device")
        real(project, state, result, *rest)

    monkeypatch.setattr(run_history, "record", full)
    summary = run_pipeline(loaded, "shop", instance=instance)
    assert not summary.success
    assert len(summary.results) == len(NODES)
    statuses = _statuses(summary)
    assert (statuses[fails_at], statuses["sales_by_day"]) == ("FAILURE", "SKIPPED")
    failed = next(result for result in summary.results if result.key.node == fails_at)
    assert "its table is at version 1, and its row of history could not be written" in str(failed.error)
    assert "Traceback" not in capfd.readouterr().err + caplog.text
    monkeypatch.undo()
    assert _statuses(run_pipeline(loaded, "shop", instance=instance))["sales_by_day"] == "SUCCESS"


class TestAFullRefreshThatLosesRows:
    """A file that was loaded is gone: the run fails, unless a tag or the launchpad says that its rows may go."""

    def test_fails_and_names_the_file(self, loaded: Project, instance: dg.DagsterInstance) -> None:
        gone = _file_gone(loaded)
        config = {"ops": {"shop__raw_sales": {"config": {"full_refresh": True}}}}
        job = build_definitions(loaded).resolve_job_def("shop")
        assert not job.execute_in_process(instance=instance, run_config=config, raise_on_error=False).success
        record = loaded.open_state().get_last_run("shop", "raw_sales")
        assert record is not None
        assert f"gone since: {gone}" in str(record.error)
        assert "odi/accept_loss: true" in str(record.error)
        assert len(_rows(loaded, "raw_sales")) == 5

    @pytest.mark.parametrize("by", ["tag", "launchpad"])
    def test_goes_on_if_they_may(self, loaded: Project, instance: dg.DagsterInstance, by: str) -> None:
        _file_gone(loaded)
        told = {"full_refresh": True, **({"accept_loss": True} if by == "launchpad" else {})}
        config = {"ops": {"shop__raw_sales": {"config": told}}}
        tags = {"odi/accept_loss": "true"} if by == "tag" else {}
        job = build_definitions(loaded).resolve_job_def("shop")
        assert job.execute_in_process(instance=instance, run_config=config, tags=tags).success
        assert 0 < len(_rows(loaded, "raw_sales")) < 5


def _file_gone(project: Project) -> str:
    """Delete the newest file of the landing zone, and return its path there."""
    newest = max((path for path in (project.root / "landing").rglob("*.csv")), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    return newest.relative_to(project.root / "landing").as_posix()


def test_nodes_under_a_prefix_run_and_keep_their_state(project: Project, instance: dg.DagsterInstance) -> None:
    definitions = build_definitions(project, key_prefix=["team", "east"], resource_prefix="odi_")
    job = definitions.resolve_job_def("team_east_shop")
    assert job.execute_in_process(instance=instance).success
    assert project.open_state().get_hwm("shop.raw_sales") is not None
    event = instance.get_latest_materialization_event(dg.AssetKey(["team", "east", "shop", "revenue"]))
    assert event is not None
