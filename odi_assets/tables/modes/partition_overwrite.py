"""The partitions that the rows belong to are replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence

from odi_assets.delta.commit import FileChanges
from odi_assets.delta.conflicts import membership
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.errors import TableError
from odi_assets.tables.modes.base import Mode, Write
from odi_assets.tables.reader import read_files


class PartitionOverwrite(Mode):
    """Replaces the partitions that the write names, too, where no row is written to them."""

    def stage(self, write: Write) -> FileChanges:
        """Stage the rows in place of all files of their partitions."""
        _require_partition_columns(write)
        new = write.stage(write.df)
        there = [*(file.partition for file in write.handle.live_files), *(file.partition for file in new)]
        kinds = {field["name"]: field["type"] for field in json.loads(write.schema_json)["fields"]}
        named = write.spec.replaced_in(there, kinds)
        if named is not None:
            _require_within(new, named, write)
        is_replaced = membership([*(file.partition for file in new), *(named or ())])
        removed = [file for file in write.handle.live_files if is_replaced(file.partition)]
        # Those that are named may stand for others, by some of the table's columns alone.
        replaced = [*(named or ()), *(file.partition for file in removed)]
        if not removed or not write.adds_columns:
            return FileChanges("partitions", new, removed=removed, partitions=replaced)
        others = [file for file in write.handle.live_files if not is_replaced(file.partition)]
        moved = write.stage(read_files(write.spark, write.handle, others), "-moved") if others else []
        return FileChanges("partitions", new, moved, write.handle.live_files, partitions=replaced)


def _require_partition_columns(write: Write) -> None:
    if not write.spec.partition_by:
        raise TableError(
            f"partition_overwrite needs partition columns, and none is named for {write.uri}",
            fix="set `partition` or `write.partition_by` on the node",
            uri=write.uri,
        )


def _require_within(files: Sequence[WrittenFile], named: Sequence[PartitionValues], write: Write) -> None:
    is_named = membership(named)
    outside = next((file.partition for file in files if not is_named(file.partition)), None)
    if outside is not None:
        covered = ", ".join(map(_label, named[:5])) or str(write.spec.span or "")
        raise TableError(
            f"rows for partition {_label(outside)} of {write.uri} came out of an increment that "
            f"covers {covered or 'none'}; replacing it would lose its other rows",
            fix="let the transform keep the partition column of its input, or run the node with --full-refresh",
            uri=write.uri,
        )


def _label(partition: PartitionValues) -> str:
    return "/".join(f"{name}={'NULL' if value is None else value}" for name, value in partition.items())


MODE = PartitionOverwrite()
