"""Schedules with a time zone, jobs of tags, what runs without being switched on, and freshness, as Dagster has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.runs.history import is_partial
from odi_assets.orchestration.runs.in_flight import whole_run_to_begin
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, make_project
from odi_assets_tests.orchestration.test_automation import Dagster, asset, with_automation

RUNNING = "automation: {default_status: running, timezone: America/New_York}\n"
BY_TAG = "jobs:\n  - {job: bronze_night, tags: [bronze], schedule: '0 2 * * *', timezone: Europe/Oslo}\n"
ALL = "jobs:\n  - {job: everything, tags: [retail]}\n"


def made(folder: Path, *more: str, text: str = PROJECT_FILE) -> dg.Definitions:
    return build_definitions(make_project(folder, "2024-01-01", text=text + "".join(more)))


def test_a_schedule_is_in_utc_and_stopped_unless_the_project_file_says_otherwise(tmp_path: Path) -> None:
    schedule = made(tmp_path / "a").resolve_schedule_def("shop_schedule")
    assert (schedule.execution_timezone, schedule.default_status) == ("UTC", dg.DefaultScheduleStatus.STOPPED)
    other = made(tmp_path / "b", RUNNING)
    schedule = other.resolve_schedule_def("shop_schedule")
    assert schedule.execution_timezone == "America/New_York"
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert other.resolve_sensor_def("shop_new_data").default_status == dg.DefaultSensorStatus.RUNNING


def test_conditions_at_times_are_in_the_time_zone_of_the_pipeline(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    text = with_automation(PROJECT_FILE, ["raw_sales"], "on_cron 0 6 * * *")
    dagster = Dagster(made(tmp_path, "automation: {timezone: America/New_York}\n", text=text), instance)
    dagster.requested(datetime(2024, 1, 5, 3, 30, tzinfo=UTC))
    assert dagster.requested(datetime(2024, 1, 5, 6, 30, tzinfo=UTC)) == set()
    assert dagster.requested(datetime(2024, 1, 5, 11, 30, tzinfo=UTC)) == {"raw_sales"}


def test_conditions_are_evaluated_without_a_hand_where_sensors_run_by_default(tmp_path: Path) -> None:
    text = with_automation(PROJECT_FILE, ["raw_sales"], "eager")
    repository = made(tmp_path / "a", RUNNING, text=text).get_repository_def()
    (found,) = (one for one in repository.sensor_defs if isinstance(one, dg.AutomationConditionSensorDefinition))
    assert (found.name, found.default_status) == ("shop_analytics_conditions", dg.DefaultSensorStatus.RUNNING)
    (left,) = (
        one
        for one in made(tmp_path / "b", text=text).get_repository_def().sensor_defs
        if isinstance(one, dg.AutomationConditionSensorDefinition)
    )
    assert (left.name, left.default_status) == ("default_automation_condition_sensor", dg.DefaultSensorStatus.STOPPED)


@pytest.mark.slow
def test_a_job_of_a_tag_runs_the_nodes_that_have_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    definitions = made(tmp_path, BY_TAG, ALL.removeprefix("jobs:\n"))
    schedule = definitions.resolve_schedule_def("bronze_night_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 2 * * *", "Europe/Oslo")
    run = definitions.resolve_job_def("bronze_night").execute_in_process(instance=instance)
    assert {key.path[-1] for key in _materialized(run)} == {"raw_sales"}
    everything = definitions.resolve_job_def("everything").execute_in_process(instance=instance)
    assert {key.path[-1] for key in _materialized(everything)} == {*NODES} - {"raw_sales"}, "it has nothing new"


def test_a_run_of_a_tag_does_not_stand_for_one_of_the_pipeline(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = make_project(tmp_path, "2024-01-01", text=PROJECT_FILE + BY_TAG)
    definitions = build_definitions(project)
    queued = instance.create_run_for_job(definitions.resolve_job_def("bronze_night"))
    assert whole_run_to_begin(project, instance, project.graph.order("shop")) is None
    assert whole_run_to_begin(project, instance, [NodeKey("shop", "raw_sales")]) == queued
    assert is_partial(queued, project, "shop")


def _materialized(run: dg.ExecuteInProcessResult) -> set[dg.AssetKey]:
    assert run.success
    return {event.asset_key for event in run.get_asset_materialization_events() if event.asset_key}


def test_dagster_has_the_freshness_of_a_node(tmp_path: Path) -> None:
    text = PROJECT_FILE.replace("      - name: shops\n", "      - name: shops\n        freshness: {within: 26h}\n")
    specs = {spec.key: spec for spec in made(tmp_path, text=text).resolve_all_asset_specs()}
    assert specs[asset("shops")].freshness_policy == dg.FreshnessPolicy.time_window(timedelta(hours=26))
    assert specs[asset("sales")].freshness_policy is None
