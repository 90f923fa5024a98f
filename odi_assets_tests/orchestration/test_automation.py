"""Sources that the sensor observes, and nodes that Dagster requests by an automation condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import dagster as dg
import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.graph import NodeKey
from odi_assets.config.python_nodes import node as node_function
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, land, make_project

ROOT = Path(__file__).parents[2]
SALES, SHOPS = dg.AssetKey(["landing", "sales"]), dg.AssetKey(["landing", "shops"])
EAGER = dg.AutomationCondition.eager()


def with_automation(text: str, nodes: Iterable[str], automation: str = "eager") -> str:
    for name in nodes:
        text = re.sub(rf"( +)- name: {name}\n", rf"\g<0>\1  automation: {automation}\n", text)
    return text


def asset(name: str) -> dg.AssetKey:
    return dg.AssetKey(["shop", name])


def conditioned(*nodes: str, condition: dg.AutomationCondition = EAGER) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    """What gives these nodes a condition of a user's own."""

    def change(spec: dg.AssetSpec) -> dg.AssetSpec:
        chosen = spec.key in map(asset, nodes)
        return spec.replace_attributes(automation_condition=condition) if chosen else spec

    return change


def reason_of_refusal(definitions: dg.Definitions) -> str:
    """Why the definitions cannot be loaded."""
    with pytest.raises(dg.DagsterInvalidDefinitionError) as raised:
        dg.Definitions.validate_loadable(definitions)
    assert isinstance(raised.value.__cause__, ConfigError)
    return str(raised.value.__cause__)


class Dagster:
    """A code location beside an instance: ticks of the sensor, evaluations of conditions, and runs."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions, self.instance = definitions, instance
        self.cursors: dict[str, str | None] = {}
        self.evaluated: Any = None

    def tick(self, sensor: str = "shop_new_data") -> list[dg.RunRequest]:
        repository = self.definitions.get_repository_def()
        with dg.build_sensor_context(
            self.instance, cursor=self.cursors.get(sensor), repository_def=repository
        ) as context:
            found = self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)
        self.cursors[sensor] = found.cursor
        return list(found.run_requests or ())

    def requested(self, at: datetime | None = None) -> set[str]:
        """The nodes that Dagster requests now, each as a whole."""
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self.evaluated, evaluation_time=at
        )
        self.evaluated = result.cursor
        found = {one.key for one in result.results if isinstance(one.key, dg.AssetKey)}
        wanted = {key: result.get_requested_partitions(key) for key in found if result.get_num_requested(key)}
        assert all(partitions == {None} for partitions in wanted.values())
        return {key.path[-1] for key in wanted}

    def run(self, nodes: Iterable[str]) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, asset_selection=[asset(node) for node in nodes])

    def made(self, *nodes: str, version: int = 0, partition: str | None = None) -> None:
        """What a run that made nodes leaves in Dagster."""
        for node in nodes:
            tags = {"dagster/data_version": str(version)}
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(asset(node), partition=partition, tags=tags)
            )

    def observations(self, key: dg.AssetKey) -> list[dict[str, Any]]:
        """What was said of a source, the latest first."""
        records = self.instance.fetch_observations(key, limit=100).records
        found = [record.asset_observation for record in records]
        return [{name: value.value for name, value in one.metadata.items()} for one in found if one is not None]


class TestASource:
    def test_is_observed_where_it_stands_once_for_each_move(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(build_definitions(project), instance)
        dagster.tick()
        (first,) = dagster.observations(SALES)
        assert first["newest_file"] == "sales/2024-01-02.csv"
        assert first["position"]["files"] == 2
        assert (first["node"], first["behind"], first["files_behind"]) == ("shop.raw_sales", "2 new files", 2)
        dagster.tick()
        assert len(dagster.observations(SALES)) == 1
        land(project.root, "2024-01-03")
        dagster.tick()
        assert [one["newest_file"] for one in dagster.observations(SALES)] == [
            "sales/2024-01-03.csv",
            "sales/2024-01-02.csv",
        ]
        # Nobody follows it, and the sensor does not look at it.
        assert not dagster.observations(SHOPS)

    def test_is_not_observed_again_by_a_process_that_has_just_begun(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        for _ in range(2):
            dagster = Dagster(build_definitions(project), instance)
            dagster.tick()
        assert len(dagster.observations(SALES)) == 1

    def test_of_two_pipelines_is_observed_once(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        first = PROJECT_FILE.index("  - pipeline:")
        second = PROJECT_FILE[first:].replace("pipeline: shop", "pipeline: copy").replace("path: ", "path: copies/")
        second = second.replace("copies/sales/*.csv", "sales/*.csv").replace("copies/shops.csv", "shops.csv")
        project = make_project(tmp_path, "2024-01-01", text=PROJECT_FILE + second)
        dagster = Dagster(build_definitions(project), instance)
        dagster.tick()
        dagster.tick("copy_new_data")
        assert len(dagster.observations(SALES)) == 1

    def test_says_how_long_its_node_is_behind(
        self, project: Project, instance: dg.DagsterInstance, spark: object
    ) -> None:
        del spark
        dagster = Dagster(build_definitions(project), instance)
        dagster.run(["raw_sales"])
        land(project.root, "2024-01-03")
        dagster.tick()
        (seen,) = dagster.observations(SALES)
        assert (seen["behind"], seen["files_behind"]) == ("1 new file", 1)
        times = [(project.root / "landing" / "sales" / f"2024-01-0{day}.csv").stat().st_mtime_ns for day in (2, 3)]
        assert seen["lag_seconds"] == pytest.approx((times[1] - times[0]) / 1e9, abs=1e-5)

    def test_that_moves_beside_a_run_that_reads_it_is_observed_once_the_run_has_ended(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        text = project.path.read_text()
        other = text[text.index("  - pipeline:") : text.index("      - name: shops")].replace("shop\n", "copy\n")
        project.path.write_text(text + other.replace("path: raw_sales", "path: copies/raw_sales"))
        dagster = Dagster(build_definitions(Project.load(project.path)), instance)
        run = instance.add_run(
            dg.DagsterRun(
                "copy",
                status=dg.DagsterRunStatus.STARTED,
                asset_selection=frozenset([dg.AssetKey(["copy", "raw_sales"])]),
            )
        )
        dagster.tick()
        assert not dagster.observations(SALES)
        instance.report_run_canceled(run)
        dagster.tick()
        assert len(dagster.observations(SALES)) == 1

    def test_whose_files_settle_is_observed_once_they_have(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = PROJECT_FILE.replace("incremental: files", "incremental: {mode: files, settle: 1s}")
        project = make_project(tmp_path, text=text)
        land(project.root, "2024-01-01")
        dagster = Dagster(build_definitions(project), instance)
        dagster.tick()
        assert not dagster.observations(SALES)
        sleep(1.2)
        dagster.tick()
        assert len(dagster.observations(SALES)) == 1

    def test_of_somebody_else_is_observed_and_not_said_to_be_materialized(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = PROJECT_FILE.replace("incremental: files", "incremental: files\n          asset: dlt/sales")
        dagster = Dagster(build_definitions(make_project(tmp_path, "2024-01-01", text=text)), instance)
        dagster.tick()
        landed = dg.AssetKey(["dlt", "sales"])
        assert len(dagster.observations(landed)) == 1
        assert not instance.fetch_materializations(landed, limit=1).records


class TestEager:
    @pytest.mark.slow
    def test_requests_the_nodes_below_each_source_of_the_sample_once_and_nothing_after_no_data(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = (ROOT / "odibi.yaml").read_text(encoding="utf-8")
        names = [key.node for key in Project.load(ROOT / "odibi.yaml").graph.order("flights")]
        (tmp_path / "odibi.yaml").write_text(with_automation(text, names), encoding="utf-8")
        project = Project.load(tmp_path / "odibi.yaml")
        files = {"flights": "flights/1.csv", "weather": "weather/1.jsonl"}
        files |= {name: f"{name}.csv" for name in ("airlines", "airports", "planes")}
        landing = tmp_path / "data" / "landing"
        for number, file in enumerate(files.values()):
            (landing / file).parent.mkdir(parents=True, exist_ok=True)
            (landing / file).write_text(f"{number}\n")
        dagster = Dagster(build_definitions(project), instance)
        keys = {key.node: dg.AssetKey(["flights", key.node]) for key in project.graph.order("flights")}

        def made(nodes: Iterable[str], version: str) -> None:
            for node in nodes:
                tags = {"dagster/data_version": version}
                instance.report_runless_asset_event(dg.AssetMaterialization(keys[node], tags=tags))

        dagster.tick("flights_new_data")
        assert dagster.requested() == set(names)
        made(names, "0")
        assert dagster.requested() == set()
        for source, file in files.items():
            reader = f"raw_{source}" if source in ("flights", "weather") else source
            (landing / file).write_text("another\n")
            dagster.tick("flights_new_data")
            below = {reader}
            for key in project.graph.order("flights"):
                if {up.node for up in project.graph.upstream(key)} & below:
                    below.add(key.node)
            assert dagster.requested() == below, source
            assert dagster.requested() == set()
            for node in below:
                # Nothing was new after all.
                instance.report_runless_asset_event(dg.AssetObservation(keys[node], metadata={"status": "NO_DATA"}))
            dagster.tick("flights_new_data")
            assert dagster.requested() == set()

    @pytest.mark.usefixtures("spark")
    def test_takes_in_the_increment_in_nodes_with_partitions_too(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        project = make_project(tmp_path, "2024-01-01", text=with_automation(PROJECT_FILE, NODES))
        dagster = Dagster(build_definitions(project), instance)
        assert dagster.requested() == set()
        assert not dagster.tick()
        # `shops` is read whole: its file is looked at, because its node waits for it.
        assert len(dagster.observations(SHOPS)) == 1
        assert dagster.requested() == set(NODES)
        assert dagster.run(NODES).success
        land(project.root, "2024-01-02")
        assert not dagster.tick()
        assert dagster.requested() == {"raw_sales", "sales", "sales_by_day", "revenue"}
        assert dagster.run(["raw_sales", "sales", "sales_by_day", "revenue"]).success
        rows = {record.node_name: record.rows_processed for record in project.open_state().list_runs(limit=4)}
        assert rows == {"raw_sales": 2, "sales": 2, "sales_by_day": 1, "revenue": 1}
        assert not dagster.tick()
        assert dagster.requested() == set()
        (project.root / "landing" / "shops.csv").write_text("shop,city\nnorth,Oslo\nsouth,Kyiv\n")
        assert not dagster.tick()
        assert dagster.requested() == {"shops", "sales_by_day", "revenue"}
        assert dagster.run(["shops", "sales_by_day", "revenue"]).success
        assert dagster.requested() == set()

    def test_fires_for_what_moves_between_a_request_and_the_next_look(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        project = make_project(tmp_path, "2024-01-01", text=with_automation(PROJECT_FILE, NODES))
        dagster = Dagster(build_definitions(project), instance)
        dagster.tick()
        assert dagster.requested() == set(NODES)
        dagster.made(*NODES)
        land(project.root, "2024-01-02")
        dagster.tick()
        assert dagster.requested() == {"raw_sales", "sales", "sales_by_day", "revenue"}
        assert dagster.requested() == set()

    def test_fires_below_a_node_with_partitions_whichever_was_written(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        project = make_project(tmp_path, text=with_automation(PROJECT_FILE, ["revenue"]))
        dagster = Dagster(build_definitions(project), instance)
        assert dagster.requested() == set()
        dagster.made("sales_by_day", partition="2024-01-05")
        assert dagster.requested() == {"revenue"}
        dagster.made("revenue")
        assert dagster.requested() == set()
        dagster.made("sales_by_day", version=1, partition="2024-01-03")
        assert dagster.requested() == {"revenue"}
        assert dagster.requested() == set()

    def test_fires_after_the_asset_of_a_user_that_lands_the_files(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = PROJECT_FILE.replace("incremental: files", "incremental: files\n          asset: dlt/sales")
        project = make_project(tmp_path, text=with_automation(text, ["raw_sales"]))

        @dg.asset(key=["dlt", "sales"])
        def land_sales() -> None:
            land(project.root, "2024-01-01")

        definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(assets=[land_sales]))
        dagster = Dagster(definitions, instance)
        assert dagster.requested() == set()
        dg.materialize([land_sales], instance=instance)
        assert dagster.requested() == {"raw_sales"}
        # That the files are seen too is no second move.
        dagster.tick()
        assert dagster.requested() == set()

    def test_keeps_back_what_is_below_a_blocking_check_that_has_failed(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        project = make_project(tmp_path, text=with_automation(PROJECT_FILE, ["sales"]))

        @dg.asset_check(asset=asset("raw_sales"), blocking=True)
        def by_hand() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=False)

        def checked(*, passed: bool) -> None:
            check = dg.AssetCheckEvaluation(asset("raw_sales"), "by_hand", passed, metadata={})
            instance.report_runless_asset_event(check)

        definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(asset_checks=[by_hand]))
        dagster = Dagster(definitions, instance)
        dagster.made("raw_sales")
        checked(passed=False)
        assert dagster.requested() == set()
        checked(passed=True)
        assert dagster.requested() == {"sales"}

    def test_does_not_fire_after_a_node_that_is_shown_as_it_was(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(
            build_definitions(make_project(tmp_path, text=with_automation(PROJECT_FILE, ["sales"]))), instance
        )
        dagster.made("raw_sales", "sales")
        assert dagster.requested() == set()
        dagster.made("raw_sales")
        assert dagster.requested() == set()
        dagster.made("raw_sales", version=1)
        assert dagster.requested() == {"sales"}

    def test_is_refused_where_nothing_shows_that_it_has_changed(self, tmp_path: Path) -> None:
        read = "read: {connection: db, format: sql, table: sales}"
        text = re.sub(r"read:\n( {10}.*\n)+", read + "\n", PROJECT_FILE, count=1)
        text = text.replace("connections:\n", "connections:\n  db: {type: sqlite, path: sales.db}\n", 1)
        text = text.replace(
            "db: {type: sqlite, path: sales.db}", "db: {type: postgres, host: h, database: d, user: u, password: p}"
        )
        project = make_project(tmp_path, text=with_automation(text, ["raw_sales"]))
        with pytest.raises(ConfigError, match=r"`automation: eager` of shop.raw_sales would wait for ever"):
            build_definitions(project)


class TestOnCron:
    def test_requests_the_increment_at_its_times(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = with_automation(PROJECT_FILE, NODES, "on_cron 0 6 * * *")
        # No sensor has looked at the sources.
        dagster = Dagster(build_definitions(make_project(tmp_path, "2024-01-01", text=text)), instance)
        assert dagster.requested(datetime(2024, 1, 1, 5, 59, tzinfo=UTC)) == set()
        assert dagster.requested(datetime(2024, 1, 1, 6, 1, tzinfo=UTC)) == set(NODES)
        assert dagster.requested(datetime(2024, 1, 1, 6, 2, tzinfo=UTC)) == set()
        dagster.made(*NODES)
        assert dagster.requested(datetime(2024, 1, 2, 6, 1, tzinfo=UTC)) == set(NODES)


class TestTheSensor:
    def test_leaves_nodes_to_their_conditions(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = with_automation(PROJECT_FILE, ["sales_by_day", "revenue"])
        dagster = Dagster(build_definitions(make_project(tmp_path, "2024-01-01", text=text)), instance)
        (request,) = dagster.tick()
        assert set(request.asset_selection or ()) == set(map(asset, ["raw_sales", "sales"]))
        assert {tag for tag in request.tags if tag.startswith("odi.due/")} == {"odi.due/raw_sales", "odi.due/sales"}

    def test_waits_for_a_node_that_a_condition_has_not_requested_yet(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = with_automation(PROJECT_FILE, ["raw_sales"])
        dagster = Dagster(build_definitions(make_project(tmp_path, "2024-01-01", text=text)), instance)
        assert not dagster.tick()

    def test_leaves_nodes_to_a_condition_of_a_users_own(self, project: Project, instance: dg.DagsterInstance) -> None:
        definitions = build_definitions(project).map_resolved_asset_specs(func=conditioned("raw_sales", "sales"))
        dagster = Dagster(definitions, instance)
        assert not dagster.tick()
        dagster.requested()
        land(project.root, "2024-01-03")
        dagster.tick()
        assert dagster.requested() == {"raw_sales", "sales"}


class TestAConditionOfAUsersOwn:
    def test_is_refused_on_a_node_with_partitions(self, project: Project) -> None:
        definitions = build_definitions(project).map_resolved_asset_specs(func=conditioned("revenue"))
        reason = reason_of_refusal(definitions)
        assert "shop.revenue has partitions and an automation condition" in reason
        assert "give the node `automation: eager`" in reason

    def test_is_refused_where_it_would_wait_for_a_source_that_nobody_looks_at(self, project: Project) -> None:
        definitions = build_definitions(project).map_resolved_asset_specs(func=conditioned("shops"))
        reason = reason_of_refusal(definitions)
        assert "condition of shop.shops would wait for `landing/shops` for ever" in reason

    def test_may_replace_the_condition_of_the_project_file(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        project = make_project(tmp_path, "2024-01-01", text=with_automation(PROJECT_FILE, NODES))
        change = conditioned(*NODES, condition=EAGER & ~dg.AutomationCondition.execution_failed())
        dagster = Dagster(build_definitions(project).map_resolved_asset_specs(func=change), instance)
        dagster.requested()
        assert not dagster.tick()
        assert dagster.requested() == set(NODES)


@pytest.mark.parametrize(
    ("automation", "cron"),
    [
        ("eager", None),
        ("on_cron 0 6 * * *", "0 6 * * *"),
        ('on_cron "0 6 * * *"', "0 6 * * *"),
        ('{on_cron: "0 6 * * *"}', "0 6 * * *"),
    ],
)
def test_a_condition_may_be_written_in_several_ways(tmp_path: Path, automation: str, cron: str | None) -> None:
    project = make_project(tmp_path, text=with_automation(PROJECT_FILE, ["sales"], automation))
    found = project.graph.node(NodeKey("shop", "sales")).automation
    assert found is not None
    assert found.on_cron == cron


@pytest.mark.parametrize(
    ("automation", "mistake"),
    [
        ("lazy", "is no condition: write `eager`"),
        ("{}", "is no condition"),
        ("on_cron", "is no condition"),
        ("on_cron 0 66 * * *", "the hour cannot be `66`"),
        ("{on_cron: 0 6 * * *, zone: UTC}", "unknown key"),
    ],
)
def test_a_mistake_in_a_condition_is_named(tmp_path: Path, automation: str, mistake: str) -> None:
    with pytest.raises(ConfigErrors, match=mistake):
        make_project(tmp_path, text=with_automation(PROJECT_FILE, ["sales"], automation))


def test_a_condition_changes_nothing_about_what_its_node_does(tmp_path: Path) -> None:
    key = NodeKey("shop", "revenue")
    plain = code_version(make_project(tmp_path, text=PROJECT_FILE), key)
    assert code_version(make_project(tmp_path, text=with_automation(PROJECT_FILE, ["revenue"])), key) == plain


def test_a_function_may_have_a_condition(tmp_path: Path) -> None:
    @node_function(
        pipeline="shop",
        inputs=["sales"],
        write={"connection": "lake", "path": "best", "mode": "overwrite"},
        automation="eager",
    )
    def best(sales: object) -> object:
        return sales

    make_project(tmp_path)
    graph = build_definitions(Project.load(tmp_path / "odibi.yaml", nodes=[best])).resolve_asset_graph()
    assert graph.get(asset("best")).automation_condition is not None
