"""What Dagster shows of a node: metadata of its definition and of each materialization. Never a secret."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import NodeConfig
from odi_assets.nodes.history.freshness import last_gain
from odi_assets.nodes.kinds import kind_of
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import LAG, PHASES, ROWS_LEFT, NodeResult, phase_metric, rows_left
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets.util.spark_sql import parsed

STORAGE_KIND = "delta"
NO_HWM = "none"
UP_TO_DATE = "up_to_date"
"""The asset check of each node. It passes when a run has taken in what was new, and when there was nothing new."""


_OF_STREAMS = (
    "batches",
    "watermark",
    "rows_dropped",
    "rows_removed",
    "state_rows",
    "state_bytes",
    "query",
    "checkpoint",
)
"""Metrics of runs of stream nodes alone."""


_SECONDS = tuple(map(phase_metric, PHASES))
_OF_RUNS = {"rows_read", "rows_updated", "seconds", *_SECONDS, *ROWS_LEFT, *LAG}
"""Figures of a run that its partitions do not share."""


def definition_attributes(project: Project, key: NodeKey) -> dict[str, Any]:
    """What Dagster shows of a node's asset: kinds, owner, tags, description and metadata."""
    node = project.graph.node(key)
    pipeline = project.pipelines[key.pipeline]
    owner = node.owner or pipeline.owner or project.config.owner
    return {
        "kinds": {"spark", "delta", *(read.format for read in node.reads.values())},
        "owners": [owner] if owner else [],
        "tags": dict.fromkeys([*pipeline.tags, *node.tags], ""),
        "description": description(project, key),
        "metadata": definition_metadata(project, key),
        "freshness_policy": _freshness_policy(node),
    }


def _freshness_policy(node: NodeConfig) -> dg.FreshnessPolicy | None:
    wanted = node.freshness
    return None if wanted is None else dg.FreshnessPolicy.time_window(wanted.within, wanted.warn_after)


def description(project: Project, key: NodeKey) -> str:
    """The node's own description, then how it makes its rows, as Markdown."""
    node = project.graph.node(key)
    parts = [node.description or f"Node `{key.node}` of pipeline `{key.pipeline}`."]
    if node.transform is not None and node.transform.function is not None:
        parts.append(f"Computed by the function `{node.transform.function}`.")
    elif node.transform is not None:
        parts.append(f"```sql\n{node.transform.sql_text(project.root).strip()}\n```")
    return "\n\n".join(parts)


def definition_metadata(project: Project, key: NodeKey) -> dict[str, Any]:
    """Where the node's table is, how it is written, and its columns where the project file declares them."""
    node = project.graph.node(key)
    metadata: dict[str, Any] = {
        "dagster/uri": project.target(key).uri,
        "dagster/table_name": str(key),
        "dagster/storage_kind": STORAGE_KIND,
        "write_mode": node.write.mode.value,
    }
    if node.apply is not None:
        metadata["applies"] = f"{node.apply.table} of {node.apply.changes}"
    elif node.write.keys:
        metadata["keys"] = ", ".join(node.write.keys)
    if increments := _increments(node):
        metadata["incremental"] = increments
    metadata |= kind_of(node).metadata(node)
    if declared := _declared_columns(node):
        metadata["dagster/column_schema"] = dg.TableSchema.from_name_type_dict(dict(declared))
    return metadata | _defined_at(project, key)


def _defined_at(project: Project, key: NodeKey) -> dict[str, Any]:
    """Where the node is defined, as Dagster links to it: a line of the project file, or of the decorated function."""
    location = project.places.get((key.pipeline, key.node))
    if location is None:
        return {}
    with warnings.catch_warnings():
        # Dagster calls code references beta; the versions it is pinned to have them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        file, line = location
        reference = dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=f"{file.name}:{line}")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def materialization_metadata(result: NodeResult) -> dict[str, Any]:
    """What one commit of a node did."""
    metadata: dict[str, Any] = {
        "dagster/uri": result.uri,
        "dagster/table_name": str(result.key),
        "dagster/storage_kind": STORAGE_KIND,
        "hwm_before": str(result.hwm_before or NO_HWM),
        "hwm_after": str(result.hwm_after or NO_HWM),
        "increment": result.increment,
        "seconds": round(result.seconds, 3),
        "dagster/row_count": result.rows_total,
        "rows_read": result.rows_read,
        "rows_written": result.rows_written,
        "rows_updated": result.metrics.get("rows_updated"),
        "delta_version": result.table_version,
        **{name: result.metrics.get(name) for name in (*_SECONDS, *ROWS_LEFT, *LAG, *_OF_STREAMS)},
    }
    if result.columns:
        metadata["dagster/column_schema"] = dg.TableSchema.from_name_type_dict(dict(result.columns))
    return {name: value for name, value in metadata.items() if value is not None}


def versions_read(project: Project, result: NodeResult) -> dict[str, dg.MetadataValue]:
    """Which version of each table of the project a commit was made of, with links to their assets."""
    lines = []
    for name, input_config in project.graph.node(result.key).inputs.items():
        if not input_config.node:
            continue
        at, above = (result.metrics.get("inputs") or {}).get(name), project.graph.resolve(result.key, input_config.node)
        if isinstance(at, Mapping) and at.get("version") is not None:
            path = "/".join(quote(part, safe="") for part in DagsterNames.of(project).asset(above).path)
            lines.append(f"| [{above}](/assets/{path}?view=events) | {at['version']} |")
    if not lines:
        return {}
    return {"versions_read": dg.MetadataValue.md("\n".join(["| table | version |", "|---|---|", *lines]))}


def partition_metadata(result: NodeResult) -> dict[str, Any]:
    """What Dagster shows of a commit with a partition that it wrote: without the figures of the run as a whole."""
    return {name: value for name, value in materialization_metadata(result).items() if name not in _OF_RUNS}


def observation_metadata(result: NodeResult) -> dict[str, Any]:
    """What Dagster shows of a run that committed nothing."""
    metadata = {"status": result.status.value, **materialization_metadata(result)}
    # These describe a commit, and there was none.
    return {name: value for name, value in metadata.items() if name not in {"rows_written", "rows_updated"}}


def check_metadata(project: Project, result: NodeResult) -> dict[str, Any]:
    """What the check of a node shows after a run, whether there was anything new or not."""
    now = datetime.now(UTC)
    gained = now if result.status is RunStatus.SUCCESS else last_gain(project, result.key)
    metadata: dict[str, Any] = {
        "status": result.status.value,
        "last_checked": dg.MetadataValue.timestamp(now),
        "last_new_rows": dg.MetadataValue.timestamp(gained) if gained else None,
        "hwm": str(result.hwm_after or NO_HWM),
        "increment": result.increment or None,
        "rows_left": "; ".join(rows_left(result.metrics)) or None,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def last_metadata(project: Project, key: NodeKey, last: RunRecord | None) -> dict[str, Any]:
    """What the check of a node shows in a run that does not run the node: what the ``last`` one has found."""
    if last is None:
        return {}
    gained = last_gain(project, key)
    metadata: dict[str, Any] = {
        "status": last.status.value,
        "last_checked": dg.MetadataValue.timestamp(last.timestamp),
        "last_new_rows": dg.MetadataValue.timestamp(gained) if gained else None,
        "hwm": str(NodeMark.of_value(last.hwm_after) or NO_HWM),
        "rows_left": "; ".join(rows_left(last.metrics)) or None,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _increments(node: NodeConfig) -> str:
    reads = {"read": node.read.incremental} if node.read else {}
    inputs = {name: item.incremental for name, item in node.inputs.items()}
    return ", ".join(f"{name}: {increment.mode}" for name, increment in {**reads, **inputs}.items() if increment)


def _declared_columns(node: NodeConfig) -> Sequence[tuple[str, str]]:
    """The columns of a node that stores what it reads, if the project file declares them."""
    if node.read is None or node.read.declared is None or node.transform is not None or node.inputs:
        return ()
    return columns_of(node.read.declared)


@lru_cache(maxsize=1024)
def columns_of(ddl: str) -> Sequence[tuple[str, str]]:
    """The columns that a DDL text names, each with its type; none if only Spark can read the text."""
    table = parsed(f"CREATE TABLE t ({ddl})")
    if table is None:
        # Spark may know a type that sqlglot does not; the schema is then shown once the table exists.
        return ()
    return [(column.name, column.kind.sql("spark").lower()) for column in table.this.expressions]
