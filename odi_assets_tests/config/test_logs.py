"""Mistakes of nodes that capture a log and of nodes that apply one."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project

PROJECT = """\
project: demo
connections:
  db: {type: postgres, database: shop, log: {slot: odi_shop, create: true}}
  plain: {type: postgres, database: shop}
  other: {type: mssql, database: shop}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - name: changes
    read: {connection: db, format: cdc, tables: [public.orders]}
    write: {connection: lake, path: changes}
  - name: orders
    apply: {changes: changes, table: public.orders}
    write: {connection: lake, path: orders}
"""


def load(folder: Path, text: str) -> Project:
    file = folder / "odibi.yaml"
    file.write_text(text, encoding="utf-8")
    return Project.load(file)


def test_a_capture_appends_and_its_tables_are_upserted_by_the_keys_of_the_log(tmp_path: Path) -> None:
    changes, orders = load(tmp_path, PROJECT).graph.nodes.values()
    assert (changes.write.mode, changes.write.partition_by) == ("append", ("table",))
    assert (orders.write.mode, orders.write.delete_when, orders.write.schema_policy) == ("upsert", "_deleted", "evolve")
    history = PROJECT.replace("table: public.orders}", "table: public.orders, history: true}")
    assert [node.write.mode for node in load(tmp_path, history).graph.nodes.values()] == ["append", "append"]


def test_a_server_of_mariadb_needs_no_settings_for_its_log(tmp_path: Path) -> None:
    plain = PROJECT.replace("{type: mssql, database: shop}", "{type: mysql, database: shop}")
    load(tmp_path, plain.replace("connection: db", "connection: other"))
    numbered = plain.replace("type: mysql,", "type: mysql, log: {server_id: 4711},")
    load(tmp_path, numbered.replace("connection: db", "connection: other"))


READ = "read: {connection: db, format: cdc, tables: [public.orders]}"
APPLY = "apply: {changes: changes, table: public.orders}"
WRONG = [
    (READ, "read: {connection: db, format: cdc}", "odibi.yaml:12", "names no table to capture"),
    (READ, READ.replace("public.orders", '"!public.orders"'), "odibi.yaml:12", "names no table to capture"),
    (READ, READ.replace("db", "plain"), "odibi.yaml:12", "does not say how its log is read"),
    (READ, READ.replace("db", "other"), "odibi.yaml:12", "has no log that can be captured"),
    (READ, READ.replace("db", "lake"), "odibi.yaml:12", "is no database"),
    (READ, READ[:-1] + ", query: SELECT 1}", "odibi.yaml:12", "has no meaning for `format: cdc`"),
    (READ, READ[:-1] + ", incremental: {mode: files}}", "odibi.yaml:12", "has no meaning for `format: cdc`"),
    ("format: cdc", "format: sql, table: a", "odibi.yaml:12", "is for `format: cdc`"),
    ("path: changes}", "path: changes, mode: overwrite}", "odibi.yaml:13", "would lose changes"),
    ("path: changes}", "path: changes, partition_by: [lsn]}", "odibi.yaml:13", "is partitioned by `table`"),
    (READ, READ + "\n    transform: {sql: SELECT 1}", "odibi.yaml:13", "is nothing for a node that captures a log"),
    ("changes: changes", "changes: chnges", "odibi.yaml:15", "did you mean `changes`"),
    ("changes: changes", "changes: orders", "odibi.yaml:15", "cycle"),
    (APPLY, APPLY + "\n    transform: {sql: SELECT 1}", "odibi.yaml:16", "is nothing for a node that applies a log"),
    (APPLY, APPLY + "\n    inputs: {other: changes}", "odibi.yaml:16", "applies a log"),
    ("path: orders}", "path: orders, mode: append}", "odibi.yaml:16", "leave `mode` out, it is `upsert`"),
    ("slot: odi_shop", "slot: Odi-Shop", "odibi.yaml:3", "is not the name of a slot"),
    ("slot: odi_shop, ", "", "odibi.yaml:3", "needs `slot`"),
    ("slot: odi_shop", "slot: odi_shop, server_id: 7", "odibi.yaml:3", "is nothing for `type: postgres`"),
    ("{type: mssql, ", "{type: mysql, log: {slot: odi_shop}, ", "odibi.yaml:5", "is nothing for `type: mysql`"),
    ("{type: mssql, ", "{type: mssql, log: {server_id: 7}, ", "odibi.yaml:5", "is nothing for `type: mssql`"),
    ("{type: mssql, ", "{type: mysql, log: {server_id: 0}, ", "odibi.yaml:5", "greater than or equal to 1"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "where", "what"), WRONG, ids=[f"{wrong[:40]}-{what}" for _, wrong, _, what in WRONG]
)
def test_a_mistake_has_its_place(tmp_path: Path, right: str, wrong: str, where: str, what: str) -> None:
    assert right in PROJECT
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, PROJECT.replace(right, wrong, 1))
    assert what in str(caught.value), str(caught.value)
    assert where in str(caught.value), str(caught.value)


SEVERAL = PROJECT.replace("tables: [public.orders]", 'tables: [public.orders, "public.Order Items", b.orders]').replace(
    "name: orders\n    apply: {changes: changes, table: public.orders}\n    write: {connection: lake, path: orders}",
    'name: "{schema}_{table}"\n    apply: {changes: changes, tables: ["public.*", b.orders]}\n'
    '    write: {connection: lake, path: "shop/{schema}/{table}"}\n'
    "  - name: last\n    inputs: [public_orders]\n    write: {connection: lake, path: last}",
)


def test_a_node_of_several_tables_is_a_node_for_each(tmp_path: Path) -> None:
    nodes = {str(key): node for key, node in load(tmp_path, SEVERAL).graph.nodes.items()}
    assert list(nodes) == ["p.changes", "p.public_orders", "p.public_Order_Items", "p.b_orders", "p.last"]
    items = nodes["p.public_Order_Items"]
    assert items.apply is not None
    assert (items.apply.table, items.write.path, items.write.mode) == (
        "public.Order Items",
        "shop/public/Order_Items",
        "upsert",
    )


def test_a_pattern_is_one_over_the_tables_of_the_capture_in_its_own_pipeline(tmp_path: Path) -> None:
    other = SEVERAL.partition("pipelines:\n")[2].replace("pipeline: p", "pipeline: q").replace("public.", "other.")
    other = (
        other.replace("path: ", "path: q").replace('path: q"', 'path: "q').replace("[public_orders]", "[other_orders]")
    )
    nodes = load(tmp_path, SEVERAL + other.replace("other.*", "*")).graph.nodes
    assert [key.node for key in nodes if key.pipeline == "q"][1:4] == ["other_orders", "other_Order_Items", "b_orders"]


def test_tables_that_are_left_out_get_no_node_and_no_asset(tmp_path: Path) -> None:
    entries = "[public.orders, public.audit_1, public.audit_2, public.raw]"
    text = SEVERAL.replace('[public.orders, "public.Order Items", b.orders]', f'{entries[:-1]}, "!public.audit_*"]')
    text = text.replace('tables: ["public.*", b.orders]', 'tables: ["public.*", "!*.raw"]')
    graph = load(tmp_path, text).graph
    assert [key.node for key in graph.nodes] == ["changes", "public_orders", "last"]
    read = next(iter(graph.nodes.values())).read
    assert read is not None
    assert list(read.places.values()) == ["public.orders", "public.raw"]


WRONG_OF_SEVERAL = [
    ('name: "{schema}_{table}"', 'name: orders  # "{table}"', "odibi.yaml:14", "write `{table}` in it"),
    ('"public.*", b.orders', '"private.*"', "odibi.yaml:15", "is none of the tables that `changes` names"),
    (
        "read: {connection: db, format: cdc, tables: [",
        'read: {connection: db, format: cdc, tables: ["c.*", ',
        "odibi.yaml:15",
        "list the tables",
    ),
    ('"{schema}_{table}"', '"{table}"', "odibi.yaml:14", "orders"),
    ("[public_orders]", "[public_order]", "odibi.yaml:18", "did you mean `public_orders`"),
    ("path: last", "path: last, mode: no", "odibi.yaml:19", "mode"),
    ('"shop/{schema}/{table}"', '"shop/{table}"', "odibi.yaml:16", "orders"),
    ('tables: ["public.*", b.orders]', 'table: b.orders, tables: ["public.*"]', "odibi.yaml:15", "beside `table`"),
    ('tables: ["public.*", b.orders]', "tables: b.orders", "odibi.yaml:15", "list"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "where", "what"), WRONG_OF_SEVERAL, ids=[what for *_, what in WRONG_OF_SEVERAL]
)
def test_a_mistake_of_several_tables_has_its_place(
    tmp_path: Path, right: str, wrong: str, where: str, what: str
) -> None:
    assert right in SEVERAL
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, SEVERAL.replace(right, wrong, 1))
    assert what in str(caught.value), str(caught.value)
    assert where in str(caught.value), str(caught.value)
