"""The lineage of nodes: over their tables, what their sources deliver, and what leaves rows out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.lineage.made import NotFollowed
from odi_assets.lineage.project_lineage import NEEDS_PLAN, ProjectLineage
from odi_assets.lineage.trail import followed_down, followed_up
from odi_assets.nodes.project import Project

HEAD = """\
project: shop
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
  db: {type: postgres, host: h, database: d, log: {slot: odi_shop, create: true}}
pipelines:
- pipeline: p
  nodes:
"""
CSV = "read: {connection: landing, format: csv, path: in, schema: 'id INT, v INT, at TIMESTAMP'}"


def lineage_of(folder: Path, *nodes: str) -> ProjectLineage:
    lines = [f"  - {{name: {name}, {text}, write: {{connection: lake, path: {name}{write}}}}}"
             for name, text, write in (one.split(" | ") for one in nodes)]  # fmt: skip
    (folder / "odibi.yaml").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return ProjectLineage(Project.load(folder / "odibi.yaml"))


def made(lineage: ProjectLineage, node: str, column: str, how: str) -> set[str]:
    found = lineage.node(lineage.project.node_named(node)).made_of(column)
    return {f"{one.owner}.{one.column}" for one in found if one.how == how}


def store(folder: Path, name: str, *columns: str) -> None:
    write_deltalake(str(folder / "lake" / name), pa.table({column: [1] for column in columns}))


def test_the_table_that_is_there_says_what_a_star_stands_for(tmp_path: Path) -> None:
    lineage = lineage_of(tmp_path, f"raw | {CSV} | ", "all | inputs: [raw], transform: {sql: SELECT * FROM raw} | ")
    store(tmp_path, "raw", "id", "v", "at", "added_by_hand")
    assert made(lineage, "all", "added_by_hand", "value") == {"p.raw.added_by_hand"}


def test_a_column_of_an_earlier_definition_is_not_followed(tmp_path: Path) -> None:
    lineage = lineage_of(tmp_path, f"raw | {CSV} | ", "one | inputs: [raw], transform: {sql: SELECT id FROM raw} | ")
    store(tmp_path, "one", "id", "old")
    assert lineage.node(lineage.project.node_named("one")).columns == ("id", "old")
    with pytest.raises(NotFollowed, match="its rows have no `old`"):
        made(lineage, "one", "old", "value")


def test_a_table_that_is_read_by_its_path_is_the_node_that_writes_it(tmp_path: Path) -> None:
    read = "read: {connection: lake, format: delta, path: raw}, transform: {sql: SELECT v FROM df}"
    assert made(lineage_of(tmp_path, f"raw | {CSV} | ", f"by_path | {read} | "), "by_path", "v", "value") == {"p.raw.v"}


def test_a_database_of_unknown_columns_is_followed_by_the_columns_that_the_query_names(tmp_path: Path) -> None:
    read = "read: {connection: db, format: sql, table: sales.orders}"
    lineage = lineage_of(
        tmp_path,
        f"named | {read}, transform: {{sql: SELECT id FROM df WHERE v > 1}} | ",
        f"whole | {read} | ",
    )
    assert made(lineage, "named", "id", "value") == {"db:sales.orders.id"}
    assert made(lineage, "named", "id", "condition") == {"db:sales.orders.v"}
    whole = lineage.project.node_named("whole")
    assert lineage.node(whole).unknown == "the columns of its source are known once it has run"
    store(tmp_path, "whole", "id", "v")
    assert made(ProjectLineage(lineage.project), "whole", "v", "value") == {"db:sales.orders.v"}


def test_what_leaves_rows_out_decides(tmp_path: Path) -> None:
    upsert = ", mode: upsert, keys: [id], delete_when: gone, only_if_newer: at"
    lineage = lineage_of(
        tmp_path,
        f"raw | {CSV} | ",
        f"latest | inputs: [raw], transform: {{sql: 'SELECT id, at, v > 3 AS gone FROM raw'}} | {upsert}",
        "checked | inputs: [raw], checks: [{expression: 'v > 1'}, {not_null: at, severity: warn}], "
        "quarantine: bad, transform: {sql: 'SELECT id, v, at FROM raw'} | ",
        "streamed | inputs: [raw], stream: {inputs: {raw: {where: 'v > 1', watermark: {column: at, delay: 1m}}}}, "
        "transform: {sql: 'SELECT id FROM raw'} | , mode: append",
    )
    latest = lineage.node(lineage.project.node_named("latest"))
    assert latest.columns == ("id", "at"), "the marker of deleted rows is not stored"
    assert made(lineage, "latest", "id", "condition") == {"p.raw.at", "p.raw.v"}
    assert made(lineage, "checked", "id", "condition") == {"p.raw.v"}
    assert made(lineage, "streamed", "id", "condition") == {"p.raw.v", "p.raw.at"}


def test_a_table_of_an_applied_log_is_of_the_database_and_of_the_log(tmp_path: Path) -> None:
    lineage = lineage_of(
        tmp_path,
        "log | read: {connection: db, format: cdc, tables: [public.orders]} | ",
        "orders | apply: {changes: log, table: public.orders} | ",
    )
    orders = lineage.project.node_named("orders")
    assert lineage.node(orders).unknown == "it has the columns of the database's table, which its first run finds"
    store(tmp_path, "orders", "id", "v")
    lineage = ProjectLineage(lineage.project)
    assert made(lineage, "orders", "v", "value") >= {"db:public.orders.v", "p.log.after"}
    assert "p.log.n" in made(lineage, "orders", "v", "condition")


def test_a_function_needs_a_plan_and_what_is_below_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("def thing(raw):\n    return raw\n", encoding="utf-8")
    lineage = lineage_of(
        tmp_path,
        f"raw | {CSV} | ",
        "made | inputs: [raw], transform: {function: 'some:thing'} | ",
        "below | inputs: [made], transform: {sql: SELECT * FROM made} | ",
        "named | inputs: [made], transform: {sql: SELECT x FROM made} | ",
    )
    project = lineage.project
    assert lineage.node(project.node_named("made")).unknown == NEEDS_PLAN
    assert lineage.node(project.node_named("below")).columns is None
    assert made(lineage, "named", "x", "value") == {"p.made.x"}


def test_a_long_chain_of_nodes_without_tables_is_followed(tmp_path: Path) -> None:
    nodes = [f"n0 | {CSV} | "]
    nodes += [f"n{n} | inputs: [n{n - 1}], transform: {{sql: SELECT * FROM n{n - 1}}} | " for n in range(1, 400)]
    assert made(lineage_of(tmp_path, *nodes), "n399", "v", "value") == {"p.n398.v"}


def test_the_column_in_which_a_quarantine_looks_values_up_decides(tmp_path: Path) -> None:
    check = "checks: [{references: {column: v, node: others, key: id}}]"
    lineage = lineage_of(
        tmp_path,
        f"others | {CSV} | ",
        f"checked | {CSV}, {check}, quarantine: bad | ",
        f"refused | {CSV}, {check} | ",
    )
    assert made(lineage, "checked", "at", "condition") == {"landing:in.v", "p.others.id"}
    assert made(lineage, "refused", "at", "condition") == set(), "a check that stops the run leaves no row out"
    below = followed_down(lineage, lineage.project.node_named("others"), "id")
    assert [(str(one.owner), one.column, one.how) for one in below.entries] == [
        ("p.checked", "id", "condition"), ("p.checked", "v", "condition"), ("p.checked", "at", "condition"),
    ]  # fmt: skip


def test_a_node_that_gives_a_column_twice_is_unknown_and_the_others_are_followed(tmp_path: Path) -> None:
    lineage = lineage_of(
        tmp_path,
        f"raw | {CSV} | ",
        "twice | inputs: [raw], transform: {sql: 'SELECT a.id, b.* FROM raw a JOIN raw b ON a.id = b.v'} | ",
        "right | inputs: [raw], transform: {sql: SELECT v AS w FROM raw} | ",
        "below | inputs: [twice], transform: {sql: SELECT v FROM twice} | ",
    )
    twice = lineage.node(lineage.project.node_named("twice"))
    assert twice.columns == ("id", "v", "at")
    assert (twice.unknown, twice.fix) == (
        "its rows have `id` more than once, and no table takes that", "give the columns `id` names of their own",
    )  # fmt: skip
    down = followed_down(lineage, lineage.project.node_named("raw"), "v")
    assert [(str(one.owner), one.column, one.how) for one in down.entries] == [
        ("p.twice", "", "unknown"), ("p.right", "w", "value"),
    ]  # fmt: skip
    assert made(lineage, "below", "v", "value") == {"p.twice.v"}


def test_a_column_that_a_source_declares_counts_before_the_run_that_stores_it(tmp_path: Path) -> None:
    lineage = lineage_of(
        tmp_path,
        f"raw | {CSV} | ",
        "all | inputs: [raw], transform: {sql: SELECT * FROM raw} | ",
        "last | inputs: [all], transform: {sql: SELECT * FROM all} | ",
    )
    for name in ("raw", "all", "last"):
        store(tmp_path, name, "id", "v")
    assert made(lineage, "last", "at", "value") == {"p.all.at"}
    below = followed_down(ProjectLineage(lineage.project), lineage.project.node_named("raw"), "at")
    assert [(str(one.owner), one.column, one.how) for one in below.entries] == [
        ("p.all", "at", "value"), ("p.last", "at", "value"),
    ]  # fmt: skip


def test_a_quarantine_that_is_read_by_its_path_is_of_its_node(tmp_path: Path) -> None:
    lineage = lineage_of(
        tmp_path,
        f"checked | {CSV}, checks: [{{expression: 'v > 1'}}], quarantine: bad | ",
        "again | read: {connection: lake, format: delta, path: bad}, transform: {sql: SELECT * FROM df} | ",
    )
    assert lineage.node(lineage.project.node_named("again")).columns == ("id", "v", "at", FAILED_CHECKS)
    assert made(lineage, "again", "id", "value") == {"p.checked.id"}
    assert made(lineage, "checked", FAILED_CHECKS, "condition") == {"landing:in.v"}
    below = followed_down(lineage, lineage.project.node_named("checked"), "v")
    assert [(str(one.owner), one.column, one.how) for one in below.entries] == [("p.again", "v", "value")]


def test_nodes_that_read_each_others_rows_by_path_are_followed(tmp_path: Path) -> None:
    bad = "read: {connection: lake, format: delta, path: bad}"
    back = "transform: {sql: 'SELECT id, v FROM mended UNION ALL SELECT id, v FROM more'}"
    lineage = lineage_of(
        tmp_path,
        f"more | {CSV} | ",
        f"mended | {bad}, transform: {{sql: 'SELECT id, v + 1 AS v FROM df'}} | ",
        f"checked | inputs: [mended, more], {back}, checks: [{{expression: 'v > 1'}}], quarantine: bad | ",
    )
    assert made(lineage, "checked", "v", "value") == {"p.mended.v", "p.more.v"}
    assert made(lineage, "mended", "v", "value") == {"p.checked.v"}
    assert followed_up(lineage, lineage.project.node_named("mended"), "v").is_whole
