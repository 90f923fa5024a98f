"""What the commands of ``odi cursors`` share: reading documents from files and from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from odi_assets.cli.terminal.exit_codes import BAD_INPUT
from odi_assets.cli.terminal.output import note
from odi_assets.documents import Tool, inspect_bytes, inspect_file
from odi_assets.errors import ConfigError, CursorDocumentError

if TYPE_CHECKING:
    from odi_assets.documents import CursorDocument, Inspection

STREAM = "-"
INPUT = "<stdin>"


ToolName = Literal["olake", "airbyte", "singer", "dlt"]
"""The tools as the command line names them."""

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A cursor document; - for standard input.")]
FilesArgument = Annotated[list[str], typer.Argument(metavar="FILE…", help="Cursor documents; - for standard input.")]
ToolOption = Annotated[
    ToolName | None, typer.Option("--tool", help="Whose documents they are; by default, recognized by their shape.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Also where streams go back to an earlier position.")]
OutputOption = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; - for standard output.")
]


def tool_of(name: ToolName) -> str:
    """The tool of that name, as its documents are called."""
    return next(tool for tool in Tool if tool.lower() == name)


def tool_name(tool: str) -> ToolName:
    """The name of a tool on the command line."""
    return next(name for name in get_args(ToolName) if name == tool.lower())


def inspected(file: str, tool: ToolName | None) -> Inspection:
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


def document_of(file: str, tool: ToolName | None) -> CursorDocument:
    """The document in a file; its warnings are printed on stderr.

    Raises:
        Exit: with 2; what is wrong with it was printed.
        ConfigError: it cannot be read.
    """
    return _required(inspected(file, tool))


def documents_of(old: str, new: str, tool: ToolName | None) -> tuple[CursorDocument, CursorDocument]:
    """Two documents, as :func:`document_of` gives them. If the tool of one is not known, the tool of the other counts:
    an empty object may be any tool's."""
    found = {file: inspected(file, tool) for file in (old, new)}
    seen = {one.tool for one in found.values() if one.tool}
    for file, one in found.items():
        if one.tool is None and not one.torn and len(seen) == 1 and file != STREAM:
            found[file] = inspected(file, tool_name(*seen))
    return _required(found[old]), _required(found[new])


def _required(found: Inspection) -> CursorDocument:
    try:
        document = found.require()
    except CursorDocumentError as error:
        note(f"odi: {error}")
        raise typer.Exit(BAD_INPUT) from error
    for warning in document.warnings:
        note(f"warning: {warning}")
    return document
