"""Column lineage as Dagster has it: metadata of materializations, with the keys of the assets upstream."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, make_project

LINEAGE = "dagster/column_lineage"
FUNCTIONS = """
from pyspark.sql import functions as F


def totals(sales):
    again = sales.select(F.col("shop").alias("other"), F.col("amount").alias("more"))
    return sales.join(again, F.col("other") == sales.shop).groupBy("shop").agg(F.sum("more").alias("total"))


def collected(spark, sales):
    return spark.createDataFrame([(row.shop,) for row in sales.collect()], "shop STRING")
"""
NODES = """
      - name: totals
        inputs: [sales]
        transform: {function: "lineage_functions:totals"}
        write: {connection: lake, path: totals}
      - name: collected
        inputs: [sales]
        transform: {function: "lineage_functions:collected"}
        write: {connection: lake, path: collected}
      - name: pivoted
        inputs: [sales]
        transform: {sql: "SELECT * FROM (SELECT shop, amount FROM sales) PIVOT (sum(amount) FOR shop IN ('north'))"}
        write: {connection: lake, path: pivoted}
"""


def test_each_materialization_has_the_columns_whose_values_go_into_its_columns(
    tmp_path: Path, spark: object, instance: dg.DagsterInstance
) -> None:
    del spark
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "lineage_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    project = make_project(tmp_path / "project", "2024-01-01", text=PROJECT_FILE + NODES)
    definitions = build_definitions(project, key_prefix="east")
    assert definitions.resolve_job_def("east_shop").execute_in_process(instance=instance).success

    def shown(node: str) -> dict[str, list[tuple[str, str]]]:
        key = dg.AssetKey(["east", "shop", node])
        (record,) = instance.fetch_materializations(key, limit=1).records
        assert record.asset_materialization is not None
        metadata = record.asset_materialization.metadata
        lineage = metadata[LINEAGE].value if LINEAGE in metadata else metadata["column_lineage_not_known"].value
        if not isinstance(lineage, dg.TableColumnLineage):
            return {str(lineage): []}
        deps = lineage.deps_by_column
        return {name: [(one.asset_key.to_user_string(), one.column_name) for one in deps[name]] for name in deps}

    names = ("id", "day", "shop", "amount")
    assert shown("raw_sales") == {name: [("east/landing/sales", name)] for name in names}
    assert shown("sales") == {name: [("east/shop/raw_sales", name)] for name in names}
    assert shown("sales_by_day") == {
        "day": [("east/shop/sales", "day")],
        "city": [("east/shop/shops", "city")],
        "amount": [("east/shop/sales", "amount")],
    }
    (record,) = instance.fetch_materializations(dg.AssetKey(["east", "shop", "sales_by_day"]), limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["columns_made_of"].value == (
        "| column | value of | decided by |\n|---|---|---|\n"
        "| day | `shop.sales.day` |  |\n| city | `shop.shops.city` |  |\n| amount | `shop.sales.amount` |  |\n\n"
        "All are decided by `shop.sales.day`, `shop.sales.shop`, `shop.shops.city`, `shop.shops.shop`."
    )
    assert shown("totals") == {"shop": [("east/shop/sales", "shop")], "total": [("east/shop/sales", "amount")]}
    (why,) = shown("collected")
    assert why == "it reads rows that are of none of its inputs, or were in Python's hands"
    assert shown("pivoted") == {"north": [("east/shop/sales", "amount")]}
    (record,) = instance.fetch_materializations(dg.AssetKey(["east", "shop", "pivoted"]), limit=1).records
    assert record.asset_materialization is not None
    assert "`shop.sales.shop`" in str(record.asset_materialization.metadata["columns_made_of"].value)


def test_a_backfilled_partition_has_its_column_lineage_too(
    tmp_path: Path, spark: object, instance: dg.DagsterInstance
) -> None:
    del spark
    project = make_project(tmp_path / "project", "2024-01-01")
    definitions = build_definitions(project)
    assert definitions.resolve_job_def("shop").execute_in_process(instance=instance).success
    key = dg.AssetKey(["shop", "revenue"])
    records = instance.fetch_materializations(key, limit=10).records
    assert [record.partition_key for record in records] == ["2024-01-01"]
    for record in records:
        assert record.asset_materialization is not None
        lineage = record.asset_materialization.metadata[LINEAGE].value
        assert isinstance(lineage, dg.TableColumnLineage)
        assert lineage.deps_by_column["revenue"] == [dg.TableColumnDep(dg.AssetKey(["shop", "sales_by_day"]), "amount")]


def test_a_step_whose_rows_are_committed_does_not_fail_over_its_lineage(
    tmp_path: Path, spark: object, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark

    def breaks_down(*_: object) -> None:
        raise RuntimeError("nobody thought of that")

    monkeypatch.setattr("odi_assets.orchestration.assets.column_lineage.ProjectLineage.of_run", breaks_down)
    definitions = build_definitions(make_project(tmp_path / "project", "2024-01-01"))
    assert definitions.resolve_job_def("shop").execute_in_process(instance=instance).success
    (record,) = instance.fetch_materializations(dg.AssetKey(["shop", "sales"]), limit=1).records
    assert record.asset_materialization is not None
    shown = record.asset_materialization.metadata["column_lineage_not_known"].value
    assert shown == "it cannot be looked at; the log says why"
