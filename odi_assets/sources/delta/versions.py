"""Version increments: what an upstream Delta table gained since the version last read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from odi_assets.delta.changes import TableChanges, changes
from odi_assets.delta.maintenance.restore import removed_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError
from odi_assets.sources.marks import VersionMark
from odi_assets.sources.snapshot import Partitions
from odi_assets.util.words import counted

Extent = Literal["nothing", "rows", "partitions", "table"]


@dataclass(frozen=True)
class VersionStep:
    """From the mark to the table's version.

    Attributes:
        extent: how much has to be read: nothing, the changed rows, whole partitions, the whole table.
        changes: the commits in between; None if the table is read whole.
        reason: the step in words.
    """

    extent: Extent
    after: VersionMark
    reason: str
    changes: TableChanges | None = None


def other_table(mark: VersionMark, handle: TableHandle) -> str:
    """What became of a table whose id is not that of the mark, to complete "the table …"."""
    path = mark.measures.place if mark.measures is not None else ""
    if path and path != handle.location.true_path():
        return f"is another table than the one that was read, which is at {path}"
    return "was dropped and made again"


def step(handle: TableHandle, mark: VersionMark | None, label: str, *, replaced: bool = False) -> VersionStep:
    """What to read of the table up to the version of ``handle``.

    Compaction and other commits that change no row bring nothing new. The table is read whole if it was rewritten or
    restored, if others deleted rows of it, if it was dropped and made again (it has another id then), or if files with
    changed rows were vacuumed since.

    Args:
        replaced: rows that were replaced will be read too, as they were before.

    Raises:
        IncrementError: the mark is ahead of the table.
        TableError: a commit in between is no longer in the log.
    """
    upto = int(handle.version or 0)
    after = VersionMark(upto, handle.table_id)
    if mark is None:
        return VersionStep("table", after, f"whole, at version {upto}")
    version = mark.version
    if mark.table_id is not None and mark.table_id != handle.table_id:
        return VersionStep("table", after, f"whole, at version {upto}: {label} {other_table(mark, handle)}")
    if version > upto:
        raise IncrementError(
            f"{label} is at version {upto}, and it was read up to version {version} before",
            fix="if the table was put back from a copy, read it whole once: odi run --node NODE --full-refresh",
            label=label,
        )
    if version == upto:
        return VersionStep("nothing", after, f"nothing after version {version}")
    gained = changes(handle, version, upto)
    span = f"version {upto}" if upto == version + 1 else f"versions {version + 1} to {upto}"
    if gained.kind == "none":
        return VersionStep("nothing", after, f"{span}: no row changed")
    if gained.kind == "table":
        return VersionStep("table", after, f"whole, at version {upto}: rewritten in {span}")
    lost = _vacuumed(handle, gained, replaced=replaced)
    if lost:
        count = counted(lost, "file")
        return VersionStep("table", after, f"whole, at version {upto}: {count} of {span} were vacuumed")
    extent: Extent = "rows" if gained.kind == "rows" else "partitions"
    return VersionStep(extent, after, span, gained)


def within(made: VersionStep, only: Partitions) -> VersionStep:
    """``made``, if only rows in some partitions are wanted."""
    if made.extent != "rows" or made.changes is None:
        return made
    commits = tuple(
        replace(commit, files=tuple(file for file in commit.files if file.partition.get(only.column) in only.values))
        for commit in made.changes.commits
    )
    if not any(commit.files for commit in commits):
        values = ", ".join(str(value) for value in only.values)
        return VersionStep("nothing", made.after, f"{made.reason}: no row of {values}")
    return replace(made, changes=replace(made.changes, commits=commits))


def _vacuumed(handle: TableHandle, gained: TableChanges, *, replaced: bool) -> int:
    """How many files with changed rows were removed from the table since, and deleted from its storage."""
    wanted = list(gained.files) if gained.kind == "rows" else []
    if replaced:
        wanted += [*gained.gone, *gained.files]
    return len(removed_files(handle, wanted))
