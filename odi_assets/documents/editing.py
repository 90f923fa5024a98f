"""Changes one stream of a document; every other byte of it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition, SnapshotStatus, Tool
from odi_assets.documents.olake import write as olake
from odi_assets.documents.olake.state import POSITION_KEYS
from odi_assets.documents.reading import parse
from odi_assets.documents.tools import DocumentWriter, spec_of
from odi_assets.documents.values import Scalar
from odi_assets.errors import CursorDocumentError
from odi_assets.util.exact_json import JsonPath, value_at, write
from odi_assets.util.json_scan import locate, splice, with_member, without_member


def writer_of(tool: str) -> DocumentWriter:
    """What changes and makes documents of a tool.

    Raises:
        CursorDocumentError: its documents are read alone.
    """
    spec = spec_of(tool)
    if spec.writer is None:
        raise CursorDocumentError(
            f"documents of {spec.name} are read here, and cannot be changed or made",
            fix="change the document with the tool itself, or by hand, and check it with odi cursors check",
        )
    return spec.writer


def with_cursors(document: CursorDocument, stream_id: str, values: Mapping[str, Scalar]) -> CursorDocument:
    """The document with other values of a stream's cursor columns.

    Raises:
        CursorDocumentError: it has no such stream or column.
    """
    writer = writer_of(document.tool)
    _require(document, stream_id)
    if document.tool == Tool.OLAKE:
        return _edited(document, _member_edits(document, olake.state_places(document).get(stream_id, []), values))
    known = writer.settable(document, stream_id)
    edits = []
    for column, value in values.items():
        if column not in known:
            raise CursorDocumentError(
                f"{_name(document)}: {stream_id} has no cursor `{column}` whose place is known",
                fix=f"it has {', '.join(known)}" if known else "edit the document by hand, and check it",
                path=document.path,
            )
        for at in known[column]:
            edits.append(_value_edit(document, at, writer.encoded(value, value_at(document.content, at))))
    return _edited(document, edits)


def values_of(document: CursorDocument, stream_id: str) -> dict[str, Any]:
    """What :func:`with_cursors` can set in a stream, by name, as the document has it now; of several places the last.

    Raises:
        CursorDocumentError: it has no such stream.
    """
    _require(document, stream_id)
    places = writer_of(document.tool).settable(document, stream_id)
    return {name: value_at(document.content, at[-1]) for name, at in places.items()}


def with_states(document: CursorDocument, states: Mapping[str, str]) -> CursorDocument:
    """The document with other states of some streams, each as JSON text; streams that it does not have are left out."""
    places = writer_of(document.tool).state_places(document)
    edits = []
    for stream_id, text in states.items():
        for at in places.get(stream_id, []):
            _, start, end = locate(document.text, at, many=document.many)
            edits.append((start, end, text))
    return _edited(document, edits)


def states_of(document: CursorDocument) -> dict[str, str]:
    """The state of each stream as JSON text; of several places of one stream the last."""
    places = writer_of(document.tool).state_places(document)
    return {stream_id: write(value_at(document.content, at[-1])) for stream_id, at in places.items()}


def with_stream(document: CursorDocument, stream: CursorStream) -> CursorDocument:
    """OLake's document with a stream as given: its snapshot, its own position and its cursors. A log position that is
    shared stays as it is.

    Members of its state that are the same already stay byte for byte, in their order; a new stream comes last.

    Raises:
        CursorDocumentError: the document has no place for the stream.
    """
    if document.tool != Tool.OLAKE:
        raise CursorDocumentError(f"{_name(document)}: only OLake's streams can be written whole", path=document.path)
    new = olake.entry(stream, document.shared)
    places = olake.state_places(document).get(stream.id, [])
    if not places:
        if not isinstance(document.content.get("streams"), list):
            content = dict(document.content) | {"streams": [new]}
            return parse(write(content), tool=document.tool, path=document.path)
        return _edited(document, [with_member(document.text, ("streams",), write(new))])
    (at,) = places
    before, old, members = document.by_id[stream.id], value_at(document.content, at), dict(new["state"])
    gone = {name for name in before.cursors if name not in stream.cursors}
    if stream.snapshot.status is SnapshotStatus.ABSENT:
        gone.add("chunks")
    if stream.position == before.position:
        # It may be under another of its names.
        members = {key: value for key, value in members.items() if key not in POSITION_KEYS or key in old}
    else:
        gone |= {key for key in old if key in POSITION_KEYS and key not in members}
    for key in gone & old.keys():
        document = _edited(document, [without_member(document.text, (*at, key))])
    return _edited(document, _member_edits(document, [at], members))


def without_streams(document: CursorDocument, stream_ids: Sequence[str]) -> CursorDocument:
    """The document in which these streams were never read: the tool reads them from their start.

    Raises:
        CursorDocumentError: it has no such stream.
    """
    for stream_id in stream_ids:
        _require(document, stream_id)
        places = writer_of(document.tool).removals(document, stream_id)
        if not places:
            raise CursorDocumentError(
                f"{_name(document)}: it is not known where the state of {stream_id} is",
                fix="edit the document by hand, and check it",
                path=document.path,
            )
            # One by one: an element that goes moves the elements after it.
        for at in reversed(places):
            document = _edited(document, [without_member(document.text, at, many=document.many)])
    return document


def with_shared_position(document: CursorDocument, values: Mapping[str, Any]) -> CursorDocument:
    """OLake's document with other members of the log position that streams share, such as ``lsn``.

    Raises:
        CursorDocumentError: it has no such members.
    """
    edits = []
    for key, value in values.items():
        at = _shared_place(document, key)
        if at is None:
            raise CursorDocumentError(
                f"{_name(document)}: streams share no `{key}`",
                fix="name `lsn`, `Name`, `Pos` or `server_id`",
                path=document.path,
            )
        edits.append(_value_edit(document, at, value))
    return _edited(document, edits)


def with_shared(document: CursorDocument, shared: SharedPosition) -> CursorDocument:
    """OLake's document with another shared position, and the streams that share it; all else stays byte for byte."""
    if shared.position is None:
        raise ValueError("a shared position is to be written")
    text = write({"state": dict(olake.shared_state(shared.position)), "streams": sorted(shared.streams or ())})
    if "global" in document.content:
        _, start, end = locate(document.text, ("global",), many=document.many)
        return _edited(document, [(start, end, text)])
    return _edited(document, [with_member(document.text, (), f'"global":{text}', many=document.many)])


def _shared_place(document: CursorDocument, key: str) -> JsonPath | None:
    pending: list[JsonPath] = [("global",)]
    while pending and document.tool == Tool.OLAKE:
        at = pending.pop(0)
        value = value_at(document.content, at)
        if isinstance(value, dict):
            if key in value and not isinstance(value[key], dict | list):
                return (*at, key)
            pending += [(*at, name) for name in value if name != "streams"]
    return None


def _member_edits(
    document: CursorDocument, places: Sequence[JsonPath], members: Mapping[str, Any]
) -> list[tuple[int, int, str]]:
    edits = []
    for at in places:
        old = value_at(document.content, at)
        for key, value in members.items():
            if key in old and _is_other(key, old[key], value):
                edits.append(_value_edit(document, (*at, key), value))
        new = ",".join(f"{write(key)}:{write(value)}" for key, value in members.items() if key not in old)
        if new:
            edits.append(with_member(document.text, at, new, many=document.many))
    return edits


def _is_other(key: str, old: Any, new: Any) -> bool:
    if key == "chunks" and isinstance(old, list):
        return {write(chunk, sort=True) for chunk in old} != {write(chunk, sort=True) for chunk in new}
    return write(old, sort=True) != write(new, sort=True)


def _value_edit(document: CursorDocument, at: JsonPath, value: Any) -> tuple[int, int, str]:
    _, start, end = locate(document.text, at, many=document.many)
    return start, end, write(value)


def _edited(document: CursorDocument, edits: list[tuple[int, int, str]]) -> CursorDocument:
    return parse(splice(document.text, edits), tool=document.tool, path=document.path)


def _require(document: CursorDocument, stream_id: str) -> None:
    if document.stream(stream_id) is None:
        raise CursorDocumentError(
            f"{_name(document)} has no stream {stream_id}",
            fix=f"it has {', '.join(sorted(document.by_id)[:10])}" if document.streams else "it has none",
            path=document.path,
        )


def _name(document: CursorDocument) -> str:
    return document.path or f"this {document.tool} document"
