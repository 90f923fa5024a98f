"""``odi cursors import | export --node``: positions of nodes that follow tables as OLake does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.cli.cursors.change import write
from odi_assets.cli.cursors.documents import STREAM, document_of
from odi_assets.cli.terminal.output import note
from odi_assets.config.graph import NodeKey

if TYPE_CHECKING:
    from odi_assets.cursors import CursorDocument
    from odi_assets.nodes.project import Project


def import_to_node(
    project: Project, document: CursorDocument, node: str, stream: str | None, *, force: bool, dry_run: bool
) -> None:
    """Let ``node`` go on where OLake stopped, and say where that is."""
    from odi_assets.nodes.recovery.olake import take_over
    from odi_assets.sources.marks import hwm_text

    state = project.open_state()
    key = NodeKey.parse(node)
    mark, before = take_over(project, state, key, document, stream=stream, force=force, dry_run=dry_run)
    then = hwm_text(before.value) if before else None
    note(f"{key}: {then or 'not set'} → {hwm_text(mark.value)}{': nothing was written' if dry_run else ''}")


def export_nodes(project: Project, file: str, nodes: list[str], *, force: bool) -> None:
    """Write where ``nodes`` are as OLake's state, into the document in ``file`` if it holds one."""
    from odi_assets.nodes.recovery.olake import given_out

    present = document_of(file, None) if file != STREAM and Path(file).exists() else None
    document = given_out(project, project.open_state(), [NodeKey.parse(node) for node in nodes], present)
    write(document, file, force=force)
