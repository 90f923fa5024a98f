"""Nodes: names that lead nowhere, twice or in a circle; nothing to read; SQL files that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odi_assets.config.checks.partial_project import PartialNode, PartialPipeline, PartialProject
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about, closest
from odi_assets.util.graphs import find_cycles


def unknown_connections(project: PartialProject) -> Iterator[Mistake]:
    """Find connections that ``connections`` does not have."""
    if project.connections is None:
        return
    named: dict[Path, str] = {("system", "connection"): project.system_connection}
    for node in project.nodes:
        named |= {(*node.path, key, "connection"): node.text(key, "connection") for key in ("read", "write")}
    for path, name in named.items():
        if name and name not in project.connections:
            yield _unknown("connection", name, path, project.connections)


def unknown_nodes(project: PartialProject) -> Iterator[Mistake]:
    """Find inputs and dependencies that are no nodes."""
    for node in project.nodes:
        for path, text in node.references.items():
            if project.find(node, text) is None:
                yield _unknown_node(project, node, text, path)


def _unknown_node(project: PartialProject, node: PartialNode, text: str, path: Path) -> Mistake:
    wanted = text.removeprefix("$").rpartition(".")[2]
    elsewhere = [other.shown for other in project.nodes if other.name == wanted]
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


def duplicate_names(project: PartialProject) -> Iterator[Mistake]:
    """Find pipelines of one name, and nodes of one name in a pipeline."""
    yield from _twice("pipeline", project.pipelines, "pipeline")
    for pipeline in project.pipelines:
        yield from _twice("node", pipeline.nodes, "name")


def _twice(what: str, parts: Iterable[PartialPipeline] | Iterable[PartialNode], key: str) -> Iterator[Mistake]:
    seen: dict[str, str] = {}
    for part in parts:
        shown, other = part.shown_name, seen.get(part.name.lower())
        if part.name in seen:
            yield Mistake(f"duplicate {what} `{shown}`", at=(*part.path, key))
        elif other is not None:
            text = f"{what} `{shown}` differs from `{other}` by capitals only, which Spark does not see"
            yield Mistake(text, at=(*part.path, key))
        if part.name:
            seen[part.name] = seen[part.name.lower()] = shown


def cycles(project: PartialProject) -> Iterator[Mistake]:
    """Find nodes that need one another in a circle; the path goes the way the data would."""
    needs = {key: _needed(project, node) for key, node in project.by_name.items()}
    for cycle in find_cycles(needs):
        nodes = [project.by_name[key] for key in reversed(cycle)]
        one_pipeline = len({node.pipeline for node in nodes}) == 1
        names = [node.shown_name if one_pipeline else node.shown for node in nodes]
        first, last = nodes[0], nodes[-2]
        path = next(path for path, text in first.references.items() if project.find(first, text) is last)
        yield Mistake(f"cycle: {' → '.join(names)}", at=path)


def _needed(project: PartialProject, node: PartialNode) -> list[tuple[str, str]]:
    found = (project.find(node, text) for text in node.references.values())
    return [(other.pipeline, other.name) for other in found if other is not None]


def nothing_to_read(project: PartialProject) -> Iterator[Mistake]:
    """Find nodes with neither ``read`` nor ``inputs``, and those with several inputs and nothing to join them."""
    for node in project.nodes:
        if not node.gives("read") and not node.gives("inputs"):
            yield Mistake("has nothing to read: give `read` or `inputs`", at=node.path, absence=True)
        elif not node.gives("transform") and len(node.inputs) + node.gives("read") > 1:
            message = "reads more than one source: say with `transform` what becomes of them"
            yield Mistake(message, at=node.path, absence=True)


def missing_files(project: PartialProject) -> Iterator[Mistake]:
    """Find ``sql_file``s that are not on disk."""
    for node in project.nodes:
        name = node.transform.sql_file if node.transform is not None else None
        if name is None or (project.root / name).is_file():
            continue
        file = project.root / name
        meant = closest(file.name, [other.name for other in file.parent.glob("*.sql")])
        what = "is a folder" if file.is_dir() else "does not exist"
        text = f"{what}; files are looked for from the project file's folder"
        suggestion = name.removesuffix(file.name) + meant if meant else None
        yield about(name, text, at=(*node.path, "transform", "sql_file"), suggestion=suggestion)
