"""Column lineage of many SQL nodes, against sqlglot's own ``lineage`` of the same queries."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Row, in_child

NODES, PEER_NODES = 200, 20
MOST_MS, MOST_CACHED_MS = 10.0, 1.0
_CHILD = "benchmarks.dagster.process"
_COLUMNS = ("id", "customer", "shop", "amount", "fee", "state", "note", "at")


def lineage(options: Options) -> list[Row]:
    """CPU milliseconds a node, for all columns of a node: of its SQL over the columns of its inputs."""
    with tempfile.TemporaryDirectory() as folder:
        options.say(f"{NODES} SQL nodes and their tables")
        in_child(_CHILD, "make-lineage", folder)
        found = in_child(_CHILD, "lineage", folder)
    cold, cached, whole, peer, columns = (found[name] for name in ("cold", "cached", "whole", "peer", "columns"))
    assert columns == NODES * len(_COLUMNS), columns
    bar, ratio = f"<= {MOST_MS:g} ms", cold / peer
    against = f"sqlglot.lineage, {PEER_NODES} nodes"
    return [
        Row(f"lineage of {NODES} SQL nodes, CPU ms a node", cold, peer, against, ratio, bar, cold <= MOST_MS),
        Row(
            "the same again, by content", cached, None, "", None, f"<= {MOST_CACHED_MS:g} ms", cached <= MOST_CACHED_MS
        ),
        Row("the same, with opening their tables", whole, None, "", None, "is said", None),
    ]


def make(root: str) -> dict[str, Any]:
    """Write a project of nodes, each with a query of its own over the tables of two before it, and all tables."""
    import pyarrow as pa
    from deltalake import write_deltalake

    folder = Path(root)
    lines = [
        "project: big\nconnections: {lake: {type: local, base_path: lake}, landing: {type: local, base_path: landing}}",
        "pipelines:\n- pipeline: p\n  nodes:",
    ]
    types = {"id": "BIGINT", "amount": "DOUBLE", "fee": "DOUBLE", "at": "TIMESTAMP"}
    schema = ", ".join(f"{name} {types.get(name, 'STRING')}" for name in _COLUMNS)
    for number in range(NODES):
        write = f"write: {{connection: lake, path: n{number}}}"
        if number < 2:
            read = f"read: {{connection: landing, format: csv, path: n{number}, schema: '{schema}'}}"
            lines.append(f"  - {{name: n{number}, {read}, transform: {{sql: SELECT * FROM df}}, {write}}}")
        else:
            inputs = f"inputs: {{orders: n{number - 1}, others: n{number - 2}}}"
            lines.append(f'  - {{name: n{number}, {inputs}, transform: {{sql: "{query(number)}"}}, {write}}}')
        empty = pa.table({name: pa.array([], pa.string()) for name in _COLUMNS})
        write_deltalake(str(folder / "lake" / f"n{number}"), empty)
    (folder / "odibi.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {}


def query(number: int) -> str:
    """A query with what queries of warehouses have: names of WITH, a window, a join, a subquery, an aggregate."""
    return (
        "WITH ranked AS (SELECT *, row_number() OVER (PARTITION BY customer ORDER BY at DESC) AS place FROM orders), "
        f"last AS (SELECT * EXCEPT (place) FROM ranked WHERE place <= {number} AND state <> 'test'), "
        "totals AS (SELECT customer, sum(amount) AS total, max(fee) AS fee FROM others GROUP BY customer) "
        "SELECT last.id, last.customer, upper(last.shop) AS shop, "
        "CASE WHEN totals.total > 0 THEN last.amount / totals.total ELSE 0 END AS amount, totals.fee AS fee, "
        "coalesce(last.state, 'none') AS state, "
        "(SELECT max(o.note) FROM others o WHERE o.customer = last.customer) AS note, last.at "
        "FROM last LEFT JOIN totals ON totals.customer = last.customer "
        f"WHERE last.amount > {number} AND last.shop IN (SELECT shop FROM others)"
    )


def measure(root: str) -> dict[str, Any]:
    """CPU milliseconds a node; and those of sqlglot's own, which tells of values alone."""
    from sqlglot.lineage import lineage as of_column

    from odi_assets.lineage.project_lineage import ProjectLineage
    from odi_assets.lineage.query_rows import query_rows
    from odi_assets.nodes.project import Project

    views = (("orders", _COLUMNS), ("others", _COLUMNS))
    queries = [query(number) for number in range(1000, 1000 + NODES)]
    query_rows(query(0), views)

    def read_all() -> int:
        return sum(len(query_rows(sql, views).columns) for sql in queries)

    columns, cold = _timed(read_all)
    _, cached = _timed(read_all)
    project = Project.load(Path(root) / "odibi.yaml")
    found = ProjectLineage(project)
    _, whole = _timed(lambda: [found.node(key) for key in project.graph.nodes])
    schema = {name: dict.fromkeys(_COLUMNS, "string") for name, _ in views}

    def of_peer() -> None:
        for sql in queries[:PEER_NODES]:
            for column in _COLUMNS:
                of_column(column, sql, schema=schema, dialect="spark")

    _, peer = _timed(of_peer)
    return {"cold": cold, "cached": cached, "whole": whole, "peer": peer * NODES / PEER_NODES, "columns": columns}


def _timed(work: Any) -> tuple[Any, float]:
    began = time.process_time()
    found = work()
    return found, (time.process_time() - began) * 1000 / NODES
