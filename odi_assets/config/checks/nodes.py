"""Nodes: names that lead nowhere, twice or in a circle; nothing to read; SQL that Spark cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odi_assets.config.checks import streams
from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, Path, closest
from odi_assets.util.graphs import find_cycles


def unknown_connections(project: ProjectView) -> Iterator[Mistake]:
    """Find connections that ``connections`` does not have."""
    if project.connections is None:
        return
    system = project.config.system
    named: dict[Path, str] = {("system", "connection"): system.connection if system else ""}
    for node in project.nodes:
        named |= {(*node.path, *at, "connection"): read.connection for at, read in node.config.reads.items()}
        named[*node.path, "write", "connection"] = node.config.write.connection
        cursor = node.config.cursor
        named[*node.path, "cursor", "connection"] = (cursor.connection or "") if cursor else ""
    for path, name in named.items():
        if name and name not in project.connections:
            yield _unknown("connection", name, path, project.connections)


def wrong_references(project: ProjectView) -> Iterator[Mistake]:
    """Find inputs and dependencies that are no nodes, and nodes that depend on each other in a circle."""
    needs: dict[tuple[str, str], list[tuple[str, str]]] = {key: [] for key in project.by_name}
    for node in project.nodes:
        for path, name in node.config.references.items():
            other = project.find(node, name)
            if other is None and name:
                yield _unknown_node(project, node, name, (*node.path, *path))
            elif other is not None and project.by_name.get((node.pipeline, node.config.name)) is node:
                needs[node.pipeline, node.config.name].append((other.pipeline, other.config.name))
    for cycle in find_cycles(needs):
        yield _circle(project, [project.by_name[key] for key in reversed(cycle)])


def _circle(project: ProjectView, nodes: list[NodeView]) -> Mistake:
    """Return the mistake of nodes that depend on each other, in the order that the data would take."""
    one_pipeline = len({node.pipeline for node in nodes}) == 1
    names = [node.shown_name if one_pipeline else node.shown for node in nodes]
    first, last = nodes[0], nodes[-2]
    path = next(path for path, text in first.config.references.items() if project.find(first, text) is last)
    return Mistake(f"cycle: {' → '.join(names)}", at=(*first.path, *path))


def _unknown_node(project: ProjectView, node: NodeView, text: str, path: Path) -> Mistake:
    wanted = text.removeprefix("$").rpartition(".")[2]
    elsewhere = [other.shown for other in project.nodes if other.config.name == wanted]
    if len(elsewhere) == 1:
        return _unknown("node", text, path, [], suggestion=elsewhere[0])
    near = [other.shown_name for other in project.nodes if other.pipeline == node.pipeline and other is not node]
    far = [other.shown for other in project.nodes]
    return _unknown("node", text, path, far if "." in text else [*near, *far])


def _unknown(what: str, name: str, path: Path, known: Iterable[str], suggestion: str | None = None) -> Mistake:
    known = list(dict.fromkeys(known))
    meant = suggestion or closest(name, known)
    listed = f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if 0 < len(known) <= 20 else ""
    message = f"unknown {what} `{name}`{'' if meant else listed}"
    return Mistake(message, plain=f"the variable names no {what} of this file", at=path, suggestion=meant)


def duplicate_names(project: ProjectView) -> Iterator[Mistake]:
    """Find pipelines of one name, and nodes of one name in a pipeline; Spark does not see capitals."""
    names: list[tuple[Path, str, str]] = [
        (("pipelines", i, "pipeline"), pipeline.pipeline, shown)
        for i, (pipeline, shown) in enumerate(zip(project.config.pipelines, project.shown_pipelines, strict=True))
    ]
    names += [((*node.path, "name"), node.config.name, node.shown_name) for node in project.nodes]
    seen: dict[tuple[Path, str], tuple[Path, str, str]] = {}
    for path, name, shown in names:
        what = "node" if path[-1] == "name" else "pipeline"
        first, other, shown_other = seen.setdefault((path[:-2], name.lower()), (path, name, shown))
        if not name or first == path:
            continue
        text = f"{what} `{shown}` differs from `{shown_other}` by capitals only, which Spark does not see"
        yield Mistake(f"duplicate {what} `{shown}`" if name == other else text, at=path)


def nothing_to_read(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes with neither ``read`` nor ``inputs``, those with several inputs and nothing to join them, and those
    whose stream settings or inputs do not fit."""
    for node in project.nodes:
        yield from streams.mistakes_of(node)
        sources = len(node.config.inputs) + (node.config.read is not None)
        if not sources:
            yield Mistake("has nothing to read: give `read` or `inputs`", at=node.path, absence=True)
        elif sources > 1 and node.config.transform is None:
            message = "reads more than one source: say with `transform` what becomes of them"
            yield Mistake(message, at=node.path, absence=True)
        if node.config.cursor is not None and node.config.read is None:
            yield Mistake("says when to `read`, and the node has no `read`", at=(*node.path, "cursor"), where="key")


def wrong_queries(project: ProjectView) -> Iterator[Mistake]:
    """Find queries, in the project file or in files of their own, that are not there or that Spark would not parse."""
    for node in project.nodes:
        if node.config.transform is not None:
            from odi_assets.config.checks import sql

            yield from sql.mistakes_of(node.config.transform, (*node.path, "transform"), project.root)
