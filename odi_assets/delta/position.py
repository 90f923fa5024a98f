"""Where a Delta table stands, asked often: by the sensor for each of a thousand nodes, at each of its ticks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle

_LogStamp = tuple[str, int, int, int]
_known: dict[str, tuple[_LogStamp, Mapping[str, Any]]] = {}


def table_position(location: Location) -> Mapping[str, Any]:
    """The id and the version of a table, or that there is none.

    On a local disk, the table is opened only if its log has another newest commit than when it was opened last.

    Raises:
        TableError: it cannot be opened.
    """
    stamp = _log_stamp(location)
    if stamp is not None and (known := _known.get(location.uri)) is not None and known[0] == stamp:
        return known[1]
    position = TableHandle.open(location).position
    if stamp is not None:
        _known[location.uri] = stamp, position
    return position


def _log_stamp(location: Location) -> _LogStamp | None:
    """What identifies the newest commit of a log: its name, and its file; None where that is not known."""
    if not location.is_local:
        return None
    try:
        with os.scandir(location.local_path / "_delta_log") as entries:
            newest = max((e for e in entries if e.name.endswith(".json")), key=lambda e: e.name, default=None)
            if newest is None:
                return None
            status = newest.stat()
    except OSError:
        # Opening the table will show whether it is missing or cannot be looked at.
        return None
    return newest.name, status.st_ino, status.st_mtime_ns, status.st_size
