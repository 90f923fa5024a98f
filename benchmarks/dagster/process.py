"""One measure in a process of its own: ``python -m benchmarks.dagster.process WHAT …``; JSON on the last line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.dagster import lineage, mixed
from benchmarks.harness import in_turn

PIPELINE_OF = mixed.PIPELINE_OF
_HEAD = """\
project: big
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
"""


def make(root: str, nodes: str, look_timeout: str = "10", pipeline_of: str = str(mixed.PIPELINE_OF)) -> dict[str, Any]:
    """Write a project file of many nodes: of four each, one reads files and the others what the one before gained."""
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [_HEAD + f"automation: {{look_timeout: {look_timeout}s}}\npipelines:"]
    for number in range(int(nodes)):
        name = f"n{number}"
        if number % int(pipeline_of) == 0:
            lines.append(f"- pipeline: p{number // int(pipeline_of)}\n  nodes:")
        write = f"write: {{connection: lake, path: {name}, mode: append}}"
        if number % 4 == 0:
            read = f"{{connection: landing, format: csv, path: {name}/*.csv, schema: id BIGINT, incremental: files}}"
            lines.append(f"  - {{name: {name}, read: {read}, {write}}}")
        else:
            above = f"{{above: {{node: n{number - 1}, incremental: version}}}}"
            sql = "{sql: SELECT * FROM above}"
            lines.append(f"  - {{name: {name}, inputs: {above}, transform: {sql}, {write}}}")
    (folder / "odibi.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {}


def make_queries(root: str, nodes: str) -> dict[str, Any]:
    """Write a project file of nodes one below the other, each with a query of its own."""
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{_HEAD}pipelines:\n- pipeline: p\n  nodes:"]
    for number in range(int(nodes)):
        above = f"n{number - 1}" if number else "df"
        schema = "a INT, b STRING, c INT, d DOUBLE"
        read = f"{{connection: landing, format: csv, path: in, schema: '{schema}', incremental: files}}"
        source = f"inputs: [{above}]" if number else f"read: {read}"
        sql = (
            f"SELECT a, b, c, sum(d) AS d FROM {above} "
            f"WHERE a > {number} AND b IN (SELECT b FROM {above}) GROUP BY a, b, c"
        )
        write = f"{{connection: lake, path: n{number}, mode: upsert, keys: [a, b]}}"
        lines.append(f"  - {{name: n{number}, {source}, transform: {{sql: '{sql}'}}, write: {write}}}")
    (folder / "odibi.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {}


def project_file(root: str, kind: str) -> dict[str, Any]:
    """CPU seconds to load the file; or those of the parsers alone, of YAML and of SQL."""
    import sqlglot
    import yaml

    from odi_assets.config.loader import load_project_file

    file = Path(root) / "odibi.yaml"
    began = time.process_time()
    if kind == "ours":
        load_project_file(file)
    else:
        for node in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["pipelines"][0]["nodes"]:
            sqlglot.parse_one(node["transform"]["sql"], read="spark")
    return {"cpu": time.process_time() - began}


def definitions(root: str, nodes: str, kind: str) -> dict[str, Any]:
    """CPU seconds to the repository; and the processes that were started."""
    import psutil

    if kind == "ours":
        from odi_assets.nodes.project import Project
        from odi_assets.orchestration.definitions import build_definitions

        began = time.process_time()
        build_definitions(Project.load(Path(root) / "odibi.yaml")).get_repository_def()
    else:
        began = time.process_time()
        _plain(int(nodes)).get_repository_def()
    cpu = time.process_time() - began
    return {"cpu": cpu, "started": [child.name() for child in psutil.Process().children(recursive=True)]}


def _plain(nodes: int) -> dg.Definitions:
    assets: list[dg.AssetsDefinition] = []
    jobs, sensors = [], []
    for pipeline in range(nodes // PIPELINE_OF):
        keys: list[dg.AssetKey] = []
        for place in range(PIPELINE_OF):
            keys.append(dg.AssetKey([f"p{pipeline}", f"n{place}"]))
            above = [keys[-2]] if place % 4 else []
            assets.append(_plain_asset(keys[-1], above))
        job = dg.define_asset_job(f"p{pipeline}", selection=dg.AssetSelection.assets(*keys))
        jobs.append(job)
        sensors.append(_plain_sensor(pipeline, job))
    return dg.Definitions(assets=assets, jobs=jobs, sensors=sensors)


def _plain_asset(key: dg.AssetKey, above: list[dg.AssetKey]) -> dg.AssetsDefinition:
    @dg.asset(
        key=key, deps=above, group_name=key.path[0], description="A node.", metadata={"uri": "x"}, kinds={"spark"}
    )
    def plain() -> None: ...

    return plain


def _plain_sensor(pipeline: int, job: Any) -> dg.SensorDefinition:
    @dg.sensor(name=f"p{pipeline}_new_data", job=job)
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        del context
        return dg.SkipReason("nothing")

    return sensor


def load(root: str) -> dict[str, Any]:
    """Load each node once, as a run does, with Arrow in the place of Spark: planned, committed, remembered."""
    import pyarrow as pa

    from odi_assets.nodes.execution.materialize import advance
    from odi_assets.nodes.history.attempts import run_record
    from odi_assets.nodes.planning.plan import ResolvedPlan
    from odi_assets.nodes.planning.planner import plan_node
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.result import RunInfo
    from odi_assets.sources.reads import Read
    from odi_assets.state.records import RunStatus
    from odi_assets.tables.engine import WriteSpec, engine_of

    def no_spark() -> Any:
        raise AssertionError("Arrow does this write")

    project = Project.load(Path(root) / "odibi.yaml")
    state, run = project.open_state(), RunInfo("first")
    rows_of_history = []
    for key in project.graph.order(None):
        node = project.graph.node(key)
        if node.stream is not None:
            continue
        if node.read is not None and node.read.connection == "landing":
            mixed.land(project.root, node.name, "1")
        plan = plan_node(project, state, key)
        reads = tuple(read for read in plan.reads if isinstance(read, Read))
        plan = ResolvedPlan.of(plan, reads, plan.write)
        stamp = _stamp(plan, run)
        for read in reads:
            read.before_commit()
        rows = pa.table({"id": pa.array([1], pa.int64())})
        written = engine_of(plan.target).write_arrow(rows, plan.target, WriteSpec(plan.write.mode), stamp, no_spark)
        table = plan.target.refreshed()
        advance(plan, state, plan.hwm_after, written.version, run.run_id, plan.origin(table.table_id))
        rows_of_history.append(run_record(project, key, run, RunStatus.SUCCESS, datetime.now(UTC)))
    state.record_runs(rows_of_history)
    return {}


def _stamp(plan: Any, run: Any) -> Any:
    from odi_assets.delta.commit import Stamp

    return Stamp(plan.write.app_id, plan.write.number, plan.commit_facts(run).to_json())


def make_mixed(root: str, nodes: str, look_timeout: str) -> dict[str, Any]:
    """Write the project file of :mod:`mixed`."""
    mixed.make(Path(root), int(nodes), look_timeout)
    return {}


def tick(root: str) -> dict[str, Any]:
    """Ticks over all pipelines: when there is something new for one node in a hundred; and with a source that hangs."""
    from odi_assets.nodes.project import Project
    from odi_assets.orchestration.assets.sources import Sources
    from odi_assets.orchestration.automation import sensors
    from odi_assets.orchestration.automation.source_lag import Watch

    folder = Path(root)
    mixed.never_answers()
    project, hanging = Project.load(folder / "odibi.yaml"), Project.load(folder / "hung.yaml")
    names = list(project.pipelines)
    # The definitions have them.
    sources = {one.path: Sources(one) for one in (project, hanging)}
    with dg.DagsterInstance.ephemeral() as instance:
        cursors: dict[str, str | None] = dict.fromkeys(names)

        def all_ticks(project: Project, watched: dict[str, Watch]) -> int:
            due = 0
            for name in names:
                context = dg.build_sensor_context(instance=instance, cursor=cursors[name])
                answer = sensors.evaluate(context, project, name, watch=watched[name])
                cursors[name] = context.cursor
                due += (
                    sum(tag.startswith("odi.due/") for tag in answer.tags) if isinstance(answer, dg.RunRequest) else 0
                )
            return due

        def anew(project: Project) -> dict[str, Watch]:
            return {name: Watch(project, name, sources=sources[project.path]) for name in names}

        watches = anew(project)
        assert all_ticks(project, watches) == 0, cursors
        assert not any("errors" in json.loads(cursor or "{}") for cursor in cursors.values()), cursors
        _arrive(folder, len(project.graph.nodes))
        before = dict(cursors)
        found, cpu, _ = _timed(lambda: all_ticks(project, watches))
        cursors.update(before)
        _, cold, wall = _timed(lambda: all_ticks(project, anew(project)))
        # The other project file is known to the cursors after a first round.
        all_ticks(hanging, anew(hanging))
        _, _, hung = _timed(lambda: all_ticks(hanging, anew(hanging)))
    return {"cpu": cpu, "cold": cold, "wall": wall, "hung": hung, "due": found}


def _arrive(folder: Path, nodes: int) -> None:
    """Something new for one node in a hundred: files, a third of them of a cursor document, a fifth of streams."""
    due = nodes // 100
    of = {kind: [n for n in range(nodes) if mixed.kind_of(n) == kind] for kind in ("files", "document", "stream")}
    streams, documents = due // 5, due // 3
    files = due - streams - documents
    for number in (*of["files"][7::20][:files], *of["document"][:documents], *of["stream"][5 : 5 + streams]):
        mixed.land(folder, f"n{number}", "2")
    mixed.move_streams(folder, of["document"][:documents], 2, nodes)


def _timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    found = call()
    return found, time.process_time() - cpu, time.perf_counter() - wall


def run(many: str, few: str, due: str, rounds: str) -> dict[str, Any]:
    """Seconds of runs of the due nodes of two project files in turn: definitions are loaded, and the JVM is warm."""
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    session = open_session(SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}), app_name="bench")
    try:
        return dict(in_turn({"many": _runs(many, due), "few": _runs(few, due)}, int(rounds), warm=2))
    finally:
        session.stop()


def run_once(root: str, due: str) -> dict[str, Any]:
    """Seconds of one run of the due nodes, from the project file on."""
    began = time.perf_counter()
    _runs(root, due)()
    return {"seconds": time.perf_counter() - began}


def _runs(root: str, due: str) -> Callable[[], float]:
    """What runs the due nodes after one more file landed, and says how many seconds that took."""
    from odi_assets.nodes.project import Project
    from odi_assets.orchestration.definitions import build_definitions

    definitions = build_definitions(Project.load(Path(root) / "odibi.yaml"))
    wanted = {dg.AssetKey(["p0", f"n{place}"]) for place in range(int(due))}
    job = definitions.resolve_job_def("p0").get_subset(asset_selection=wanted)
    landing = Path(root) / "landing" / "n0"

    def run() -> float:
        landed = len(list(landing.iterdir())) if landing.is_dir() else 0
        mixed.land(Path(root), "n0", str(landed + 1))
        began = time.perf_counter()
        with dg.DagsterInstance.ephemeral() as instance:
            assert job.execute_in_process(instance=instance).success
        return time.perf_counter() - began

    return run


def io(root: str, rounds: str) -> dict[str, Any]:
    """Seconds of a run of an asset that returns a pandas frame, by both IO managers in turn."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from dagster_deltalake import DeltaLakePyarrowIOManager, LocalConfig
    from dagster_deltalake.version import __version__

    from odi_assets.nodes.project import Project
    from odi_assets.orchestration.definitions import build_definitions

    make(root, "1")
    frame = _frame(np, pd)

    # Dagster reads annotations as they stand, and here they are postponed: the types are given.
    @dg.asset(io_manager_key="delta_io_manager", dagster_type=dg.Any)
    def ours():  # type: ignore[no-untyped-def]
        return frame

    @dg.asset(io_manager_key="theirs")
    def peer():  # type: ignore[no-untyped-def]
        # What the pandas handler of dagster-deltalake does.
        return pa.Table.from_pandas(frame)

    manager = DeltaLakePyarrowIOManager(root_uri=str(Path(root) / "theirs"), storage_options=LocalConfig())
    own = dg.Definitions(assets=[ours, peer], resources={"theirs": manager})
    definitions = dg.Definitions.merge(build_definitions(Project.load(Path(root) / "odibi.yaml")), own)
    job = definitions.resolve_implicit_global_asset_job_def()
    measured: dict[str, list[float]] = {"ours": [], "peer": []}
    with dg.DagsterInstance.ephemeral() as instance:
        for number in range(int(rounds) + 2):
            for asset in (ours, peer):
                began = time.perf_counter()
                assert job.execute_in_process(instance=instance, asset_selection=[asset.key]).success
                if number >= 2:
                    measured[asset.key.path[0]].append(time.perf_counter() - began)
    return {**measured, "against": f"dagster-deltalake {__version__}"}


def _frame(np: Any, pd: Any) -> Any:
    ids = np.arange(100_000)
    return pd.DataFrame(
        {
            "id": ids,
            "customer": (ids % 1000).astype("int32"),
            "name": [f"order-{number}" for number in ids],
            "price": (ids % 100_000) / 100,
            "at": pd.Timestamp("2013-01-01") + pd.to_timedelta(ids, unit="s"),
            "gift": ids % 7 == 0,
            "score": np.sin(ids),
            "note": np.where(ids % 3 == 0, None, "x"),
        }
    )


_MEASURES = {
    "make": make,
    "make-mixed": make_mixed,
    "make-queries": make_queries,
    "project-file": project_file,
    "definitions": definitions,
    "load": load,
    "tick": tick,
    "run": run,
    "run-once": run_once,
    "io": io,
    "make-lineage": lineage.make,
    "lineage": lineage.measure,
}

if __name__ == "__main__":
    os.environ.setdefault("ODI_SPARK_LOG_LEVEL", "fatal")
    import logging

    logging.disable(logging.ERROR)
    print(json.dumps(_MEASURES[sys.argv[1]](*sys.argv[2:])), flush=True)
    # Threads that hang do not keep the process.
    os._exit(0)
