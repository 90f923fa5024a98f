"""Assets of one's own that take a node's table as an argument. Dagster reads their annotations as they stand."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets.orchestration.table_resource import NodeTableResource, delta_table_resource

pytestmark = pytest.mark.usefixtures("spark")
INS = {"table": dg.AssetIn(key=dg.AssetKey(["shop", "sales_by_day"]))}
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def materialize(project: Project, instance: dg.DagsterInstance) -> Materialize:
    """Materializes one asset of one's own after a load of the small project."""
    assert run_pipeline(project, "shop", instance=instance).success

    def run(asset: dg.AssetsDefinition, partition: str | None = None, **resources: Any) -> dg.ExecuteInProcessResult:
        own = dg.Definitions(assets=[asset], resources={"values": dg.mem_io_manager, **resources})
        definitions = dg.Definitions.merge(build_definitions(project), own)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=instance, asset_selection=[asset.key], partition_key=partition)

    return run


def test_it_comes_as_a_spark_dataframe(materialize: Materialize) -> None:
    @dg.asset(ins=INS, io_manager_key="values")
    def rows(table: Any) -> int:
        return int(table.count())

    assert materialize(rows).output_for_node("rows") == 3


def test_it_comes_as_what_the_argument_is_annotated_with(materialize: Materialize) -> None:
    @dg.asset(ins=INS, io_manager_key="values")
    def revenue(table: pd.DataFrame) -> float:
        return float(table["amount"].sum())

    @dg.asset(ins=INS, io_manager_key="values")
    def columns(table: pa.Table) -> list[str]:
        return list(table.column_names)

    assert materialize(revenue).output_for_node("revenue") == 26.0
    assert materialize(columns).output_for_node("columns") == ["day", "city", "amount"]


def test_an_asset_with_the_same_partitions_gets_the_rows_of_its_own(materialize: Materialize) -> None:
    @dg.asset(ins=INS, io_manager_key="values", partitions_def=DAILY)
    def revenue_of_day(table: pd.DataFrame) -> float:
        return float(table["amount"].sum())

    assert materialize(revenue_of_day, "2024-01-01").output_for_node("revenue_of_day") == 16.5


def test_a_table_can_be_had_as_a_resource_of_dagster_deltalake(materialize: Materialize, project: Project) -> None:
    @dg.asset(io_manager_key="values", deps=[dg.AssetKey(["shop", "sales"])])
    def sale_count(sales_table: NodeTableResource) -> int:
        return int(sales_table.load().to_pyarrow_table().num_rows)

    table = delta_table_resource(project, "shop.sales")
    assert materialize(sale_count, sales_table=table).output_for_node("sale_count") == 5
