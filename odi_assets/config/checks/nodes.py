"""Nodes without a source, and files that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake, about, closest
from odi_assets.config.diagnostics.partial_project import Outline


def nothing_to_read(outline: Outline) -> Iterator[Finding]:
    """Find nodes with neither ``read`` nor ``inputs``, and those with several inputs and nothing to join them."""
    for node in outline.nodes:
        if "read" not in node.given and "inputs" not in node.given:
            message = "has nothing to read: give `read` or `inputs`"
            yield Finding(node.path, Mistake(message), absence=True)
        elif "transform" not in node.given and len(node.inputs) + ("read" in node.given) > 1:
            message = "reads more than one source: say with `transform` what becomes of them"
            yield Finding(node.path, Mistake(message), absence=True)


def missing_files(outline: Outline) -> Iterator[Finding]:
    """Find ``sql_file``s that are not on disk."""
    for node in outline.nodes:
        name = node.transform.sql_file if node.transform is not None else None
        if name is None or (outline.root / name).is_file():
            continue
        folder = (outline.root / name).parent
        beside = [file.name for file in folder.glob("*.sql")] if folder.is_dir() else []
        meant = closest(folder.joinpath(name).name, beside)
        what = "is a folder" if (outline.root / name).is_dir() else "does not exist"
        text = f"{what}; files are looked for from the project file's folder"
        suggestion = name.removesuffix(folder.joinpath(name).name) + meant if meant else None
        yield Finding((*node.path, "transform", "sql_file"), about(name, text, suggestion=suggestion))
