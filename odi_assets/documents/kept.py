"""Documents kept in state: a key for each stream, with its position in types and its history, and one for the rest.

Key ``cursors/<name>`` holds the document as it was taken in, byte for byte; ``cursors/<name>/<stream>`` how far one
stream was read. The streams' keys are what counts: a document given out has the state of each stream from its key, so
that a stream can be moved back by moving its key back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from odi_assets.documents.canonical import fingerprint
from odi_assets.documents.codec import to_value, typed
from odi_assets.documents.compare import StreamMove, compare
from odi_assets.documents.editing import states_of, with_states, without_streams
from odi_assets.documents.files import require_forward
from odi_assets.documents.model import CursorDocument, CursorStream
from odi_assets.documents.reading import parse
from odi_assets.errors import StateError
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry, KeyRestore
from odi_assets.state.values import encode

PREFIX = "cursors/"


@dataclass(frozen=True)
class Kept:
    """A document in state.

    Attributes:
        taken_at: when it was taken in last.
    """

    document: CursorDocument
    taken_at: datetime


def key_of(name: str, stream_id: str | None = None) -> str:
    """The state key of a document, or of one of its streams."""
    return f"{PREFIX}{name}" if stream_id is None else f"{PREFIX}{name}/{stream_id}"


def name_of(path: str | Path) -> str:
    """The name that a document gets from its file: the file's name, without its ending."""
    return Path(path).name.removesuffix(".json") or "state"


def names(state: StateBackend) -> list[str]:
    """The documents in state."""
    keys = [entry.key.removeprefix(PREFIX) for entry in state.list_hwms() if entry.key.startswith(PREFIX)]
    return [name for name in keys if "/" not in name]


def take_in(
    state: StateBackend, name: str, document: CursorDocument, *, force: bool = False, dry_run: bool = False
) -> tuple[StreamMove, ...]:
    """Put the position of every stream of a document into state, all or none.

    Args:
        name: of the document; it is what it is given out by.
        force: also where streams go back.
        dry_run: change nothing.

    Returns:
        How the streams moved from what state had of them.

    Raises:
        CursorDocumentError: a stream would go back.
        StateConflictError: somebody else takes it in at the same time; nothing was written.
        StateError: the name cannot be part of a key.
    """
    if not name or "/" in name:
        raise StateError(
            f"{name!r} cannot be a document's name: it must not be empty nor have a `/`", fix="give --name"
        )
    before = {entry.key: entry for entry in state.list_hwms(deleted=True) if _is_of(entry.key, name)}
    kept = _document(before, name)
    moves = compare(kept.document, document) if kept else compare(_without_streams(document), document)
    if not force:
        require_forward(moves, f"the state of {name}")
    wanted: dict[str, Any] = {key_of(name): _head(document)}
    states = states_of(document)
    wanted |= {key_of(name, stream.id): _value(stream, states.get(stream.id)) for stream in document.streams}
    changes = _changes(before, wanted, state.environment)
    if changes and not dry_run:
        state.restore(changes)
    return moves


def give_out(state: StateBackend, name: str) -> Kept | None:
    """The document of that name as its streams' keys have it; None if there is none.

    Raises:
        StateError, CursorDocumentError: what state holds is no such document.
    """
    return _document({entry.key: entry for entry in state.list_hwms() if _is_of(entry.key, name)}, name)


def _is_of(key: str, name: str) -> bool:
    return key == key_of(name) or key.startswith(key_of(name, ""))


def _document(entries: Mapping[str, HwmEntry], name: str) -> Kept | None:
    head = entries.get(key_of(name))
    if head is None or head.deleted:
        return None
    if not isinstance(head.value, Mapping) or not isinstance(head.value.get("text"), str):
        raise StateError(
            f"{head.key} holds no cursor document", fix=f"odi state delete {head.key}, and import the document again"
        )
    document = parse(head.value["text"], tool=head.value.get("tool"), path=head.value.get("path"))
    present = states_of(document)
    changed: dict[str, str] = {}
    gone: list[str] = []
    for stream_id, text in present.items():
        entry = entries.get(key_of(name, stream_id))
        if entry is None or entry.deleted:
            gone.append(stream_id)
        elif isinstance(entry.value, Mapping) and entry.value.get("state") not in (None, text):
            changed[stream_id] = str(entry.value["state"])
    document = with_states(document, changed) if changed else document
    return Kept(without_streams(document, gone) if gone else document, head.updated_at)


def _without_streams(document: CursorDocument) -> CursorDocument:
    return CursorDocument(document.tool, document.type, document.version, (), None, {})


def _changes(entries: Mapping[str, HwmEntry], wanted: Mapping[str, Any], environment: str | None) -> list[KeyRestore]:
    now = datetime.now(UTC)
    moves = []
    for key in sorted(entries.keys() | wanted.keys()):
        before, value = entries.get(key), wanted.get(key)
        if before is not None and before.deleted == (key not in wanted) and before.value == value:
            continue
        at = now if before is None else max(now, before.updated_at + timedelta(microseconds=1))
        entry = HwmEntry(
            key,
            value,
            environment,
            at,
            before.revision + 1 if before else 1,
            deleted=key not in wanted,
            value_type=encode(value).type if key in wanted else None,
        )
        moves.append(KeyRestore(entry, None if before is None else before.revision))
    return moves


def _head(document: CursorDocument) -> dict[str, Any]:
    count = len(document.streams)
    return {
        "shown": f"{document.tool} document of {count} streams"
        if count != 1
        else f"{document.tool} document of 1 stream",
        "tool": str(document.tool),
        "path": document.path,
        "fingerprint": fingerprint(document),
        "text": document.text,
    }


def _value(stream: CursorStream, state: str | None) -> dict[str, Any]:
    """How far a stream was read, in types; ``state`` is what the document says of it, as JSON text."""
    described = to_value(stream)
    columns = {name: typed(value) for name, value in stream.cursors.items()}
    return {"shown": described["at"], **described, "columns": columns, "state": state}
