"""The state stores of a folder, and what each is at a glance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import STORE
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, StateError
from odi_assets.store.log import VersionLog
from odi_assets.store.parts import REQUIRED
from odi_assets.util.lazy import pa_fs

_LOG = "_delta_log"


@dataclass(frozen=True)
class StoreSummary:
    """A state store at a glance.

    Attributes:
        uri: where it is.
        latest: its newest version; 0 if it has none.
        committed_at, writer: when and by whom that was committed; None if there is none.
        files, bytes: what the versions that are kept take.
    """

    uri: str
    latest: int
    committed_at: datetime | None
    writer: str | None
    files: int
    bytes: int


def require_store(location: Location) -> None:
    """Raises ConfigError if there is no state store at ``location``, StateError if that cannot be found out."""
    handle = TableHandle.open_once(location, owner=STORE)
    if handle.exists and set(handle.columns) >= REQUIRED:
        return
    what = "the Delta table there is another's" if handle.exists else "there is no Delta table"
    raise ConfigError(
        f"{location.uri} is no state store: {what}",
        fix="`odi store list FOLDER` lists the stores below a folder, `odi store list` the stores of nodes",
        uri=location.uri,
    )


def stores_below(folder: Location) -> list[StoreSummary] | None:
    """The state stores at ``folder`` and below it, in order of their paths; None if there is no such folder.

    Raises:
        StateError: the folder cannot be listed, or one of the tables in it cannot be opened.
    """
    try:
        if folder.is_local and not is_there(folder.local_path):
            return None
        uris = sorted(_tables(folder))
    except OSError as error:
        raise StateError(
            f"state stores in {folder.uri} cannot be looked for: {error}",
            fix="give odi the right to read that folder and those below it; nothing was taken for missing",
            uri=folder.uri,
        ) from error
    summaries = (_summary(replace(folder, uri=uri)) for uri in uris)
    return [summary for summary in summaries if summary is not None]


def _tables(folder: Location) -> Iterator[str]:
    if folder.is_local:
        for root, names, _ in os.walk(folder.uri, onerror=_raise):
            if _LOG in names:
                names.clear()
                yield root
        return
    with TableHandle(folder, None, STORE).calls("listing state stores"):
        listed = file_system(folder).get_file_info(pa_fs.FileSelector("", recursive=True, allow_not_found=True))
    logs = {info.path.partition(f"{_LOG}/")[0].rstrip("/") for info in listed if f"{_LOG}/" in info.path}
    yield from (f"{folder.uri.rstrip('/')}/{path}".rstrip("/") for path in logs)


def _raise(error: OSError) -> None:
    raise error


def _summary(location: Location) -> StoreSummary | None:
    handle = TableHandle.open_once(location, owner=STORE)
    if not handle.exists or not set(handle.columns) >= REQUIRED:
        return None
    latest = VersionLog(location, 1).latest(handle)
    return StoreSummary(
        location.uri,
        latest.version if latest else 0,
        latest.committed_at if latest else None,
        latest.writer if latest else None,
        len(handle.live_files),
        sum(file.size for file in handle.live_files),
    )
