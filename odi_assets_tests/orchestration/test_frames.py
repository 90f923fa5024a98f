"""Assets that are no nodes, through the IO manager: committed once, in every write mode, from every kind of frame.

Dagster reads the annotations of assets as they stand, so they are not postponed here.
"""

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from odi_assets.errors import StateError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets import io_manager as module
from odi_assets.orchestration.definitions import build_definitions

MANAGER = "delta_io_manager"
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")


def _rows(project: Project, path: str) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(str(project.root / "lake" / path)).scan()).to_pylist()
    return sorted(found, key=lambda row: tuple(map(str, row.values())))


def _versions(project: Project, path: str) -> int:
    return DeltaTable(str(project.root / "lake" / path)).version()


Run = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def run(project: Project, instance: dg.DagsterInstance) -> Run:
    """Materializes assets of one's own beside the nodes of the small project."""

    def materialize(*assets: Any, only: Any = None, **options: Any) -> dg.ExecuteInProcessResult:
        definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(assets=list(assets)))
        job = definitions.resolve_implicit_global_asset_job_def()
        keys = [key for asset in ([only] if only is not None else assets) for key in asset.keys]
        return job.execute_in_process(instance=instance, asset_selection=keys, **options)

    return materialize


def _asset(rows: Callable[[], Any], **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(io_manager_key=MANAGER, metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=1))
    def prices() -> Any:
        return rows()

    return prices


FRAMES = {
    "pandas": lambda: pd.DataFrame(
        {"id": [1, 2], "at": pd.to_datetime(["2024-01-01", "2024-01-02"]), "n": ["a", None]}
    ),
    "pyarrow": lambda: pa.table(
        {"id": [1, 2], "at": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], "n": ["a", None]}
    ),
    "polars": lambda: pl.DataFrame(
        {"id": [1, 2], "at": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], "n": ["a", None]}
    ),
    "lazy polars": lambda: pl.LazyFrame(
        {"id": [1, 2], "at": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], "n": ["a", None]}
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_replaces_the_table_unless_the_metadata_says_otherwise(project: Project, run: Run, kind: str) -> None:
    prices = _asset(FRAMES[kind])
    for _ in range(2):
        result = run(prices)
    assert [(row["id"], row["n"]) for row in _rows(project, "prices")] == [(1, "a"), (2, None)]
    assert _rows(project, "prices")[0]["at"] == dt.datetime(2024, 1, 1)
    (told,) = result.asset_materializations_for_node("prices")
    shown = {name: value.value for name, value in told.metadata.items()}
    assert (shown["dagster/row_count"], shown["delta_version"], shown["rows_written"]) == (2, 1, 2)
    assert [column.name for column in shown["dagster/column_schema"].columns] == ["id", "at", "n"]


def test_a_spark_frame_goes_the_same_way(project: Project, run: Run, spark: SparkSession) -> None:
    run(_asset(lambda: spark.sql("SELECT 1L AS id"), mode="append", path="elsewhere/prices"))
    run(_asset(lambda: pa.table({"id": [2]}), mode="append", path="elsewhere/prices"))
    assert _rows(project, "elsewhere/prices") == [{"id": 1}, {"id": 2}]


def test_an_upsert_replaces_rows_with_the_same_keys(project: Project, run: Run) -> None:
    metadata = {"mode": "upsert", "keys": ["id"]}
    run(_asset(lambda: pd.DataFrame({"id": [1, 2], "n": ["a", "b"]}), **metadata))
    run(_asset(lambda: pl.DataFrame({"id": [2, 3], "n": ["B", "c"]}), **metadata))
    assert [row["n"] for row in _rows(project, "prices")] == ["a", "B", "c"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mode", ["upsert", "append_once"])
def test_what_arrow_does_not_do_is_done_by_spark(project: Project, run: Run, mode: str) -> None:
    first = {"id": [1, 2], "x": [0.5, 1.5], "n": ["a", "b"]}
    run(_asset(lambda: pa.table(first), mode=mode, keys=["id", "x"]))
    run(_asset(lambda: pa.table({"id": [2, 3], "x": [1.5, 2.5], "n": ["B", "c"]}), mode=mode, keys=["id", "x"]))
    assert [row["n"] for row in _rows(project, "prices")] == ["a", "B" if mode == "upsert" else "b", "c"]


@pytest.mark.usefixtures("spark")
def test_a_full_refresh_stores_the_rows_that_the_mode_would_store(project: Project, run: Run) -> None:
    twice, refresh = pa.table({"id": [1, 1, 2], "n": ["a", "b", "c"]}), {"odi/full_refresh": "true"}
    upsert = _asset(lambda: twice, mode="upsert", keys=["id"])
    assert "have the same keys (id=1)" in _failure(run(upsert, tags=refresh, raise_on_error=False))
    assert not (project.root / "lake/prices/_delta_log").exists()
    assert run(_asset(lambda: twice, mode="append_once", keys=["id"]), tags=refresh).success
    assert [row["id"] for row in _rows(project, "prices")] == [1, 2]


@pytest.mark.slow
def test_a_table_whose_times_have_a_zone_is_replaced_by_a_full_refresh(project: Project, run: Run) -> None:
    zoned = pd.DataFrame({"id": [1], "at": pd.to_datetime(["2024-07-01 05:00"]).tz_localize("UTC")})
    run(_asset(lambda: zoned, mode="append"))
    prices = _asset(lambda: zoned.assign(at=zoned["at"].dt.tz_localize(None)), mode="append")
    said = _failure(run(prices, raise_on_error=False))
    assert "run tag `odi/full_refresh: true`" in said
    assert run(prices, tags={"odi/full_refresh": "true"}).success
    assert run(prices).success
    assert [row["at"] for row in _rows(project, "prices")] == [dt.datetime(2024, 7, 1, 5)] * 2


class TestAnAssetWithPartitions:
    @staticmethod
    def _prices(days: dict[str, list[int]], **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(
            io_manager_key=MANAGER,
            partitions_def=DAILY,
            metadata=metadata,
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def prices(context: dg.AssetExecutionContext) -> pd.DataFrame:
            rows = [(day, price) for day in context.partition_keys for price in days.get(day, ())]
            found = pd.DataFrame(rows, columns=["day", "price"])
            found["day"] = pd.to_datetime(found["day"]).dt.date.astype("object") if len(found) else found["day"]
            return found.astype({"price": "int64"})

        return prices

    def test_replaces_those_of_its_run_and_no_others(self, project: Project, run: Run) -> None:
        range_tags = {
            "dagster/asset_partition_range_start": "2024-01-01",
            "dagster/asset_partition_range_end": "2024-01-03",
        }
        days = {"2024-01-01": [1], "2024-01-02": [2, 3], "2024-01-03": [4]}
        run(self._prices(days, partition_column="day"), tags=range_tags)
        run(self._prices({"2024-01-02": [5]}, partition_column="day"), partition_key="2024-01-02")
        assert [row["price"] for row in _rows(project, "prices")] == [1, 5, 4]

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["datetime64[us]", "datetime64[us, UTC]"])
    def test_replaces_a_day_that_is_a_time(self, project: Project, run: Run, kind: str) -> None:
        @dg.asset(io_manager_key=MANAGER, partitions_def=DAILY, metadata={"partition_column": "day"})
        def prices(context: dg.AssetExecutionContext) -> pd.DataFrame:
            days = pd.Series(pd.to_datetime([context.partition_key])).dt.tz_localize("UTC" if "UTC" in kind else None)
            return pd.DataFrame({"day": days.astype(kind), "price": [int(context.partition_key[-2:])]})

        for day in ("2024-01-01", "2024-01-02", "2024-01-02"):
            run(prices, partition_key=day)
        assert sorted(row["price"] for row in _rows(project, "prices")) == [1, 2]

    def test_without_a_partition_column_is_refused_where_it_would_replace_the_others(self, run: Run) -> None:
        result = run(self._prices({}), partition_key="2024-01-02", raise_on_error=False)
        assert not result.success
        (failed,) = [event for event in result.all_events if event.is_step_failure]
        assert 'metadata={"partition_column": "day"}' in str(failed.step_failure_data.error)

    def test_that_is_overwritten_is_refused_before_it_erases_the_others(self, project: Project, run: Run) -> None:
        days = {"2024-01-01": [1], "2024-01-02": [2]}
        run(self._prices(days, partition_column="day"), partition_key="2024-01-01")
        prices = self._prices(days, partition_column="day", mode="overwrite")
        result = run(prices, partition_key="2024-01-02", raise_on_error=False)
        (failed,) = [event for event in result.all_events if event.is_step_failure]
        assert "leave `mode` out of the metadata of the asset" in str(failed.step_failure_data.error)
        assert [row["price"] for row in _rows(project, "prices")] == [1]
        prices = self._prices(days, partition_column="day", mode="partition_overwrite")
        run(prices, partition_key="2024-01-02")
        assert [row["price"] for row in _rows(project, "prices")] == [1, 2]


class TestExactlyOnce:
    def test_a_step_that_is_tried_again_after_its_commit_commits_nothing_more(
        self, project: Project, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, failed = module.DeltaIOManager._write_frame, []

        def fails_once(manager: Any, context: Any, frame: Any) -> None:
            real(manager, context, frame)
            if not failed:
                failed.append(True)
                raise StateError("the network went away after the commit")

        monkeypatch.setattr(module.DeltaIOManager, "_write_frame", fails_once)
        assert run(_asset(lambda: pa.table({"id": [1]}), mode="append")).success
        assert failed
        assert (_rows(project, "prices"), _versions(project, "prices")) == ([{"id": 1}], 0)

    def test_a_run_that_failed_after_its_commit_is_executed_anew_without_a_second_one(
        self, project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = module.DeltaIOManager._write_frame

        def fails(manager: Any, context: Any, frame: Any) -> None:
            real(manager, context, frame)
            raise StateError("the network went away after the commit")

        monkeypatch.setenv("ODI_PROJECT", str(project.path))
        job = dg.reconstructable(job_of_prices)
        with monkeypatch.context() as patch:
            patch.setattr(module.DeltaIOManager, "_write_frame", fails)
            first = dg.execute_job(job, instance=instance, raise_on_error=False)
        assert not first.success
        options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        again = dg.execute_job(job, instance=instance, reexecution_options=options)
        assert again.success
        assert _rows(project, "prices") == [{"id": 1}]
        options = dg.ReexecutionOptions(parent_run_id=again.run_id)
        assert dg.execute_job(job, instance=instance, reexecution_options=options).success
        assert _rows(project, "prices") == [{"id": 1}]
        assert dg.execute_job(job, instance=instance).success
        assert _rows(project, "prices") == [{"id": 1}, {"id": 1}]


def job_of_prices() -> dg.JobDefinition:
    """A job of an asset beside the nodes of the project that ``$ODI_PROJECT`` names."""
    prices = _asset(lambda: pa.table({"id": [1]}), mode="append")
    job = dg.define_asset_job("prices_alone", selection=[prices.key], executor_def=dg.in_process_executor)
    own = dg.Definitions(assets=[prices], jobs=[job])
    return dg.Definitions.merge(build_definitions(Project.load()), own).resolve_job_def("prices_alone")


class TestWhatAnArgumentGets:
    def _chain(self, annotation: Any, got: list[Any], **asked: Any) -> list[dg.AssetsDefinition]:
        @dg.asset(io_manager_key=MANAGER, metadata={"mode": "append"})
        def prices() -> pa.Table:
            ids = [len(got) * 10 + 1, len(got) * 10 + 2]
            return pa.table({"id": ids, "day": ["2024-01-01", "2024-01-02"]})

        @dg.asset(
            io_manager_key=MANAGER, metadata={"mode": "append"}, ins={"prices": dg.AssetIn("prices", metadata=asked)}
        )
        def copied(prices: annotation) -> pa.Table:
            got.append(prices)
            if isinstance(prices, DataFrame):
                return prices.toArrow()
            return pa.table(prices) if not isinstance(prices, pd.DataFrame) else pa.Table.from_pandas(prices)

        return [prices, copied]

    @pytest.mark.parametrize("annotation", [pd.DataFrame, pa.Table, pl.DataFrame, pl.LazyFrame])
    def test_it_is_what_it_is_annotated_with(self, run: Run, annotation: Any) -> None:
        got: list[Any] = []
        chain = self._chain(annotation, got, columns=["id"])
        if annotation is pl.LazyFrame:
            chain = [chain[0], _counting(got)]
        run(*chain)
        assert isinstance(got[0], annotation)

    @pytest.mark.slow
    @pytest.mark.parametrize("annotation", [pd.DataFrame, pa.Table, pl.DataFrame])
    def test_an_increment_is_what_was_gained_since_the_last_commit(
        self, project: Project, run: Run, annotation: Any
    ) -> None:
        got: list[Any] = []
        chain = self._chain(annotation, got, incremental=True)
        for _ in range(3):
            run(*chain)
        assert [len(frame) for frame in got] == [2, 2, 2]
        assert [row["id"] for row in _rows(project, "copied")] == [1, 11, 12, 2, 21, 22]
        run(*chain, only=chain[1])
        assert len(got[-1]) == 0
        assert len(_rows(project, "copied")) == 6

    @pytest.mark.usefixtures("spark")
    def test_an_increment_comes_as_spark_too_and_a_full_refresh_replaces_the_table(
        self, project: Project, run: Run
    ) -> None:
        got: list[Any] = []
        chain = self._chain(DataFrame, got, incremental=True)
        run(*chain)
        run(*chain)
        assert got[1].count() == 2
        run(*chain, only=chain[1], tags={"odi/full_refresh": "true"})
        assert len(_rows(project, "copied")) == 4

    @pytest.mark.slow
    @pytest.mark.parametrize("gains_more", [False, True])
    def test_of_two_runs_at_once_that_read_the_same_increment_one_commits_it(
        self, project: Project, run: Run, gains_more: bool
    ) -> None:
        meanwhile: list[Any] = []

        @dg.asset(
            io_manager_key=MANAGER,
            metadata={"mode": "append"},
            ins={"prices": dg.AssetIn("prices", metadata={"incremental": True})},
        )
        def copied(prices: pa.Table) -> pa.Table:
            if meanwhile:
                meanwhile.pop()()
            return prices

        chain = [self._chain(pa.Table, [])[0], copied]
        run(*chain)
        meanwhile.append(lambda: run(*chain, only=None if gains_more else copied))
        result = run(*chain, raise_on_error=False)
        assert "another run committed what prices gained while this one was at work" in _failure(result)
        run(*chain, only=copied)
        assert [row["id"] for row in _rows(project, "copied")] == [row["id"] for row in _rows(project, "prices")]
        assert len(_rows(project, "copied")) == (6 if gains_more else 4)

    def test_a_range_has_the_rows_from_its_start_until_before_its_end(self, run: Run) -> None:
        got: list[Any] = []
        run(*self._chain(pa.Table, got, column="day", **{"from": "2024-01-02", "to": "2024-01-03"}))
        assert got[0].to_pydict() == {"id": [2], "day": ["2024-01-02"]}

    def test_an_increment_of_a_range_is_refused(self, run: Run) -> None:
        asked = {"incremental": True, "column": "day", "from": "2024-01-01", "to": "2024-01-02"}
        result = run(*self._chain(pa.Table, [], **asked), raise_on_error=False)
        assert "leave out `incremental`, or `from` and `to`" in _failure(result)

    def test_an_increment_for_an_asset_with_partitions_is_refused(self, run: Run) -> None:
        @dg.asset(
            io_manager_key=MANAGER,
            partitions_def=DAILY,
            metadata={"mode": "append", "partition_column": "day"},
            ins={"prices": dg.AssetIn("prices", metadata={"incremental": True})},
        )
        def copied(prices: pa.Table) -> pa.Table:
            return prices

        prices = _asset(lambda: pa.table({"id": [1], "day": ["2024-01-01"]}))
        run(prices)
        result = run(prices, copied, only=copied, partition_key="2024-01-01", raise_on_error=False)
        assert "each run gets the rows of its partitions" in _failure(result)

    def test_an_increment_for_several_assets_of_one_function_is_refused(self, run: Run) -> None:
        out = dg.AssetOut(io_manager_key=MANAGER, metadata={"mode": "append"})

        @dg.multi_asset(
            outs={"one": out, "other": out}, ins={"prices": dg.AssetIn("prices", metadata={"incremental": True})}
        )
        def both(prices: pa.Table) -> Any:
            yield dg.Output(prices, "one")
            yield dg.Output(prices, "other")

        result = run(_asset(lambda: pa.table({"id": [1]})), both, raise_on_error=False)
        assert "both writes 2 assets in commits of their own" in _failure(result)

    def test_an_increment_for_another_io_manager_is_refused(self, run: Run) -> None:
        @dg.asset(ins={"prices": dg.AssetIn("prices", metadata={"incremental": True})})
        def counted(prices: pd.DataFrame) -> int:
            return len(prices)

        result = run(_asset(lambda: pa.table({"id": [1]})), counted, raise_on_error=False)
        assert not result.success


def _counting(got: list[Any]) -> dg.AssetsDefinition:
    @dg.asset(ins={"prices": dg.AssetIn("prices")})
    def counted(prices: pl.LazyFrame) -> int:
        got.append(prices)
        return int(prices.collect().height)

    return counted


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"mode": "upsert"}, "names no keys"),
        ({"mode": "replace"}, "it is one of append"),
        ({"connection": "nosuch"}, "there are: landing, lake"),
        ({"schema": "replace"}, "it is one of fail, evolve, ignore"),
        ({"path": "sales"}, "would write the table of the node shop.sales"),
    ],
)
def test_metadata_that_is_not_right_is_explained(run: Run, metadata: dict[str, Any], message: str) -> None:
    result = run(_asset(lambda: pa.table({"id": [1]}), **metadata), raise_on_error=False)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert message in failed.step_failure_data.error.to_string()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda: pa.table({"id": pa.nulls(2)}), "all of it is NULL"),
        (lambda: pa.table({"t": pa.array([dt.timedelta(1)])}), "which Delta cannot store"),
        (lambda: 41, "returned int, which is no frame"),
        (lambda: None, "returned NoneType, which is no frame"),
    ],
)
def test_what_delta_cannot_store_is_named(run: Run, rows: Callable[[], Any], message: str) -> None:
    result = run(_asset(rows), raise_on_error=False)
    failed = next(event for event in result.all_events if event.is_step_failure or event.is_step_up_for_retry)
    assert message in failed.event_specific_data.error.to_string()


def test_a_fault_of_the_table_is_told_in_the_words_of_assets(run: Run) -> None:
    run(_asset(lambda: pa.table({"id": [1]}), mode="append"))
    result = run(_asset(lambda: pa.table({"id": ["x"]}), mode="append"), raise_on_error=False)
    assert "cast `id` to LONG in the asset's function; or materialize the asset with the run tag" in _failure(result)


def test_a_table_that_is_not_there_yet_is_to_be_materialized(run: Run) -> None:
    prices, counted = _asset(lambda: pa.table({"id": [1]})), _counting([])
    result = run(prices, counted, only=counted, raise_on_error=False)
    assert "materialize the asset that writes it first" in _failure(result)


@pytest.mark.slow
@pytest.mark.parametrize("lose", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-20])])
def test_a_file_of_the_table_that_is_gone_or_torn_is_found_by_a_doctor(
    project: Project, run: Run, lose: Callable[[Path], Any]
) -> None:
    prices, counted = _asset(lambda: pa.table({"id": [1]})), _counting([])
    run(prices)
    (file,) = (project.root / "lake" / "prices").rglob("*.parquet")
    lose(file)
    said = _failure(run(prices, counted, only=counted, raise_on_error=False))
    assert "DamagedTableError" in said
    assert "odi doctor --deep names every such file" in said


def _failure(result: dg.ExecuteInProcessResult) -> str:
    kinds = [event for event in result.all_events if event.is_step_failure or event.is_step_up_for_retry]
    return str(kinds[0].event_specific_data.error.to_string())


@pytest.mark.slow
def test_small_frames_start_no_jvm(project: Project) -> None:
    code = """
        import sys, json
        import dagster as dg, pandas as pd
        from odi_assets import Project, build_definitions

        @dg.asset(io_manager_key="delta_io_manager", metadata={"mode": "upsert", "keys": ["id"]})
        def prices() -> pd.DataFrame:
            return pd.DataFrame({"id": [1, 2]})

        @dg.asset(io_manager_key="delta_io_manager")
        def doubled(prices: pd.DataFrame) -> pd.DataFrame:
            return prices * 2

        own = dg.Definitions(assets=[prices, doubled])
        defs = dg.Definitions.merge(build_definitions(Project.load(sys.argv[1])), own)
        job = defs.resolve_implicit_global_asset_job_def()
        for _ in range(2):
            assert job.execute_in_process(asset_selection=[prices.key, doubled.key]).success
        from pyspark import SparkContext
        import psutil
        children = [child.name() for child in psutil.Process().children(recursive=True)]
        print(json.dumps([SparkContext._gateway is None, children]))
    """
    import textwrap

    command = [sys.executable, "-c", textwrap.dedent(code), str(project.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [True, []]
    assert [row["id"] for row in _rows(project, "doubled")] == [2, 4]
