"""What a user adds to a node's asset holds in every run, whatever starts it."""

from __future__ import annotations

import warnings
from pathlib import Path

import dagster as dg
import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import make_project

PROJECT = """
project: shop_analytics
connections:
  landing: {type: local, base_path: ./landing}
  lake: {type: local, base_path: ./lake}
system: {connection: lake, path: _odibi_system}
pipelines:
  - pipeline: shop
    schedule: "15 6 * * *"
    nodes:
      - name: sales
        read:
          connection: landing
          format: csv
          path: extra/*.csv
          schema: "id BIGINT, amount DOUBLE, day DATE"
          incremental: files
PARTITION
        write: {connection: lake, path: sales, MODE}
        checks: [{not_null: id}]
      - name: copies
        inputs: {sales: {node: sales, incremental: version}}
        write: {connection: lake, path: copies}
"""
PARTITION = "        partition: {column: day, every: day, start: 2024-01-01, end: 2024-02-01}"
SALES, COPIES = dg.AssetKey(["shop", "sales"]), dg.AssetKey(["shop", "copies"])
RANGE = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-02"}


def shop(root: Path, partition: str = "") -> Project:
    mode = "mode: partition_overwrite" if partition else "mode: append"
    project = make_project(root / "project", text=PROJECT.replace("PARTITION", partition).replace("MODE", mode))
    folder = project.root / "landing" / "extra"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.csv").write_text("1,5.0,2024-01-01\n2,1.0,2024-01-02\n")
    return project


def with_a_check(project: Project) -> dg.Definitions:
    """The project's definitions, with a check of a user's that stops what is below it."""

    @dg.asset_check(asset=SALES, blocking=True)
    def by_hand() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    return dg.Definitions.merge(build_definitions(project), dg.Definitions(asset_checks=[by_hand]))


def run_of(
    way: str, definitions: dg.Definitions, instance: dg.DagsterInstance, *, partitioned: bool
) -> dg.ExecuteInProcessResult:
    """A run that was started in one of the ways that Dagster has."""
    job, tags, assets = definitions.resolve_job_def("shop"), {}, None
    if way == "schedule":
        found = definitions.resolve_schedule_def("shop_schedule").evaluate_tick(
            dg.build_schedule_context(instance, repository_def=definitions.get_repository_def())
        )
        (request,) = found.run_requests or ()
        tags = dict(request.tags)
    elif way == "sensor":
        with dg.build_sensor_context(instance, repository_def=definitions.get_repository_def()) as context:
            data = definitions.resolve_sensor_def("shop_new_data").evaluate_tick(context)
        (request,) = data.run_requests or ()
        tags, assets = dict(request.tags), list(request.asset_selection or ())
    elif way in ("picked", "backfill"):
        job = definitions.resolve_implicit_global_asset_job_def()
        assets = [SALES, COPIES]
        # Dagster's UI asks for a partition of assets that have some.
        picked = {"dagster/partition": "2024-01-01"} if way == "picked" else RANGE
        tags = {**picked} if partitioned else {"dagster/backfill": "b"} if way == "backfill" else {}
    return job.execute_in_process(instance=instance, tags=tags, asset_selection=assets, raise_on_error=False)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("partition", ["", PARTITION], ids=["plain", "partitioned"])
@pytest.mark.parametrize("way", ["job", "schedule", "sensor", "picked", "backfill"])
def test_a_blocking_check_of_a_user_stops_what_is_below_however_the_run_is_started(
    way: str, partition: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    run = run_of(way, with_a_check(shop(tmp_path, partition)), instance, partitioned=bool(partition))
    started = {event.step_key for event in run.all_events if event.is_step_start}
    assert any("sales" in step for step in started)
    assert any("by_hand" in step for step in started)
    assert not any("copies" in step for step in started)


@pytest.mark.usefixtures("spark")
def test_later_ticks_of_the_sensor_keep_back_what_is_below_a_check_until_it_passes(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project, passes = shop(tmp_path), {"now": False}

    @dg.asset_check(asset=SALES, blocking=True)
    def by_hand() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passes["now"])

    definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(asset_checks=[by_hand]))

    def tick() -> dg.SensorExecutionData:
        with dg.build_sensor_context(instance, repository_def=definitions.get_repository_def()) as context:
            return definitions.resolve_sensor_def("shop_new_data").evaluate_tick(context)

    def run(data: dg.SensorExecutionData) -> list[dg.AssetKey]:
        (request,) = data.run_requests or ()
        job = definitions.resolve_job_def("shop")
        found = job.execute_in_process(
            instance=instance, tags=request.tags, asset_selection=request.asset_selection, raise_on_error=False
        )
        return [event.asset_key for event in found.get_asset_materialization_events() if event.asset_key]

    assert run(tick()) == [SALES]
    held = tick()
    assert not held.run_requests
    assert "the check `by_hand` of shop.sales has failed: evaluate it once more, or run shop.sales" in str(
        held.skip_message
    )
    # New rows above run with their check, and it blocks what is below once more.
    (project.root / "landing" / "extra" / "2.csv").write_text("3,5.0,2024-01-03\n")
    assert run(tick()) == [SALES]
    assert not tick().run_requests
    passes["now"] = True
    checks = definitions.resolve_implicit_global_asset_job_def()
    evaluated = checks.get_subset(asset_selection=set(), asset_check_selection={dg.AssetCheckKey(SALES, "by_hand")})
    assert evaluated.execute_in_process(instance=instance).success
    assert run(tick()) == [COPIES]


def test_owners_tags_and_the_retry_policy_are_in_the_job_of_a_pipeline_with_partitions(tmp_path: Path) -> None:
    project = shop(tmp_path, PARTITION)
    definitions = build_definitions(project, retry_policy=dg.RetryPolicy(max_retries=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        definitions = definitions.map_resolved_asset_specs(
            func=lambda spec: spec.replace_attributes(owners=["team:sales"]).merge_attributes(tags={"tier": "gold"})
        )
    job = definitions.resolve_job_def("shop")
    node = job.asset_layer.asset_graph.get(SALES)
    assert (list(node.owners), node.tags["tier"], node.partitions_def) == (["team:sales"], "gold", None)
    assert definitions.resolve_asset_graph().get(SALES).partitions_def is not None
    steps = {one.name: one.definition for one in job.nodes}
    assert {one.retry_policy.max_retries for one in steps.values() if one.retry_policy} == {2}  # type: ignore[union-attr]
    assert {"shop__sales", "shop__copies"} <= steps.keys()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("partition", ["", PARTITION], ids=["plain", "partitioned"])
def test_an_asset_runs_without_its_checks_and_checks_run_without_their_asset(
    partition: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path, partition)
    rows = dg.define_asset_job("rows", dg.AssetSelection.assets(SALES).without_checks())
    checks = dg.define_asset_job("checks", dg.AssetSelection.checks_for_assets(SALES))
    definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(jobs=[rows, checks]))
    tags = RANGE if partition else {}
    before = definitions.resolve_job_def("checks").execute_in_process(instance=instance)
    assert {one.description for one in before.get_asset_check_evaluations()} == {"It has not run yet."}
    assert not (project.root / "lake" / "sales").exists()
    loaded = definitions.resolve_job_def("rows").execute_in_process(instance=instance, tags=tags)
    assert loaded.get_asset_check_evaluations() == []
    assert loaded.asset_materializations_for_node("shop__sales__ranges" if partition else "shop__sales")
    after = definitions.resolve_job_def("checks").execute_in_process(instance=instance)
    assert {one.check_name: one.passed for one in after.get_asset_check_evaluations()} == {
        "up_to_date": True,
        "not_null_id": True,
    }
    assert not [event for event in after.all_events if event.is_step_materialization]
    rows_of_history = project.open_state().list_runs(pipeline="shop", node="sales")
    assert len(rows_of_history) == 1


def test_code_references_lead_to_the_line_of_the_project_file(tmp_path: Path) -> None:
    project = shop(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        assets = dg.with_source_code_references(list(build_definitions(project).assets or ()))  # type: ignore[arg-type]
    (sales,) = (one for one in assets if isinstance(one, dg.AssetsDefinition) and one.key == SALES)
    first, second = sales.metadata_by_key[SALES]["dagster/code_references"].code_references
    line = PROJECT[: PROJECT.index("- name: sales")].count("\n") + 1
    assert (first.file_path, first.line_number) == (str(project.path), line)
    assert second.file_path.endswith("nodes.py")
