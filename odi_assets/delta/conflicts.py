"""Conflict checks: what of a table a write was computed from, and whether others have changed that since.

deltalake lets two writers add files without a word: it looks at what a commit removes, not at what it read. Of two
writes of one empty partition, or of one new key, both would stay. So such commits are made on the version they were
computed from, or on a later one that is the same where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from odi_assets.config.models import WriteMode
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.table import LiveFile, TableHandle

Basis = Literal["nothing", "partitions", "table"]
"""What a write was computed from: nothing of the table, the partitions it replaces, or any of its rows."""

BASES: dict[WriteMode, Basis] = {
    WriteMode.APPEND: "nothing",
    WriteMode.OVERWRITE: "nothing",
    WriteMode.PARTITION_OVERWRITE: "partitions",
    WriteMode.UPSERT: "table",
    WriteMode.APPEND_ONCE: "table",
}


def stands(handle: TableHandle, now: TableHandle, basis: Basis, replaced: Sequence[PartitionValues]) -> bool:
    """Whether ``now`` holds the same files as ``handle`` wherever the write looked."""
    if not handle.exists or not now.exists or handle.table_id != now.table_id:
        return False
    if basis == "nothing":
        return True
    if basis == "table":
        return _paths(handle.live_files) == _paths(now.live_files)
    return _paths(_within(handle, replaced)) == _paths(_within(now, replaced))


def _paths(files: Sequence[LiveFile]) -> set[str]:
    return {file.path for file in files}


def _within(handle: TableHandle, replaced: Sequence[PartitionValues]) -> list[LiveFile]:
    names = sorted({name for values in replaced for name in values})
    wanted = {tuple(values.get(name) for name in names) for values in replaced}
    if any(set(values) != set(names) for values in replaced):
        # Partitions named by different columns: look at each by its own.
        return [f for f in handle.live_files if any(_is_in(f.partition, values) for values in replaced)]
    return [file for file in handle.live_files if tuple(file.partition.get(name) for name in names) in wanted]


def _is_in(partition: PartitionValues, wanted: PartitionValues) -> bool:
    return all(partition.get(name) == value for name, value in wanted.items())
