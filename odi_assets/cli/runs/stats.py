"""``odi runs stats``: how often each node succeeds, and how long it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from odi_assets.cli.runs.filters import NodeFilter, PipelineOption, SinceOption, chosen_runs
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, moment, note
from odi_assets.nodes.result import REWIND

if TYPE_CHECKING:
    from odi_assets.state.records import RunRecord

_COLUMNS = (
    Column("node", lambda row: f"{row['pipeline']}.{row['node']}"),
    Column("runs", lambda row: row["runs"], "right"),
    Column("succeeded", lambda row: f"{row['success_rate']:.0%}" if row["success_rate"] is not None else "", "right"),
    Column("no data", lambda row: row["no_data"], "right"),
    Column("failed", lambda row: row["failed"], "right"),
    Column("rows", lambda row: row["rows"], "right", spare=True),
    Column("median s", lambda row: _seconds(row["median_seconds"]), "right"),
    Column("95 % s", lambda row: _seconds(row["p95_seconds"]), "right", spare=True),
    Column("last", lambda row: row["last_status"]),
    Column("ended (UTC)", lambda row: row["last_ended"], spare=True),
)
_FAILED = ("FAILURE", "LOST")


def stats(
    settings: Settings,
    pipeline: PipelineOption = None,
    node: NodeFilter = None,
    since: SinceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Success rates and durations of each node. Nodes that a run skipped, cancelled ones and rewinds do not count."""
    rows = statistics_of(chosen_runs(settings.project(), pipeline, node, None, since))
    if as_json:
        data_json(rows)
    elif rows:
        data_table(_COLUMNS, rows)
    else:
        note("Nothing has run yet.")


def statistics_of(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Figures of each node that ``records``, newest first, hold; in order of their names."""
    by_node: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.trigger != REWIND:
            by_node[record.pipeline_name, record.node_name].append(record)
    return [_figures(*key, by_node[key]) for key in sorted(by_node)]


def _figures(pipeline: str, node: str, records: Sequence[RunRecord]) -> dict[str, Any]:
    ran = [record for record in records if record.status.succeeded or record.status.value in _FAILED]
    good = [record for record in ran if record.status.succeeded]
    seconds = [record.duration_ms / 1000 for record in good]
    return {
        "pipeline": pipeline,
        "node": node,
        "runs": len(ran),
        "success_rate": len(good) / len(ran) if ran else None,
        "no_data": sum(record.status.value == "NO_DATA" for record in good),
        "failed": len(ran) - len(good),
        "rows": sum(record.rows_processed or 0 for record in good),
        "median_seconds": round(median(seconds), 3) if seconds else None,
        "p95_seconds": round(_p95(seconds), 3) if seconds else None,
        "last_status": records[0].status.value,
        "last_ended": moment(records[0].timestamp),
    }


def _p95(seconds: Sequence[float]) -> float:
    # "inclusive": of few runs, the other way gives more than the longest took.
    return quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
