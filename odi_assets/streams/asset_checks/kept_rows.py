"""Asset checks on the rows that a stream gave up: those that came too late, and those a join never matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.state.delta.system_columns import Columns
from odi_assets.state.delta.table import sql
from odi_assets.streams.planning.kept_rows import KeptMark, batches_text, kept_marks
from odi_assets.streams.planning.marks import stream_marks
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
    @dg.asset_check(asset=DagsterNames.of(project).asset(key), name=name, description=_TEXTS[name])
    def check() -> dg.AssetCheckResult:
        table = TableHandle.open(project.location(connection, path))
        mark, records = _mark(project, key, name), project.open_batches().of_node(str(key))
        kept_rows: list[dict[str, object]] = []
        if table.exists and records:
            last = records[-1]
            first = min(
                record.batch for record in records if (record.query, record.run_id) == (last.query, last.run_id)
            )
            where = f"query = {sql(last.query)} AND batch >= {first}"
            with table.reads("reading kept rows"):
                kept_rows = _COLUMNS.rows(table.table.scan(columns=list(_COLUMNS.kinds), predicate=where))
        behind = f"{'; '.join(mark.apart)}: the node's next run does it" if mark and mark.has_work else ""
        gaps = f"the rows of {batches_text(mark.lost)} are not known" if mark and mark.lost else ""
        text = f"{_counts(kept_rows)}: see {table.location.uri}" if kept_rows else "" if behind else _TEXTS[name]
        return dg.AssetCheckResult(
            passed=not (kept_rows or behind),
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(filter(None, [text, behind, gaps])),
            metadata={"rows": len(kept_rows), "rows_in_all": table.rows or 0, "dagster/uri": table.location.uri},
        )

    return check


def _mark(project: Project, key: NodeKey, which: str) -> KeptMark | None:
    node = Node.of(project, key)
    target = TableHandle.open(node.target.location)
    marks = kept_marks(node, target, stream_marks(node, target))
    return next((mark for mark in marks if mark.which == which), None)


def _counts(kept_rows: Sequence[Mapping[str, object]]) -> str:
    by_input = Counter(str(row["input"]) for row in kept_rows)
    return ", ".join(f"{counted(rows, 'row')} of {name}" for name, rows in sorted(by_input.items()))
