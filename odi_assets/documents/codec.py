"""How far a stream was read, as plain values for state and commits, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from odi_assets.documents.model import CursorChunk, CursorSnapshot, CursorStream, SnapshotStatus
from odi_assets.documents.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.documents.values import Scalar

_KINDS: Mapping[str, type[LogPosition]] = {
    kind.__name__: kind
    for kind in (BinlogPosition, ConsumerGroup, PostgresLsn, ResumeToken, SqlServerLsn, UnknownPosition)
}


def to_value(stream: CursorStream) -> dict[str, Any]:
    """A stream's position as values that state can hold; :func:`of_value` gives it back."""
    snapshot, position = stream.snapshot, stream.position
    return {
        "stream": stream.id,
        "at": text_of(stream),
        "snapshot": str(snapshot.status),
        "chunks": [list(chunk) for chunk in sorted(snapshot.chunks)],
        "reached": snapshot.reached,
        "position": None if position is None else {"kind": type(position).__name__, **vars(position)},
        "columns": dict(stream.cursors),
    }


def of_value(value: Mapping[str, Any]) -> CursorStream:
    """The stream that :func:`to_value` described, with its position alone.

    Raises:
        KeyError, TypeError, ValueError: it is no such description.
    """
    described = value["position"]
    position: LogPosition | None = None
    if described is not None:
        kind = _KINDS[described["kind"]]
        position = kind(**{item.name: described[item.name] for item in fields(kind)})
    chunks = frozenset(CursorChunk(str(low), str(high)) for low, high in value["chunks"])
    snapshot = CursorSnapshot(SnapshotStatus(value["snapshot"]), chunks, str(value["reached"]))
    return CursorStream(str(value["stream"]), "", "", "", snapshot, position, dict(value["columns"]))


def text_of(stream: CursorStream) -> str:
    """A stream's position in words: ``0/198C935``, ``updated_at 2024-01-15; 3 chunks left``."""
    parts = [str(stream.position)] if stream.position else []
    parts += [f"{name} {value}" for name, value in stream.cursors.items()]
    snapshot = stream.snapshot
    if snapshot.status is not SnapshotStatus.FINISHED:
        left = f", {len(snapshot.chunks)} chunks left" if snapshot.chunks else ""
        parts.append(f"snapshot {snapshot.status}{left}")
    return "; ".join(parts) or "snapshot finished"


def typed(value: Scalar) -> int | str | bool | Decimal | date | datetime | None:
    """A cursor's value with the type that it has: texts of dates and times as these, where nothing of them is lost."""
    if not isinstance(value, str) or not value[:1].isdigit():
        return value
    for kind in (date, datetime):
        try:
            parsed = kind.fromisoformat(value)
        except ValueError:
            continue
        same = parsed.isoformat() in (value, value.replace(" ", "T").replace("Z", "+00:00"))
        return parsed if same else value
    return value
