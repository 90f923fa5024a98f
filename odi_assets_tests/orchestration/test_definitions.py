"""What Dagster shows of a project file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import dagster_webserver
from deltalake import DeltaTable

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, make_project

BIN = Path(sys.executable).parent
TIMEOUT = 120


def _key(*parts: str) -> dg.AssetKey:
    return dg.AssetKey(list(parts))


def _spec(project: Project, *parts: str) -> dg.AssetSpec:
    specs = {spec.key: spec for spec in build_definitions(project).resolve_all_asset_specs()}
    return specs[_key(*parts)]


def test_every_node_and_every_source_is_an_asset(project: Project) -> None:
    keys = {spec.key for spec in build_definitions(project).resolve_all_asset_specs()}
    nodes = {_key("shop", node) for node in NODES}
    system = {_key("shop_analytics", "system", table) for table in ("meta_state", "meta_runs")}
    assert keys == nodes | system | {_key("landing", "sales"), _key("landing", "shops")}


def test_system_tables_are_assets_with_the_columns_that_they_have(project: Project) -> None:
    state = project.open_state()
    state.set_hwm("shop.sales", 1)
    now = datetime.now(UTC)
    state.record_runs([RunRecord("r", "shop_analytics", "shop", "sales", RunStatus.SUCCESS, 1, 1, now)])
    for table in ("meta_state", "meta_runs"):
        spec = _spec(project, "shop_analytics", "system", table)
        assert spec.group_name == "system"
        there = DeltaTable(spec.metadata["dagster/uri"])
        shown = {column.name for column in spec.metadata["dagster/column_schema"].columns}
        assert shown == {field.name for field in there.schema().fields}
    assert not build_definitions(project).resolve_asset_graph().get(spec.key).is_executable


def test_a_project_with_its_state_in_a_file_has_no_system_tables_and_streams_have_one_more(tmp_path: Path) -> None:
    system = "system: {connection: lake, path: _odibi_system}\n"
    assert system in PROJECT_FILE
    stream = PROJECT_FILE.replace("incremental: files\n", "\n        stream: {}\n")
    for text, tables in (
        (PROJECT_FILE.replace(system, ""), set()),
        (stream, {"meta_state", "meta_runs", "meta_batches"}),
    ):
        made = make_project(tmp_path / str(len(tables)), text=text)
        specs = build_definitions(made).resolve_all_asset_specs()
        assert {spec.key.path[-1] for spec in specs if spec.group_name == "system"} == tables


def test_a_node_carries_what_the_project_file_says_of_it(project: Project) -> None:
    spec = _spec(project, "shop", "raw_sales")
    assert spec.group_name == "shop"
    assert spec.kinds == {"spark", "delta", "csv"}
    assert list(spec.owners) == ["data@shop.example"]
    assert {"retail": "", "bronze": ""}.items() <= spec.tags.items()
    assert spec.description == "Sales as they land."
    assert spec.code_version
    assert spec.metadata["dagster/uri"] == str(project.root / "lake" / "raw_sales")
    assert spec.metadata["dagster/table_name"] == "shop.raw_sales"
    assert spec.metadata["write_mode"] == "append"
    assert spec.metadata["incremental"] == "read: files"


def test_the_owner_of_a_node_goes_before_that_of_the_project(project: Project) -> None:
    assert list(_spec(project, "shop", "shops").owners) == ["team:places"]


def test_a_node_shows_its_sql_and_its_keys(project: Project) -> None:
    spec = _spec(project, "shop", "sales")
    assert "```sql\nSELECT id, CAST(day AS DATE) AS day" in (spec.description or "")
    assert spec.metadata["keys"] == "id"
    assert spec.metadata["incremental"] == "raw_sales: version"


def test_columns_that_the_project_file_declares_are_shown_before_any_run(project: Project) -> None:
    schema = _spec(project, "shop", "raw_sales").metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", "bigint"),
        ("day", "string"),
        ("shop", "string"),
        ("amount", "double"),
    ]
    assert "dagster/column_schema" not in _spec(project, "shop", "sales").metadata


def test_nodes_depend_on_their_inputs_and_on_their_sources(project: Project) -> None:
    def deps(node: str) -> set[dg.AssetKey]:
        return {dep.asset_key for dep in _spec(project, "shop", node).deps}

    assert deps("raw_sales") == {_key("landing", "sales")}
    assert deps("shops") == {_key("landing", "shops")}
    assert deps("sales") == {_key("shop", "raw_sales")}
    assert deps("sales_by_day") == {_key("shop", "sales"), _key("shop", "shops")}


def test_a_source_is_an_asset_that_nothing_materializes(project: Project) -> None:
    spec = _spec(project, "landing", "sales")
    assert spec.group_name == "sources"
    assert spec.kinds == {"csv"}
    assert spec.metadata["dagster/uri"] == str(project.root / "landing" / "sales" / "*.csv")
    job = build_definitions(project).resolve_job_def("shop")
    assert _key("landing", "sales") not in job.asset_layer.executable_asset_keys


def test_a_node_that_reads_the_table_of_another_by_its_path_depends_on_that_node(tmp_path: Path) -> None:
    text = PROJECT_FILE + textwrap.indent(
        textwrap.dedent(
            """
            - pipeline: reports
              nodes:
                - name: big_sales
                  read: {connection: lake, format: delta, path: sales}
                  transform: {sql: "SELECT * FROM df WHERE amount > 5"}
                  write: {connection: lake, path: big_sales}
            """
        ),
        "  ",
    )
    spec = _spec(make_project(tmp_path, text=text), "reports", "big_sales")
    assert {dep.asset_key for dep in spec.deps} == {_key("shop", "sales")}


def test_a_partitioned_node_backfills_in_one_run(project: Project) -> None:
    asset = build_definitions(project).get_assets_def(_key("shop", "sales_by_day"))
    assert asset.partitions_def is not None
    assert len(asset.partitions_def.get_partition_keys()) == 31
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()


def test_a_project_may_have_no_partitions_in_dagster(tmp_path: Path) -> None:
    project = make_project(tmp_path, text=f"{PROJECT_FILE.rstrip()}\nautomation: {{partitions: false}}\n")
    definitions = build_definitions(project)
    assert not any(asset.partitions_def for asset in definitions.resolve_asset_graph().assets_defs)
    assert "launchpad" not in (definitions.resolve_job_def("shop").description or "")


def _with(tmp_path: Path, *changes: tuple[str, str]) -> Project:
    text = PROJECT_FILE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return make_project(tmp_path, text=text)


def test_a_node_may_have_no_partitions_in_dagster_and_another_one_has(tmp_path: Path) -> None:
    nodes = ("sales_by_day", "revenue")
    by_node = _with(
        tmp_path / "a", ("end: 2024-02-01}\n        transform: {sql", "in_dagster: false}\n        transform: {sql")
    )
    graph = build_definitions(by_node).resolve_asset_graph()
    assert [graph.get(_key("shop", node)).is_partitioned for node in nodes] == [True, False]
    none = _with(
        tmp_path / "b",
        ("end: 2024-02-01}\n        transform: {sql", "in_dagster: true}\n        transform: {sql"),
        ("project: shop_analytics", "project: shop_analytics\nautomation: {partitions: false}"),
    )
    graph = build_definitions(none).resolve_asset_graph()
    assert [graph.get(_key("shop", node)).is_partitioned for node in nodes] == [False, True]


def test_a_backfill_may_take_some_partitions_a_run(tmp_path: Path) -> None:
    project = _with(tmp_path, ("end: 2024-02-01}", "end: 2024-02-01, max_partitions_per_run: 1}"))
    asset = build_definitions(project).get_assets_def(_key("shop", "sales_by_day"))
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(1)


def test_a_node_below_one_with_partitions_in_another_zone_reads_all_of_them(tmp_path: Path) -> None:
    below = "end: 2024-02-01}\n        transform: {sql"
    project = _with(tmp_path, (below, below.replace("}", ", timezone: Europe/Berlin}", 1)))
    definitions = build_definitions(project)
    (dep,) = _spec(project, "shop", "revenue").deps
    assert isinstance(dep.partition_mapping, dg.AllPartitionMapping)
    assert definitions.resolve_asset_graph().get(_key("shop", "revenue")).is_partitioned


def test_the_way_to_run_a_schedule_now_is_named_as_dagster_names_it(project: Project) -> None:
    definitions = build_definitions(project)
    schedule = definitions.resolve_schedule_def("shop_schedule")
    assert isinstance(schedule, dg.ScheduleDefinition)
    bundle = Path(str(dagster_webserver.__file__)).parent / "webapp" / "build" / "_next" / "static" / "chunks"
    texts = [file.read_text("utf-8", "replace") for file in bundle.glob("*.js")]
    for text in (definitions.resolve_job_def("shop").description, schedule.description):
        way = (text or "").partition("*Preview")[2].partition("; or ")[0]
        buttons = re.findall(r"\*([^*]+)\*", f"*Preview{way}")
        assert len(buttons) == 3
        assert all(any(f'children:"{button}"' in page for page in texts) for button in buttons), buttons


def test_a_pipeline_has_a_job_a_schedule_and_a_sensor(project: Project) -> None:
    definitions = build_definitions(project)
    job = definitions.resolve_job_def("shop")
    assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == set(NODES)
    schedule = definitions.resolve_schedule_def("shop_schedule")
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("15 6 * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert definitions.resolve_sensor_def("shop_new_data").job_name == "shop"


def test_a_pipeline_without_a_schedule_has_none_and_one_without_cursors_has_no_sensor(tmp_path: Path) -> None:
    text = """
        project: plain
        connections: {landing: {type: local, base_path: ./landing}}
        pipelines:
          - pipeline: copy
            nodes:
              - name: shops
                read: {connection: landing, format: csv, path: shops.csv}
                write: {connection: landing, path: out}
        """
    repository = build_definitions(make_project(tmp_path, text=text)).get_repository_def()
    assert not repository.schedule_defs
    assert not repository.sensor_defs


def test_nodes_of_one_pipeline_may_have_different_partitions(tmp_path: Path) -> None:
    node = """
      - name: by_month
        inputs: [sales]
        partition: {column: month, every: month, start: 2024-01-01}
        transform: {sql: "SELECT trunc(day, 'MM') AS month, count(*) AS n FROM sales GROUP BY 1"}
        write: {connection: lake, path: by_month, mode: partition_overwrite}
    """
    text = PROJECT_FILE + textwrap.indent(textwrap.dedent(node), "      ")
    job = build_definitions(make_project(tmp_path, text=text)).resolve_job_def("shop")
    assert len(job.asset_layer.executable_asset_keys) == len(NODES) + 1


def test_loading_the_definitions_starts_no_jvm(project: Project) -> None:
    code = """
        import json, psutil
        from odi_assets.definitions import defs
        from pyspark import SparkContext
        children = [child.name() for child in psutil.Process().children(recursive=True)]
        keys = len(list(defs.resolve_all_asset_specs()))
        print(json.dumps([children, SparkContext._gateway is None, keys]))
    """
    done = _python(textwrap.dedent(code), {"ODI_PROJECT": str(project.path)}, project.root)
    assert json.loads(done.stdout.splitlines()[-1]) == [[], True, len(NODES) + 4]


def test_the_project_file_of_the_current_folder_is_taken(project: Project) -> None:
    code = "from odi_assets.definitions import defs; print(len(list(defs.resolve_all_asset_specs())))"
    done = _python(code, {}, project.root)
    assert done.stdout.split() == [str(len(NODES) + 4)]


def _python(code: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return _command([sys.executable, "-c", code], env, cwd, check=True)


def _command(
    command: list[str], env: dict[str, str], cwd: Path, *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("ODI_PROJECT", "DAGSTER_HOME")}
    return subprocess.run(
        command, env={**inherited, **env}, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=check
    )


def test_dagsters_own_check_loads_the_definitions(project: Project, tmp_path: Path) -> None:
    command = [str(BIN / "dagster"), "definitions", "validate", "-m", "odi_assets.definitions"]
    done = _command(command, {"ODI_PROJECT": str(project.path)}, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_project_file_is_explained_where_dagster_shows_errors(project: Project, tmp_path: Path) -> None:
    text = project.path.read_text(encoding="utf-8")
    project.path.write_text(text.replace("incremental: files", "incrementl: files"), encoding="utf-8")
    command = [str(BIN / "dagster"), "definitions", "validate", "-m", "odi_assets.definitions"]
    done = _command(command, {"ODI_PROJECT": str(project.path)}, tmp_path)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "unknown key `incrementl`, did you mean `incremental`?" in output
    assert "config/loader.py" not in output, "the frames of the loader say nothing to whoever wrote the file"
