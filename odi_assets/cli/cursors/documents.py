"""What the commands of ``odi cursors`` share: reading documents from files and from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.terminal.exit_codes import BAD_INPUT
from odi_assets.cli.terminal.output import note
from odi_assets.documents import inspect_bytes, inspect_file
from odi_assets.documents.tools import CURSOR_TOOLS, spec_of
from odi_assets.errors import ConfigError, CursorDocumentError

if TYPE_CHECKING:
    from odi_assets.documents import CursorDocument, Inspection

STREAM = "-"
INPUT = "<stdin>"


def _known(name: str | None) -> str | None:
    """Raises BadParameter for a tool that nobody has; other packages may have more of them than this one."""
    if name is None or name.lower() in CURSOR_TOOLS.names():
        return name
    raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, CURSOR_TOOLS.names()))}.")


FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A cursor document; - for standard input.")]
FilesArgument = Annotated[list[str], typer.Argument(metavar="FILE…", help="Cursor documents; - for standard input.")]
ToolOption = Annotated[
    str | None,
    typer.Option(
        "--tool",
        metavar="TOOL",
        callback=_known,
        help="Whose documents they are: olake, airbyte, singer, dlt, or another package's; by default, recognized by "
        "their shape.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Also where streams go back to an earlier position.")]
OutputOption = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; - for standard output.")
]


TargetTool = Annotated[
    str,
    typer.Option("--to", metavar="TOOL", callback=_known, help="The tool that shall go on from there."),
]


def tool_of(name: str) -> str:
    """The tool of that name, as its documents are called."""
    return spec_of(name).name


def inspected(file: str, tool: str | None) -> Inspection:
    """What a file holds.

    Raises:
        ConfigError: it cannot be read.
    """
    whose = tool_of(tool) if tool else None
    if file == STREAM:
        return inspect_bytes(sys.stdin.buffer.read(), tool=whose, path=INPUT)
    try:
        return inspect_file(file, tool=whose)
    except CursorDocumentError as error:
        raise ConfigError(error.message, fix=error.fix, path=file) from error


def document_of(file: str, tool: str | None) -> CursorDocument:
    """The document in a file; its warnings are printed on stderr.

    Raises:
        Exit: with 2; what is wrong with it was printed.
        ConfigError: it cannot be read.
    """
    return _required(inspected(file, tool))


def documents_of(old: str, new: str, tool: str | None) -> tuple[CursorDocument, CursorDocument]:
    """Two documents, as :func:`document_of` gives them. If the tool of one is not known, the tool of the other counts:
    an empty object may be any tool's."""
    inspections = {file: inspected(file, tool) for file in (old, new)}
    tools = {inspection.tool for inspection in inspections.values() if inspection.tool}
    for file, inspection in inspections.items():
        if inspection.tool is None and not inspection.torn and len(tools) == 1 and file != STREAM:
            inspections[file] = inspected(file, next(iter(tools)))
    return _required(inspections[old]), _required(inspections[new])


def _required(inspection: Inspection) -> CursorDocument:
    try:
        document = inspection.require()
    except CursorDocumentError as error:
        note(f"odi: {error}")
        raise typer.Exit(BAD_INPUT) from error
    for warning in document.warnings:
        note(f"warning: {warning}")
    return document
