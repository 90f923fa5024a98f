"""``odi lineage``: what columns are made of, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, note, stdout_kept_for_data
from odi_assets.config.diagnostics.mistakes import closest
from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, TableError
from odi_assets.lineage.node_lineage import NodeLineage
from odi_assets.lineage.project_lineage import ProjectLineage
from odi_assets.lineage.trail import NOT_RUN, Place, Trail, TrailEntry, followed_down, followed_up

if TYPE_CHECKING:
    from odi_assets.lineage.planned_frames import PlannedFrames
    from odi_assets.nodes.project import Project
    from odi_assets.spark.session import SessionHandle

_ENTRIES = (
    Column("from", lambda entry: str(entry.owner), wrap=True),
    Column("column", lambda entry: entry.column or "(all)", wrap=True),
    Column("how", lambda entry: entry.how),
    Column("why", lambda entry: entry.why, wrap=True, optional=True),
)


def lineage(
    settings: Settings,
    place: Annotated[
        str,
        typer.Argument(metavar="NODE[.COLUMN]", help="PIPELINE.NODE, or NODE if one pipeline has it; then a column."),
    ],
    up: Annotated[bool, typer.Option("--up", help="What it is made of, up to the sources: the default.")] = False,
    down: Annotated[bool, typer.Option("--down", help="What is made of it, in all nodes below.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a graph for Mermaid.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a column is made of, up to what sources deliver, or what is made of it.

    `value`: its value goes in. `condition`: it decides, in a filter, a join, a group, an order or a CASE. Of a node
    without a column: of each of its columns. Functions are planned by a Spark of this process, over empty rows.
    Exit code 1 if something on the way is not known.
    """
    if up and down:
        raise ConfigError("--up and --down are two questions", fix="give one of them")
    if mermaid and as_json:
        raise ConfigError("--json and --mermaid are two formats", fix="give one of them")
    project = settings.project()
    key, column = _named(project, place)
    with _lineage_of(project) as project_lineage:
        node = project_lineage.node(key)
        names = [_column(node, column)] if column is not None else list(node.columns or ())
        trails = {name: (followed_down if down else followed_up)(project_lineage, key, name) for name in names}
    word = "makes" if down else "made_of"
    if column is None and node.columns is None:
        raise _unknown(node, word, as_json=as_json)
    if mermaid:
        data("\n".join(_mermaid(key, trails)))
    elif as_json:
        lists = {name: [entry.to_json() for entry in trail.entries] for name, trail in trails.items()}
        data_json(lists[names[0]] if column is not None else [{"column": n, word: lists[n]} for n in names])
    elif column is not None:
        data_table(_ENTRIES, trails[names[0]].entries)
    else:
        data_table(_of_node(key, down=down), list(trails.items()))
    _conclude(key, names[0] if column is not None else None, trails, down=down)


def _of_node(key: NodeKey, *, down: bool) -> list[Column]:
    """A line for each column: the columns whose values go in, and how many decide."""

    def near(item: tuple[str, Trail]) -> str:
        own, (this, other) = (key, item[0]), (0, 1) if down else (1, 0)
        columns = [edge[other] for edge, how in item[1].edges.items() if edge[this] == own and "value" in how]
        return ", ".join(f"{owner}.{column}" for owner, column in columns)

    def ends(item: tuple[str, Trail]) -> str:
        values = [entry for entry in item[1].entries if entry.how == "value" and not isinstance(entry.owner, NodeKey)]
        return ", ".join(f"{entry.owner} {entry.column}" for entry in values)

    def decides(item: tuple[str, Trail]) -> int:
        return sum(entry.how == "condition" for entry in item[1].entries)

    def unknown(item: tuple[str, Trail]) -> str:
        return "yes" if not item[1].is_whole else ""

    return [
        Column("column", lambda item: item[0], wrap=True),
        Column("goes into" if down else "value of", near, wrap=True),
        *([] if down else [Column("delivered as", ends, wrap=True)]),
        Column("decides about" if down else "decided by", decides, "right"),
        Column("not known", unknown, optional=True),
    ]


def _named(project: Project, reference: str) -> tuple[NodeKey, str | None]:
    """The node that ``NODE[.COLUMN]`` names, and the column."""
    whole = project.find_node(reference)
    if whole is not None:
        return whole, None
    parts = reference.split(".")
    for cut in (2, 1):
        if len(parts) > cut and (key := project.find_node(".".join(parts[:cut]))) is not None:
            return key, ".".join(parts[cut:])
    names = [str(key) for key in project.graph.nodes]
    node_name, _, column = reference.rpartition(".")
    near = (
        closest(node_name, [key.node for key in project.graph.nodes]) or closest(node_name, names)
        if node_name
        else None
    )
    meant = f"{near}.{column}" if near else closest(reference, names)
    fix = f"did you mean `{meant}`?" if meant else f"there are: {', '.join(names) or 'none'}"
    raise ConfigError(f"`{reference}` is no node, nor a column of one", fix=fix, name=reference)


def _unknown(node: NodeLineage, word: str, *, as_json: bool) -> TableError:
    """What says that a node's columns are not known; who asks for JSON has a list of it first."""
    key, why = node.key, node.unknown or NOT_RUN
    if as_json:
        data_json([{"column": None, word: [TrailEntry(key, "", "unknown", why).to_json()]}])
    return TableError(
        f"{key}: what its columns are made of is not known: {why}",
        fix=node.fix or f"run it: odi run {key.pipeline} --node {key.node}",
        node=str(key),
    )


def _column(node: NodeLineage, column: str) -> str:
    """The column as the node spells it."""
    key = node.key
    if node.columns is None:
        return column
    own = next((name for name in node.columns if name.casefold() == column.casefold()), None)
    if own is None:
        meant = closest(column, node.columns)
        fix = f"did you mean `{key}.{meant}`?" if meant else f"it has: {', '.join(node.columns)}"
        raise ConfigError(f"{key} has no column `{column}`", fix=fix, node=str(key), column=column)
    return own


@contextmanager
def _lineage_of(project: Project) -> Iterator[ProjectLineage]:
    """The lineage of a project. A Spark is started when the first function is met, and stopped at the end."""
    opened: list[SessionHandle] = []

    def plans(project_lineage: ProjectLineage) -> PlannedFrames:
        from odi_assets.cli.run.command import quiet_libraries
        from odi_assets.lineage.planned_frames import PlannedFrames
        from odi_assets.spark.session import open_session

        quiet_libraries()
        note("Starting Spark to plan a function.")
        # What a function does depends on the project's settings; where it is planned does not.
        config = project.config.spark.model_copy(update={"remote": None, "master": "local[1]"})
        opened.append(open_session(config, app_name="odi_assets lineage"))
        return PlannedFrames(project_lineage, opened[0].spark)

    with stdout_kept_for_data():
        try:
            yield ProjectLineage(project, plans)
        finally:
            for handle in opened:
                handle.stop()


def _conclude(key: NodeKey, column: str | None, trails: Mapping[str, Trail], *, down: bool) -> None:
    unknown = {entry for trail in trails.values() for entry in trail.entries if entry.how == "unknown"}
    name = f"{key}.{column}" if column is not None else str(key)
    if not unknown:
        if column is None:
            note(f"{key}.COLUMN in the place of {key} lists the columns that decide.")
        elif not trails[column].entries:
            note(f"Nothing is made of {name}." if down else f"{name} is made of no column.")
        return
    for entry in sorted(unknown, key=str):
        full_name = f"{entry.owner}.{entry.column}" if entry.column else str(entry.owner)
        note(f"odi: what {full_name} is made of is not known: {entry.why}")
    note("  → what is printed goes as far as that is known")
    raise typer.Exit(FAILED)


def _mermaid(key: NodeKey, trails: Mapping[str, Trail]) -> list[str]:
    """Columns in the boxes of their nodes and sources: a line where a value goes in, a dotted one where it decides."""
    edges: dict[tuple[Place, Place], set[str]] = {}
    for trail in trails.values():
        for edge, how in trail.edges.items():
            edges.setdefault(edge, set()).update(how)
    places: dict[Any, dict[str, None]] = {key: dict.fromkeys(trails)}
    for owner, column in (end for edge in edges for end in edge):
        places.setdefault(owner, {})[column] = None
    ids: dict[Place, str] = {}
    lines = ["flowchart LR"]
    for number, (owner, columns) in enumerate(places.items()):
        lines.append(f'  subgraph o{number}["{_escaped(str(owner))}"]')
        for column in columns:
            ids[owner, column] = f"c{len(ids)}"
            lines.append(f'    {ids[owner, column]}["{_escaped(column)}"]')
        lines.append("  end")
    arrows = {"value": "-->", "condition": "-.->"}
    for (above, below), kinds in edges.items():
        lines += [f"  {ids[above]} {arrow} {ids[below]}" for kind, arrow in arrows.items() if kind in kinds]
    return lines


def _escaped(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
