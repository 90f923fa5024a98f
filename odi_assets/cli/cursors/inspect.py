"""``odi cursors check | show | diff | fingerprint``: looking at cursor documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.cursors.documents import (
    INPUT,
    FileArgument,
    FilesArgument,
    ToolOption,
    document_of,
    documents_of,
    inspected,
)
from odi_assets.cli.terminal.exit_codes import BAD_INPUT, FAILED
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, moment, note
from odi_assets.documents import Move, compare
from odi_assets.documents import fingerprint as fingerprint_of
from odi_assets.documents.files import BACKWARDS
from odi_assets.documents.kept import give_out, name_of
from odi_assets.errors import ConfigError, OdiError
from odi_assets.state.values import to_json
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.documents import CursorDocument, CursorStream, Inspection, StreamMove

_STREAMS = (
    Column("stream", lambda stream: stream.id),
    Column("snapshot", lambda stream: _snapshot(stream)),
    Column("log position", lambda stream: str(stream.position) if stream.position else None, optional=True),
    Column(
        "cursors", lambda stream: "\n".join(f"{k} = {v}" for k, v in stream.cursors.items()), wrap=True, optional=True
    ),
)
_MOVES = (
    Column("stream", lambda move: move.stream),
    Column("move", lambda move: move.move.value),
    Column("by", lambda move: _by(move), wrap=True, optional=True),
    Column("chunks done", lambda move: move.chunks_done or None, "right", optional=True),
    Column("chunks left", lambda move: move.chunks_left or None, "right", optional=True),
    Column("why", lambda move: move.reason, wrap=True),
)


def check(
    settings: Settings,
    files: FilesArgument,
    tool: ToolOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Report everything that is wrong with documents. Exits with 1 if something is, with 2 if one cannot be read."""
    inspections: dict[str, Inspection] = {}
    unread = False
    for file in files:
        try:
            inspections[file] = inspected(file, tool)
        except ConfigError as error:
            # The others are looked at all the same.
            note(f"odi: {error}")
            unread = True
    if as_json:
        data_json(
            [_inspection_json(INPUT if file == "-" else file, inspection) for file, inspection in inspections.items()]
        )
    for file, inspection in inspections.items():
        if not as_json:
            _print(file, inspection)
        if inspection.torn:
            _tell_kept(settings, file)
    counts = any(
        finding.severity == "error" or strict for inspection in inspections.values() for finding in inspection.findings
    )
    raise typer.Exit(BAD_INPUT if unread else FAILED if counts else 0)


def _print(file: str, inspection: Inspection) -> None:
    for finding in inspection.findings:
        where, _, what = str(finding).partition(": ")
        data(f"{where}: {finding.severity}: {what}\n  → {finding.remedy}")
    errors = sum(finding.severity == "error" for finding in inspection.findings)
    warnings = len(inspection.findings) - errors
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    document = inspection.document
    what = (
        f"{document.tool}, {counted(len(document.streams), 'stream')}"
        if document
        else inspection.tool or "no known document"
    )
    note(f"{file}: {what}: {counts}")


def _tell_kept(settings: Settings, file: str) -> None:
    """Say what to restore a torn document from, if state has it."""
    try:
        project = settings.project()
    except ConfigError:
        return
    try:
        kept = give_out(project.open_state(), name_of(file))
    except OdiError as error:
        note(f"warning: it is not known whether state has a copy: {error.message}")
        return
    if kept is not None:
        note(f"State has it as of {moment(kept.taken_at)} UTC: odi cursors export {file} --force puts it there.")


def _inspection_json(file: str, inspection: Inspection) -> dict[str, Any]:
    document = inspection.document
    return {
        "path": file,
        "tool": document.tool if document else inspection.tool,
        "form": document.form if document else None,
        "valid": document is not None,
        "positions_lost": inspection.torn,
        "streams": len(document.streams) if document else None,
        "findings": [finding.to_json() for finding in inspection.findings],
    }


def show(file: FileArgument, tool: ToolOption = None, as_json: JsonOption = False) -> None:
    """Show how far each stream was read."""
    document = document_of(file, tool)
    if as_json:
        data_json(document_json(document))
        return
    kind = f"{document.tool}, {document.type}" + (f", version {document.version}" if document.version else "")
    note(f"{kind}: {counted(len(document.streams), 'stream')}")
    if document.shared is not None and document.shared.position is not None:
        note(f"shared log position: {document.shared.position}")
    if document.streams:
        data_table(_STREAMS, document.streams)


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The earlier document; - for standard input.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The later document; - for standard input.")],
    tool: ToolOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Streams that did not move too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two documents stream by stream, by what positions mean.

    Exits with 1 if a stream went back or is gone, or if it is not known how a stream moved.
    """
    if old == new == "-":
        raise ConfigError("only one of the documents can come from standard input", fix="give a file for the other")
    before, after = documents_of(old, new, tool)
    if before.tool != after.tool:
        raise ConfigError(
            f"{old} is a document of {before.tool}, and {new} one of {after.tool}",
            fix=f"make the second one a document of {before.tool} first, with odi cursors convert",
        )
    moves = compare(before, after)
    shown = [move for move in moves if everything or as_json or move.move is not Move.SAME]
    if as_json:
        data_json([move.to_json() for move in shown])
    elif shown:
        data_table(_MOVES, shown)
    counts = {move: sum(stream_move.move is move for stream_move in moves) for move in Move}
    note(", ".join(f"{number:,} {move}" for move, number in counts.items() if number) or "No streams.")
    raise typer.Exit(FAILED if any(counts[move] for move in BACKWARDS) else 0)


def fingerprint(files: FilesArgument, tool: ToolOption = None, as_json: JsonOption = False) -> None:
    """Print a fingerprint of each document: it is the same for equal documents, whatever their order and spacing."""
    fingerprints = {file: fingerprint_of(document_of(file, tool)) for file in files}
    if as_json:
        data_json([{"path": file, "fingerprint": text} for file, text in fingerprints.items()])
        return
    for file, text in fingerprints.items():
        data(f"{text}  {file}")


def document_json(document: CursorDocument) -> dict[str, Any]:
    """A document as ``--json`` shows it."""
    shared = document.shared
    return {
        "tool": document.tool,
        "form": document.form,
        "type": document.type.value,
        "version": document.version,
        "shared_position": str(shared.position) if shared and shared.position else None,
        "streams": [_stream_json(stream) for stream in document.streams],
        "warnings": [finding.to_json() for finding in document.warnings],
    }


def _stream_json(stream: CursorStream) -> dict[str, Any]:
    position, snapshot = stream.position, stream.snapshot
    return {
        "stream": stream.id,
        "namespace": stream.namespace,
        "name": stream.name,
        "sync_mode": stream.sync_mode,
        "snapshot": snapshot.status.value,
        "chunks_left": len(snapshot.chunks),
        "reached": snapshot.reached or None,
        "position": None if position is None else {"kind": type(position).__name__, "text": str(position)},
        "cursors": {name: to_json(value)[0] for name, value in stream.cursors.items()},
    }


def _snapshot(stream: CursorStream) -> str:
    snapshot = stream.snapshot
    left = f", {counted(len(snapshot.chunks), 'chunk')} left" if snapshot.chunks else ""
    return f"{snapshot.status}{left}"


def _by(move: StreamMove) -> str:
    return "\n".join(f"{part.name}: {part.by}" for part in move.parts if part.by)
