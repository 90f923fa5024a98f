"""Asset checks on the rows that a stream gave up: those that came too late, and those a join never matched."""

from __future__ import annotations

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import Names
from odi_assets.state.delta.table import Columns, sql
from odi_assets.util.words import counted

_COLUMNS = Columns({"input": "string", "batch": "long", "query": "string"})
_TEXTS = {
    "late_rows": "No row came below the watermark in the last run.",
    "unmatched_rows": "No row left the join's state without a match in the last run.",
}


def kept_rows_checks(project: Project, key: NodeKey) -> list[dg.AssetChecksDefinition]:
    """A check for each table of kept rows of a stream node: whether its last run gave up rows. It warns."""
    node = project.graph.node(key)
    stream = node.stream
    if stream is None:
        return []
    kept = {name: path for name, path in stream.paths.items() if name in _TEXTS}
    return [_check(project, key, name, node.write.connection, path) for name, path in kept.items()]


def _check(project: Project, key: NodeKey, name: str, connection: str, path: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=Names.of(project).asset(key), name=name, description=_TEXTS[name])
    def check() -> dg.AssetCheckResult:
        table = TableHandle.open(project.location(connection, path))
        records = project.open_batches().of_node(str(key))
        found: list[dict[str, object]] = []
        if table.exists and records:
            last = records[-1]
            first = min(one.batch for one in records if (one.query, one.run_id) == (last.query, last.run_id))
            where = f"query = {sql(last.query)} AND batch >= {first}"
            with table.calls("reading kept rows"):
                found = _COLUMNS.rows(table.table.scan(columns=list(_COLUMNS.kinds), predicate=where))
        by_input = {str(row["input"]): 0 for row in found}
        for row in found:
            by_input[str(row["input"])] += 1
        told = ", ".join(f"{counted(rows, 'row')} of {name}" for name, rows in sorted(by_input.items()))
        return dg.AssetCheckResult(
            passed=not found,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{told}: see {table.location.uri}" if found else _TEXTS[name],
            metadata={"rows": len(found), "rows_in_all": table.rows or 0, "dagster/uri": table.location.uri},
        )

    return check
