"""Names that lead nowhere, twice, or in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake, closest
from odi_assets.config.diagnostics.partial_project import NodeView, Outline, PipelineView
from odi_assets.config.yaml.document import Path
from odi_assets.util.graphs import find_cycles


def unknown_connections(outline: Outline) -> Iterator[Finding]:
    """Find connections that ``connections`` does not have."""
    if outline.connections is None:
        return
    named: dict[Path, str] = {}
    if outline.system_connection:
        named[("system", "connection")] = outline.system_connection
    for node in outline.nodes:
        named.update(node.connections)
    for path, name in named.items():
        if name not in outline.connections:
            yield Finding(path, _unknown("connection", name, outline.connections))


def unknown_nodes(outline: Outline) -> Iterator[Finding]:
    """Find inputs and dependencies that are no nodes."""
    for node in outline.nodes:
        for reference in node.references:
            if outline.find(node, reference.text) is None:
                yield Finding(reference.path, _unknown_node(outline, node, reference.text))


def _unknown_node(outline: Outline, node: NodeView, text: str) -> Mistake:
    wanted = text.removeprefix("$").rpartition(".")[2]
    elsewhere = [f"{other.pipeline}.{other.name}" for other in outline.nodes if other.name == wanted]
    if len(elsewhere) == 1:
        return _unknown("node", text, [], suggestion=elsewhere[0])
    near = [other.name for other in outline.nodes if other.pipeline == node.pipeline and other is not node]
    far = [f"{other.pipeline}.{other.name}" for other in outline.nodes]
    return _unknown("node", text, far if "." in text else [*near, *far])


def _unknown(what: str, name: str, known: Iterable[str], suggestion: str | None = None) -> Mistake:
    known = list(dict.fromkeys(known))
    meant = suggestion or closest(name, known)
    listed = (
        f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if not meant and len(known) <= 20 else ""
    )
    message = f"unknown {what} `{name}`{listed if known else ''}"
    return Mistake(message, plain=f"the variable names no {what} of this file", suggestion=meant)


def duplicate_names(outline: Outline) -> Iterator[Finding]:
    """Find pipelines of one name, and nodes of one name in a pipeline."""
    yield from _twice("pipeline", outline.pipelines, "pipeline")
    for pipeline in outline.pipelines:
        yield from _twice("node", pipeline.nodes, "name")


def _twice(what: str, views: Iterable[PipelineView] | Iterable[NodeView], key: str) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for view in views:
        if not view.name:
            continue
        if view.name in seen:
            yield Finding((*view.path, key), Mistake(f"duplicate {what} `{view.shown}`"))
        elif view.name.lower() in seen:
            other = seen[view.name.lower()]
            text = f"{what} `{view.shown}` differs from `{other}` by capitals only, which Spark does not see"
            yield Finding((*view.path, key), Mistake(text))
        seen[view.name] = seen[view.name.lower()] = view.shown


def cycles(outline: Outline) -> Iterator[Finding]:
    """Find nodes that need one another in a circle; the path goes the way the data would."""
    feeds: dict[tuple[str, str], list[tuple[str, str]]] = {key: [] for key in outline.by_name}
    for key, node in outline.by_name.items():
        for target in _targets(outline, node):
            feeds[target].append(key)
    for cycle in find_cycles(feeds):
        nodes = [outline.by_name[key] for key in cycle]
        one_pipeline = len({node.pipeline for node in nodes}) == 1
        names = [node.shown if one_pipeline else f"{node.pipeline}.{node.shown}" for node in nodes]
        first, last = nodes[0], nodes[-2]
        path = next(r.path for r in first.references if outline.find(first, r.text) is last)
        yield Finding(path, Mistake(f"cycle: {' → '.join(names)}"))


def _targets(outline: Outline, node: NodeView) -> list[tuple[str, str]]:
    found = (outline.find(node, reference.text) for reference in node.references)
    return list(dict.fromkeys((target.pipeline, target.name) for target in found if target is not None))
