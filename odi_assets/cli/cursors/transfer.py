"""``odi cursors import | export``: cursor documents into state, and out of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.cursors.change import alone, write
from odi_assets.cli.cursors.documents import STREAM, FileArgument, ForceOption, ToolOption, document_of
from odi_assets.cli.state.revisions import tell_of_repeats
from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import data_json, note
from odi_assets.documents import Move
from odi_assets.documents.kept import give_out, key_of, name_of, names, take_in
from odi_assets.errors import ConfigError
from odi_assets.sources.marks import hwm_text

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.documents import CursorDocument
    from odi_assets.nodes.project import Project
    from odi_assets.state.backend import StateBackend

NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Its name in state: keys cursors/NAME/…; by default, the name of the file."
    ),
]
NodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NODE", help="NODE or PIPELINE.NODE that follows the table by cursors.")
]
NodesOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NODE", help="NODE or PIPELINE.NODE; may be given more than once.")
]


def import_(
    settings: Settings,
    file: FileArgument,
    name: NameOption = None,
    tool: ToolOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    node: NodeOption = None,
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="STREAM", help="With --node: which one; its table unless given.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put the position of every stream of a document into state: typed, with history, a key for each.

    With --node, that node goes on where OLake stopped: with the chunks left of a snapshot, then above its cursors; or,
    if it captures a log, at OLake's LSN, with new snapshots of its tables. If the node has another position of its own,
    --force sets it all the same; what is read again or never is said before, and asked for.
    """
    if node is not None:
        document = document_of(file, tool)
        import_to_node(settings.project(), document, node, stream, force=force, dry_run=dry_run, yes=yes)
        return

    document = document_of(file, tool)
    called = _name(file, name)
    moves = take_in(settings.project().open_state(), called, document, force=force, dry_run=dry_run)
    if as_json:
        data_json([move.to_json() for move in moves])
        return
    changed = [move for move in moves if move.move is not Move.SAME]
    for move in changed:
        note(f"{key_of(called, move.stream)}: {move.move}, {move.reason}")
    note(f"{len(changed):,} of {len(moves):,} streams changed" + (": nothing was written." if dry_run else "."))


def export(
    settings: Settings,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the document goes; - for standard output.")],
    name: NameOption = None,
    force: ForceOption = False,
    node: NodesOption = None,
) -> None:
    """Write the document that state has: as it was imported, with each stream where its key is now.

    With --node, write where these nodes are as OLake's state: into FILE, if it holds a document; its other streams stay
    as they are. It is written in one step, and not over a file that is further, unless --force says so.
    """
    if node:
        export_nodes(settings.project(), file, node, force=force)
        return

    state = settings.project().open_state()
    called = _name(file, name)
    kept = give_out(state, called)
    if kept is None:
        known = names(state)
        raise ConfigError(
            f"state has no cursor document {called!r}",
            fix=f"it has {', '.join(known)}: name one with --name" if known else "import one: odi cursors import FILE",
        )
    write(kept.document, file, force=force)


def _name(file: str, name: str | None) -> str:
    if name is None and file == STREAM:
        raise ConfigError("a document from standard input has no name", fix="give one: --name state")
    return name or name_of(file)


def import_to_node(
    project: Project,
    document: CursorDocument,
    node: str,
    stream: str | None,
    *,
    force: bool,
    dry_run: bool,
    yes: bool = False,
) -> None:
    """Let ``node`` go on where OLake stopped, and say where that is.

    Raises:
        Exit: rows would be read again or never, and nobody agreed.
    """
    from odi_assets.documents.handover.olake import plan_takeover
    from odi_assets.nodes.node import Node

    state = project.open_state()
    key = project.node_named(node)
    if Node.of(project, key).captures:
        import_to_capture(project, state, key, document, stream, force=force, dry_run=dry_run)
        return
    taken = plan_takeover(project, state, key, document, stream=stream, force=force)
    for text in (*taken.again, *taken.never):
        note(f"{key}: {text}.")
    if taken.again:
        tell_of_repeats(Node.of(project, key))
    if not dry_run:
        require_consent(yes or not (taken.again or taken.never))
        taken.apply()
    then = hwm_text(taken.before.value) if taken.before else None
    note(f"{key}: {then or 'not set'} → {hwm_text(taken.mark.value)}{': nothing was written' if dry_run else ''}")


def import_to_capture(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    document: CursorDocument,
    stream: str | None,
    *,
    force: bool,
    dry_run: bool,
) -> None:
    """Let a node that captures a log go on at OLake's LSN, and say what becomes of its tables."""
    from odi_assets.documents.handover.olake_log import take_over_log

    if stream is not None or force:
        option = "--stream" if stream is not None else "--force"
        raise ConfigError(f"{key} captures a log, for which {option} has no meaning", fix=f"leave {option} out")
    taken = take_over_log(project, state, key, document, dry_run=dry_run)
    note(f"{key}: not set → {taken.mark.text(taken.mark.end)}{': nothing was written' if dry_run else ''}")
    for text in taken.notes:
        note(text)


def export_nodes(project: Project, file: str, nodes: list[str], *, force: bool) -> None:
    """Write where ``nodes`` are as OLake's state, into the document in ``file`` if it holds one."""
    from odi_assets.documents.handover.olake import given_out
    from odi_assets.documents.handover.olake_log import given_out_log
    from odi_assets.nodes.node import Node

    state, keys = project.open_state(), [project.node_named(node) for node in nodes]
    captures = [key for key in keys if Node.of(project, key).captures]
    if len(captures) > 1:
        raise ConfigError("OLake's document has one LSN, and several captures are named", fix="name one of them")
    with alone(file):
        present = document_of(file, None) if file != STREAM and Path(file).exists() else None
        document, others = present, [key for key in keys if key not in captures]
        if others:
            document = given_out(project, state, others, document)
        said = ""
        for key in captures:
            document, said = given_out_log(project, state, key, document)
        assert document is not None
        write(document, file, force=force, read=present)
        if said:
            note(said)
