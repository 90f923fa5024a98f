"""The app transactions of a table: who fenced a commit to it, also when the log no longer holds that commit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow.parquet as pq
from pyarrow import ArrowException

from odi_assets.delta.compaction import file_system
from odi_assets.delta.table import TableHandle

_LAST = "_delta_log/_last_checkpoint"


def app_ids_in(handle: TableHandle) -> set[str]:
    """The app ids of the table's newest checkpoint (Delta protocol, "Checkpoints"); none if there is no checkpoint.

    Raises:
        TableError: the checkpoint cannot be read.
    """
    if not handle.exists:
        return set()
    with handle.calls("reading the checkpoint of the Delta table"):
        return set(_app_ids(handle))


def _app_ids(handle: TableHandle) -> Iterator[str]:
    storage = file_system(handle.location)
    try:
        with storage.open_input_file(_LAST) as stream:
            last = json.loads(stream.read())
    except FileNotFoundError:
        return
    version, parts = int(last["version"]), int(last.get("parts") or 0)
    names = [f"{version:020d}.checkpoint.{part:010d}.{parts:010d}" for part in range(1, parts + 1)]
    for name in names or [f"{version:020d}.checkpoint"]:
        try:
            with storage.open_input_file(f"_delta_log/{name}.parquet") as stream:
                found = pq.read_table(stream, columns=["txn"]).column("txn").to_pylist()
        except ArrowException as error:
            raise OSError(f"{name}.parquet: {error}") from error
        yield from (one["appId"] for one in found if one is not None)
