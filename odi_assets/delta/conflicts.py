"""The conflict check: whether what a commit was computed from is still the same when other commits came first.

deltalake lets two writers add files without a conflict: it looks at what a commit removes, not at what it read. Of two
writes of one empty partition, or of one new key, both would stay. So such commits are made on the version they were
computed from, or on a later one that is the same where it matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from odi_assets.config.write_modes import ComputedFrom
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.table import LiveFile, TableHandle


def is_unchanged(
    then: TableHandle, now: TableHandle, computed_from: ComputedFrom, replaced: Iterable[PartitionValues]
) -> bool:
    """Whether ``now`` is the table ``then``, with the same files in the parts that a commit was computed from.

    Args:
        replaced: the partitions that the commit replaces, where it was computed from ``partitions``.
    """
    if not then.exists or not now.exists or then.table_id != now.table_id:
        return False
    if computed_from == "nothing":
        return True
    if computed_from == "table":
        return _paths(then.live_files) == _paths(now.live_files)
    is_replaced = membership(replaced)
    before, after = ([f for f in handle.live_files if is_replaced(f.partition)] for handle in (then, now))
    return _paths(before) == _paths(after)


def _paths(files: Sequence[LiveFile]) -> set[str]:
    return {file.path for file in files}


def membership(partitions: Iterable[PartitionValues]) -> Callable[[PartitionValues], bool]:
    """A test whether a partition is, or is part of, one of ``partitions``.

    They may name some of the table's partition columns only. One test takes the same time however many they are.
    """
    wanted: dict[tuple[str, ...], set[tuple[str | None, ...]]] = defaultdict(set)
    for values in partitions:
        names = tuple(sorted(values))
        wanted[names].add(tuple(values[name] for name in names))
    return lambda values: any(tuple(map(values.get, names)) in combinations for names, combinations in wanted.items())
