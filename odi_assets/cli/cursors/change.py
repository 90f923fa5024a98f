"""``odi cursors convert | set | reset``: changing cursor documents."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.cursors.documents import (
    STREAM,
    FileArgument,
    ForceOption,
    OutputOption,
    TargetTool,
    ToolOption,
    document_of,
    tool_of,
)
from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, YesOption
from odi_assets.cli.terminal.output import data, data_json, note
from odi_assets.documents import compare, save, with_cursors, with_shared_position, without_streams
from odi_assets.documents.convert import convert as converted
from odi_assets.documents.editing import values_of
from odi_assets.documents.files import held, require_forward
from odi_assets.documents.values import is_instant, is_integer, kind_of
from odi_assets.errors import ConfigError
from odi_assets.util.exact_json import plain
from odi_assets.util.exact_json import write as write_json
from odi_assets.util.json_scan import read_strict

if TYPE_CHECKING:
    from odi_assets.documents import CursorDocument

_TEXTS = ("_data", "lsn", "binlog_file", "Name")
"""Members of OLake's document that are texts, even where they look like numbers."""
_NO_JSON = object()
_NUMBER = re.compile(r"\s*[+-]?(0x[0-9a-f]+|[\d_.]+(e[+-]?\d+)?|nan|inf|infinity)\s*", flags=re.IGNORECASE)


def convert(
    file: FileArgument,
    to: TargetTool,
    output: OutputOption = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="The namespace of all streams there.")
    ] = None,
    tool: ToolOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the document of another tool of what carries over to it, and tell stream by stream what does not.

    The document goes to standard output, or to --output FILE. Exits with 1 if a stream was left out.
    """
    document = document_of(file, tool)
    conversion = converted(document, tool_of(to), namespace=namespace)
    if as_json:
        outcomes = [outcome.to_json() for outcome in conversion.outcomes]
        data_json({"document": conversion.document.text if output is None else None, "streams": outcomes})
    elif output is None:
        data(conversion.document.text.removesuffix("\n"))
    if output is not None:
        write(conversion.document, output, force=force, read=document)
    if not as_json:
        for outcome in conversion.outcomes:
            text = "carried over" if outcome.carried else "left out"
            note(f"{outcome.stream}: {text}: {outcome.what}" + "".join(f"\n  → {line}" for line in outcome.notes))
    raise typer.Exit(0 if all(outcome.carried for outcome in conversion.outcomes) else FAILED)


def set_(
    file: FileArgument,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="As in public.orders.")],
    values: Annotated[
        list[str], typer.Argument(metavar="COLUMN=VALUE…", help="Cursor columns; of OLake also chunks, _data, lsn …")
    ],
    shared: Annotated[
        bool, typer.Option("--shared", help="Set the log position that this and other streams share (OLake).")
    ] = False,
    output: OutputOption = None,
    tool: ToolOption = None,
    force: ForceOption = False,
) -> None:
    """Set the position of one stream in a document. Everything else in it stays, byte for byte.

    A value has the type that it had before: a number stays a number. A stream is not moved back without --force.
    """
    with alone(output or file):
        document = document_of(file, tool)
        before = {} if shared else values_of(document, stream) | dict(document.by_id[stream].cursors)
        new_values = {name: _value(name, text, before.get(name), force=force) for name, text in map(_pair, values)}
        if not shared:
            _require_own(document, stream, new_values)
        changed = with_shared_position(document, new_values) if shared else with_cursors(document, stream, new_values)
        moves = compare(document, changed)
        if not force:
            require_forward(moves, file)
        write(changed, output or file, force=force, read=document)
    for move in moves:
        if move.old != move.new:
            note(str(move))


def reset(
    file: FileArgument,
    streams: Annotated[list[str], typer.Argument(metavar="STREAM…", help="As in public.orders.")],
    output: OutputOption = None,
    tool: ToolOption = None,
    yes: YesOption = False,
) -> None:
    """Take streams out of a document: the tool reads them from their start. All others stay, byte for byte."""
    target = output or file
    # The question may stay open for long, and holds up nobody: what changes until the answer is noticed.
    with alone(target) if yes else nullcontext():
        document = document_of(file, tool)
        changed = without_streams(document, streams)
        note(f"{document.tool} will read {', '.join(streams)} from the start.")
        if target != STREAM:
            require_consent(yes)
        write(changed, target, force=True, read=document)


def alone(file: str) -> AbstractContextManager[None]:
    """Within, no other process of ours changes a file."""
    return nullcontext() if file == STREAM or not Path(file).parent.is_dir() else held(file)


def write(document: CursorDocument, file: str, *, force: bool, read: CursorDocument | None = None) -> None:
    """Put a document into a file, or on stdout.

    Args:
        read: what it was made of. If it was in this file, it has to be there still.

    Raises:
        CursorDocumentError: streams would go back, or the file was changed since it was read.
    """
    if file == STREAM:
        data(document.text.removesuffix("\n"))
        return
    if not Path(file).parent.is_dir():
        raise ConfigError(f"there is no folder {Path(file).parent}", fix="make it first, or name another file")
    same = read is not None and read.path is not None and Path(read.path).resolve() == Path(file).resolve()
    save(document, file, force=force, read=read if same else None)
    note(f"Written: {file}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is not COLUMN=VALUE", fix="write it as in updated_at=2024-01-15T10:30:00Z")
    return name, value


def _value(name: str, text: str, before: Any, *, force: bool) -> Any:
    """What was meant by a value of the column ``name``: of the type that it had before, else JSON, else a text.

    Args:
        force: the value may have another form or type than the one before; a text is then in quotes, as in JSON.
    """
    parsed = _read(text)
    if isinstance(before, str):
        return text if force else _as_before(name, text, parsed, before)
    if before is None:
        if name not in _TEXTS and parsed is _NO_JSON and _NUMBER.fullmatch(text):
            raise ConfigError(
                f"`{name}`: {text!r} looks like a number, and is none in JSON",
                fix=f"write the number as in 1000; or, if it is a text, {name}='\"{text}\"'",
            )
        return text if name in _TEXTS or parsed is _NO_JSON else parsed
    if parsed is None or (parsed is not _NO_JSON and kind_of(parsed) == kind_of(before)):
        return parsed
    if force and isinstance(parsed, str | int | Decimal | bool):
        return parsed
    what = "number" if kind_of(before) == "a number" else kind_of(before)
    raise ConfigError(
        f"`{name}`: {text!r} is no {what}, as {write_json(before)} is",
        fix=f"give one, as JSON writes it; if the column has another type now, {name}='\"TEXT\"' --force writes a text",
    )


def _read(text: str) -> Any:
    """The value of a JSON text; a whole number is one in each of its forms."""
    try:
        parsed = read_strict(text)
    except (ValueError, ArithmeticError, RecursionError):
        return _NO_JSON
    if not isinstance(parsed, Decimal):
        return parsed
    whole, _, fraction = plain(parsed).partition(".")
    return int(whole) if is_integer(whole) and not fraction.strip("0") else parsed


def _as_before(name: str, text: str, parsed: Any, before: str) -> str:
    """A text in the form of the one before: of a whole number, or of a date or time; else as it is."""
    what = None
    if is_integer(before):
        number = str(parsed) if isinstance(parsed, int | Decimal) else text
        if is_integer(number):
            return number
        what = "whole number"
    elif is_instant(before) and not is_instant(text):
        what = "date or time"
    if what is None:
        return text
    raise ConfigError(
        f"`{name}`: {text!r} is no {what}, as {before!r} is", fix="give one; --force writes the text as it is"
    )


def _require_own(document: CursorDocument, stream: str, values: dict[str, Any]) -> None:
    """Refuse to set in one stream what streams share."""
    shared = document.shared
    if shared is not None and "lsn" in values and document.by_id[stream].position == shared.position:
        others = len(shared.streams or ()) - 1
        raise ConfigError(
            f"{stream} shares its log position with {others} other streams",
            fix="say --shared to move all of them",
        )
