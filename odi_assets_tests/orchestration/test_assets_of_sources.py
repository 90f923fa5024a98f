"""The assets of sources that the project file chooses, and assets of somebody else that land what nodes read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions

PROJECT = """\
project: shop
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
pipelines:
  - pipeline: shop
    nodes:
      - name: orders
        read:
          connection: landing
          format: json
          path: orders
          schema: id BIGINT, amount DOUBLE
          incremental: files
          {asset}
        write: {{connection: lake, path: orders, mode: append}}
      - name: big
        inputs: {{orders: {{node: orders, incremental: version}}}}
        transform: {{sql: SELECT * FROM orders WHERE amount > 1}}
        write: {{connection: lake, path: big, mode: append}}
"""
ORDERS, LANDED = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["dlt", "orders"])


def project_with(folder: Path, asset: str) -> Project:
    (folder / "odibi.yaml").write_text(PROJECT.format(asset=asset), encoding="utf-8")
    return Project.load(folder / "odibi.yaml")


def eager(spec: dg.AssetSpec) -> dg.AssetSpec:
    of_project = spec.key.path[0] == "shop"
    return spec.replace_attributes(automation_condition=dg.AutomationCondition.eager()) if of_project else spec


def test_an_asset_that_lands_the_files_is_their_producer_and_eager_fires_after_it(
    tmp_path: Path, spark: object, instance: dg.DagsterInstance
) -> None:
    del spark
    project = project_with(tmp_path, "asset: dlt/orders")

    @dg.asset(key=LANDED, group_name="ingest", owners=["team:dlt"])
    def land() -> None:
        (tmp_path / "landing" / "orders").mkdir(parents=True, exist_ok=True)
        number = len(list((tmp_path / "landing" / "orders").iterdir()))
        text = f'{{"id": {number}, "amount": 2.5}}\n'
        (tmp_path / "landing" / "orders" / f"{number}.json").write_text(text, encoding="utf-8")

    definitions = dg.Definitions.merge(
        build_definitions(project).map_resolved_asset_specs(func=eager), dg.Definitions(assets=[land])
    )
    graph = definitions.resolve_asset_graph()
    assert graph.get(ORDERS).parent_keys == {LANDED}
    assert (graph.get(LANDED).is_materializable, graph.get(LANDED).group_name) == (True, "ingest")
    assert graph.get_all_asset_keys() == {LANDED, ORDERS, dg.AssetKey(["shop", "big"])}

    def requested(cursor: Any = None) -> tuple[set[dg.AssetKey], Any]:
        result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
        return {one.key for one in result.results if result.get_num_requested(one.key)}, result.cursor

    def run(*keys: dg.AssetKey) -> None:
        job = definitions.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=list(keys)).success

    _, cursor = requested()
    run(LANDED)
    found, cursor = requested(cursor)
    assert found == {ORDERS, dg.AssetKey(["shop", "big"])}
    run(*found)
    found, cursor = requested(cursor)
    assert found == set()
    (record,) = instance.fetch_materializations(ORDERS, limit=1).records
    assert record.asset_materialization is not None
    lineage = record.asset_materialization.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    assert lineage.deps_by_column["amount"] == [dg.TableColumnDep(LANDED, "amount")]


def test_a_key_alone_needs_nobody_that_defines_its_asset(tmp_path: Path) -> None:
    graph = build_definitions(project_with(tmp_path, "asset: [dlt, orders]")).resolve_asset_graph()
    assert graph.get(ORDERS).parent_keys == {LANDED}
    assert not graph.get(LANDED).is_materializable


def test_a_source_has_the_key_the_group_the_owners_and_the_upstream_that_the_file_gives(tmp_path: Path) -> None:
    asset = "asset: {key: dlt/orders, group: ingest, owner: team:a, owners: [b@shop.example], upstream: [crm/deals]}"
    graph = build_definitions(project_with(tmp_path, asset)).resolve_asset_graph()
    source = graph.get(LANDED)
    assert (source.group_name, source.owners) == ("ingest", ["team:a", "b@shop.example"])
    assert source.parent_keys == {dg.AssetKey(["crm", "deals"])}
    assert graph.get(ORDERS).parent_keys == {LANDED}


def test_without_a_key_the_source_keeps_its_own_and_gets_the_rest(tmp_path: Path) -> None:
    project = project_with(tmp_path, "asset: {group: ingest, upstream: [[crm, deals]]}")
    graph = build_definitions(project, key_prefix="east").resolve_asset_graph()
    source = graph.get(dg.AssetKey(["east", "landing", "orders"]))
    assert (source.group_name, source.parent_keys) == ("ingest", {dg.AssetKey(["crm", "deals"])})


def test_a_source_shows_the_columns_that_the_file_declares(tmp_path: Path) -> None:
    graph = build_definitions(project_with(tmp_path, "")).resolve_asset_graph()
    schema = graph.get(dg.AssetKey(["landing", "orders"])).metadata["dagster/column_schema"]
    assert [(one.name, one.type) for one in schema.columns] == [("id", "bigint"), ("amount", "double")]


def test_an_asset_for_the_table_of_a_node_is_refused(tmp_path: Path) -> None:
    by_path = "read: {connection: lake, format: delta, path: orders, asset: dlt/orders}"
    text = PROJECT.format(asset="").replace("inputs: {orders: {node: orders, incremental: version}}", by_path)
    (tmp_path / "odibi.yaml").write_text(text.replace("FROM orders", "FROM df"), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"shop.big: `asset` of its `read` is of no use: shop.orders writes that table"
    ):
        build_definitions(Project.load(tmp_path / "odibi.yaml"))


def test_the_asset_of_a_source_changes_nothing_about_what_its_node_does(tmp_path: Path) -> None:
    plain = project_with(tmp_path, "")
    key = plain.node_named("orders")
    assert code_version(plain, key) == code_version(project_with(tmp_path, "asset: dlt/orders"), key)


def test_the_key_of_a_node_is_none_for_a_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`asset: shop/big` of a `read` is the asset of the node shop.big") as raised:
        build_definitions(project_with(tmp_path, "asset: shop/big"))
    assert "inputs: [shop.big]" in str(raised.value)


@pytest.mark.parametrize(
    ("asset", "mistake"),
    [
        ("asset: dlt//orders", "is no asset key"),
        ("asset: []", "is no asset key"),
        ("asset: {key: a, owner: nobody}", "is not an owner"),
        ("asset: {keys: a}", "unknown key"),
    ],
)
def test_a_mistake_in_the_asset_of_a_source_is_named(tmp_path: Path, asset: str, mistake: str) -> None:
    with pytest.raises(ConfigErrors, match=mistake):
        project_with(tmp_path, asset)
