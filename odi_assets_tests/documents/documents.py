"""OLake documents in the shapes that its documentation and its versions give them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings

from odi_assets.documents import CursorDocument, StreamMove, compare, parse_olake

on_a_busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis measures time, and this suite shares its cores."""


def document(*streams: dict[str, Any], type: str = "STREAM", **rest: Any) -> CursorDocument:
    """A parsed document of these streams."""
    return parse_olake(json.dumps({"type": type, **rest, "streams": list(streams)}))


def stream(state: dict[str, Any], name: str = "orders", namespace: str = "shop") -> dict[str, Any]:
    """One entry of ``streams``."""
    return {"stream": name, "namespace": namespace, "sync_mode": "", "state": state}


def postgres(lsn: str, type: str = "GLOBAL") -> CursorDocument:
    """A finished snapshot and a shared LSN."""
    shared = {"state": {"lsn": lsn}, "streams": ["shop.orders"]}
    return document(stream({"chunks": []}), type=type, **{"global": shared})


def mysql(file: str, pos: int, server_id: int = 1000) -> CursorDocument:
    """A finished snapshot and a shared binary log position, nested as OLake 0.9 writes it."""
    position = {"server_id": server_id, "state": {"position": {"Name": file, "Pos": pos}}}
    return document(stream({"chunks": []}), **{"global": {"state": position, "streams": ["shop.orders"]}})


def mongo(token: str) -> CursorDocument:
    """A finished snapshot and the stream's own resume token."""
    return document(stream({"_data": token, "chunks": []}))


def incremental(**cursors: Any) -> CursorDocument:
    """A finished snapshot and a value for each cursor column."""
    return document(stream({"chunks": [], **cursors}))


def the_move(old: CursorDocument, new: CursorDocument) -> StreamMove:
    """The move of the only stream."""
    (move,) = compare(old, new)
    return move
