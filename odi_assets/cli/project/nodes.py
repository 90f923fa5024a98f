"""``odi ls``: the nodes of the project, and ``odi graph``: how they hang together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from odi_assets.cli.terminal.options import JsonOption, PipelineArgument, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project

import typer

from odi_assets.cli.terminal.selection import selected_nodes

_COLUMNS = (
    Column("pipeline", lambda row: row["pipeline"]),
    Column("node", lambda row: row["node"]),
    Column("reads", lambda row: ", ".join(row["reads"]), wrap=True),
    Column("incremental", lambda row: row["incremental"], optional=True),
    Column("mode", lambda row: row["mode"]),
    Column("table", lambda row: row["uri"], spare=True),
    Column("tags", lambda row: ", ".join(row["tags"]), spare=True, optional=True),
)


def ls(settings: Settings, pipeline: PipelineArgument = None, as_json: JsonOption = False) -> None:
    """List the nodes, in the order they run: what they read, how they are written, and where their tables are."""
    project = settings.project()
    rows = [_row(project, key) for key in selected_nodes(project, pipeline, None)]
    if as_json:
        data_json(rows)
    elif rows:
        data_table(_COLUMNS, rows)
    else:
        note("The project file has no pipelines.")


def _row(project: Project, key: NodeKey) -> dict[str, Any]:
    node = project.graph.node(key)
    reads = [f"{read.connection}:{read.shown}" for read in node.reads.values()]
    followed = [
        *(increment.mode for increment in node.increments.values()),
        *(["stream"] if node.stream is not None else []),
        *(["cursor document"] if node.cursor is not None else []),
    ]
    return {
        "pipeline": key.pipeline,
        "node": key.node,
        "reads": [*reads, *(_name(other, key) for other in project.graph.upstream(key))],
        "incremental": ", ".join(dict.fromkeys(followed)),
        "mode": node.write.mode.value,
        "uri": project.target(key).uri,
        "tags": list(dict.fromkeys([*project.pipelines[key.pipeline].tags, *node.tags])),
        "description": node.description,
    }


def _name(other: NodeKey, beside: NodeKey) -> str:
    return other.node if other.pipeline == beside.pipeline else str(other)


def graph(
    settings: Settings,
    pipeline: PipelineArgument = None,
    format_: Annotated[
        Literal["text", "mermaid", "dot"], typer.Option("--format", "-f", help="How to print it.")
    ] = "text",
    as_json: JsonOption = False,
) -> None:
    """Print which nodes need which: as text, for Mermaid, or for Graphviz."""
    project = settings.project()
    keys = selected_nodes(project, pipeline, None)
    edges = [(above, key) for key in keys for above in project.graph.upstream(key)]
    if as_json:
        names = [{"from": str(above), "to": str(below)} for above, below in edges]
        data_json({"nodes": [str(key) for key in keys], "edges": names})
    elif format_ == "text":
        data("\n".join(_tree(project, keys)))
    elif format_ == "mermaid":
        ids = {key: f"{key.pipeline}__{key.node}" for key in (*keys, *(above for above, _ in edges))}
        boxes = [f'  {box_id}["{key}"]' for key, box_id in ids.items()]
        data("\n".join(["flowchart LR", *boxes, *(f"  {ids[above]} --> {ids[below]}" for above, below in edges)]))
    else:
        lines = [f'  "{above}" -> "{below}";' for above, below in edges]
        data("\n".join(["digraph nodes {", "  rankdir=LR;", *(f'  "{key}";' for key in keys), *lines, "}"]))


def _tree(project: Project, keys: Sequence[NodeKey]) -> list[str]:
    """A tree below each node that needs no other of ``keys``. What stands there already is not unfolded again."""
    shown: set[NodeKey] = set()
    chosen = set(keys)
    lines: list[str] = []

    def below(key: NodeKey, lead: str, mark: str) -> None:
        again = key in shown
        inside = [other for other in project.graph.downstream(key) if other in chosen]
        lines.append(f"{lead}{mark}{key}{' (above)' if again and inside else ''}")
        shown.add(key)
        if again:
            return
        lead += "" if not mark else "   " if mark.startswith("└") else "│  "
        for index, other in enumerate(inside):
            below(other, lead, "└─ " if index == len(inside) - 1 else "├─ ")

    for key in keys:
        if not chosen.intersection(project.graph.upstream(key)):
            below(key, "", "")
    return lines
