"""From text to document, whichever tool wrote it, or to one report of everything that is wrong with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from odi_assets.documents.findings import DocumentFinding, Findings, document_error
from odi_assets.documents.model import CursorDocument
from odi_assets.documents.tools import CURSOR_TOOLS, recognise, spec_of, specs
from odi_assets.errors import CursorDocumentError
from odi_assets.util.collector import collector_paused
from odi_assets.util.exact_json import MAX_DEPTH
from odi_assets.util.json_scan import Scan, is_deeper, read_strict, scan

ATTEMPTS, WAIT_SECONDS = 3, 0.1
"""How often a file is read that looks half written, and how long to wait between."""
_TORN = (
    "read again when no sync runs, for the tools write their files in place; if it stays, restore a copy, or the state "
    "that `odi cursors import` kept"
)
_EXPORT = "odi-state"
"""What exports of state call themselves."""
_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True)
class Inspection:
    """What a text holds.

    Attributes:
        document: None if a finding is an error.
        findings: all there is to say, in the order of the text.
        torn: the text ends in the middle, or is empty: all positions are lost.
        tool: whose document it is, or seems to be; None if that is not known.
    """

    document: CursorDocument | None
    findings: tuple[DocumentFinding, ...]
    torn: bool = False
    tool: str | None = None

    def require(self) -> CursorDocument:
        """The document.

        Raises:
            CursorDocumentError: a finding is an error.
        """
        if self.document is None:
            raise document_error(self.tool or "cursor", self.findings, torn=self.torn)
        return self.document


def parse(text: str, *, tool: str | None = None, path: str | Path | None = None) -> CursorDocument:
    """The document in a text.

    Args:
        tool: whose it is; recognised by its shape if None.
        path: where it came from, for messages.

    Raises:
        CursorDocumentError: it is not JSON, or no document that can be relied on. ``findings`` lists all that is wrong,
            with line, column, key and remedy, ``problems`` the findings that are errors; ``path``, ``line``, ``column``
            and ``key`` come from the first error; ``torn`` says that the text ends in the middle.
    """
    return inspect(text, tool=tool, path=path).require()


def load(path: str | Path, *, tool: str | None = None) -> CursorDocument:
    """The document in a file; see :func:`parse`. A file that looks half written is read again.

    Raises:
        CursorDocumentError: there is no such file, or what :func:`parse` raises.
    """
    return inspect_file(path, tool=tool).require()


def inspect_file(path: str | Path, *, tool: str | None = None) -> Inspection:
    """What a file holds. A file that looks half written is read again.

    Raises:
        CursorDocumentError: it cannot be read.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise CursorDocumentError(
                f"{path}: this cursor document cannot be read: {error.strerror or error}",
                fix="check the path; a tool writes the file at the end of its first sync",
                path=str(path),
            ) from error
        inspection = inspect_bytes(raw, tool=tool, path=path)
        if not inspection.torn or attempt == ATTEMPTS:
            break
        time.sleep(WAIT_SECONDS)
    return inspection


def inspect_bytes(raw: bytes, *, tool: str | None = None, path: str | Path | None = None) -> Inspection:
    """What the bytes of a file hold; see :func:`inspect`."""
    try:
        return inspect(raw.decode("utf-8"), tool=tool, path=path)
    except UnicodeDecodeError as error:
        findings = Findings(tool or "cursor")
        before = error.object[: error.start].decode()
        encoding = _ENCODINGS.get(raw[:2])
        what = f"the file is {encoding}" if encoding else f"the byte 0x{error.object[error.start]:02x} is not UTF-8"
        findings.add((), f"this is not JSON: {what}", "save it as UTF-8, or restore a copy", start=len(before))
        return Inspection(None, findings.placed(before + "\ufffd", _name(path)), tool=tool)


def inspect(text: str, *, tool: str | None = None, path: str | Path | None = None) -> Inspection:
    """What a text holds: a document, or everything that is wrong with it. It never fails.

    Args:
        tool: whose it is; recognised by its shape if None.
        path: where it came from, for messages.
    """
    with collector_paused():
        return _inspect(text, tool, path)


def _inspect(text: str, tool: str | None, path: str | Path | None) -> Inspection:
    findings = Findings(tool or "cursor")
    value, many, scanned = _read(text, findings)
    if scanned is not None and not scanned.complete:
        return Inspection(None, findings.placed(text, _name(path), scanned=scanned), torn=scanned.torn, tool=tool)
    if isinstance(value, dict) and value.get("format") == _EXPORT:
        findings.add(
            (), "this is state that `odi state export` wrote, and no tool's document", "odi state import reads it"
        )
        return Inspection(None, findings.placed(text, _name(path), scanned=scanned), tool=tool)
    seen = recognise(value, many=many)
    if tool is not None and seen is not None and seen != tool:
        findings.add(
            (), f"this is a document of {seen}, not of {tool}", f"give one of {tool}, or `odi cursors convert` this one"
        )
    known = tool or seen
    if known is None:
        names = [f"{spec.name}'s" for spec in specs()]
        findings.add(
            (),
            f"this is no cursor document that is known: neither {', '.join(names[:-1])} nor {names[-1]}"
            if value != {}
            else "an empty object may be any tool's, and holds no position of any stream",
            f"name the tool, if it is one: {', '.join(CURSOR_TOOLS.names())}",
        )
    findings.tool = known or "cursor"
    read = None
    if known is not None and (tool is None or seen in (None, tool)):
        read = spec_of(known).read_lines if many else spec_of(known).read
    document = read(value, findings) if read is not None else None
    placed = findings.placed(text, _name(path), many=many, scanned=scanned)
    if document is None or findings.has_errors:
        return Inspection(None, placed, tool=known)
    document = replace(document, text=text, many=many, warnings=placed, path=None if path is None else str(path))
    return Inspection(document, placed, tool=known)


def _read(text: str, findings: Findings) -> tuple[Any, bool, Scan | None]:
    """The value of a text, whether it is several values one after another, and the scan that was needed if any."""
    try:
        value = read_strict(text)
        if not is_deeper(value, MAX_DEPTH):
            return value, False, None
    except (ValueError, ArithmeticError, RecursionError):
        # The scan below finds what is wrong, and where.
        pass
    scanned, many = scan(text), False
    if isinstance(scanned.value, dict) and not scanned.complete and not scanned.torn:
        lines = scan(text, many=True)
        if len(lines.value) > 1 and recognise(lines.value, many=True) is not None:
            scanned, many = lines, True
    for flaw in scanned.flaws:
        torn = scanned.torn and flaw is scanned.flaws[-1]
        message = f"{flaw.message}; all positions are lost" if torn else flaw.message
        findings.add(flaw.path, message, _TORN if torn else flaw.remedy, start=flaw.start)
    return scanned.value, many, scanned


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
