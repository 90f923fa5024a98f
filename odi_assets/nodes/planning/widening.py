"""Which partitions of a node an increment of its inputs touches: those have to be computed anew as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from odi_assets.delta.file_pruning import values_of
from odi_assets.errors import ConfigError
from odi_assets.sources.delta.versions import VersionStep
from odi_assets.sources.model import PartitionFilter, ReadPlan
from odi_assets.sources.reads import SourceRead


def affected_partitions(sources: Mapping[str, SourceRead], column: str, node: str) -> PartitionFilter | None:
    """The values of ``column`` that the changed rows of all inputs have, found without Spark where the log tells.

    None: every partition. A filter that is ``pending``: only the changed rows themselves can tell.

    Raises:
        ConfigError: an incremental input has no such column.
    """
    values: set[str | None] = set()
    pending = False
    for source in sources.values():
        if source.step is None or source.step.extent == "nothing":
            continue
        _require_column(source.plan, column, node)
        if source.step.extent == "table" or source.step.changes is None:
            return None
        found = _values(source.plan, source.step, column)
        pending = pending or found is None
        values |= found or set()
    if pending:
        return PartitionFilter(column, pending=True)
    return PartitionFilter(column, tuple(sorted(values, key=lambda value: (value is not None, value or ""))))


def _require_column(read: ReadPlan, column: str, node: str) -> None:
    if read.handle is not None and column not in read.handle.columns:
        raise ConfigError(
            f"{node} is written by partitions of `{column}`, and its incremental input "
            f"`{read.name}` has no such column",
            fix=f"add `{column}` to {read.label}, or read the input whole (without `incremental`)",
            node=node,
            column=column,
        )


def _values(read: ReadPlan, step: VersionStep, column: str) -> set[str | None] | None:
    if read.handle is None or step.changes is None:
        return None
    if column in read.handle.partition_columns:
        return {p[column] for commit in step.changes.commits for p in commit.partitions}
    # A replaced row may have stood in another partition, and statistics of removed files are not in the log.
    if any(commit.updated or commit.deleted or commit.kind == "partitions" for commit in step.changes.commits):
        return None
    found = values_of(read.handle, column, step.changes.files)
    return None if found is None else set(found)
