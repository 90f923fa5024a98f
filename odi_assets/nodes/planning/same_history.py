"""Whether the tables that a node reads still have the history in which its marks were set.

A table that was put back from a copy of its folder keeps its id, and comes to the same version numbers again. Read on
above a mark of the other history, rows of the new one would be missing, and rows of the old one would stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odi_assets.delta.errors import cannot_look
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError, TableError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.sources.marks import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def other_histories(node: Node, marks: Mapping[str, Mark]) -> dict[str, str]:
    """By source whose history differs from the history of its mark: what differs, in words.

    Raises:
        TableError: the log of a table cannot be read.
    """
    differences = {
        source.name: source.other_history(marks[source.name]) for source in node.sources if source.name in marks
    }
    return {name: how for name, how in differences.items() if how is not None}


def in_same_history(node: Node, marks: dict[str, Mark], target: TableHandle) -> dict[str, Mark]:
    """``marks`` of ``node``. A node that replaces its table with each run reads a source of another history whole, and
    has no mark of it.

    Raises:
        IdentityMismatchError: a mark was set in another history.
    """
    others = other_histories(node, marks)
    if others and node.config.write.mode.traits.increment != "table":
        raise _not_what_was_read(node, target, others, lambda marks: not other_histories(node, marks))
    return {name: mark for name, mark in marks.items() if name not in others}


def require_uncorrected(plan: NodePlan, spark: SparkSession) -> None:
    """Raises IdentityMismatchError if rows that a plan counts as loaded have changed."""
    node = plan.node

    def corrections(marks: Mapping[str, Mark | None]) -> dict[str, str]:
        by_source = {
            source.name: source.corrections(mark, spark)
            for source in node.sources
            if (mark := marks.get(source.name)) is not None
        }
        return {name: how for name, how in by_source.items() if how is not None}

    corrected = corrections({read.name: read.before for read in plan.reads if read.rechecked})
    if corrected:
        is_right = lambda marks: not other_histories(node, marks) and not corrections(marks)  # noqa: E731
        raise _not_what_was_read(node, plan.target, corrected, is_right)


def _not_what_was_read(
    node: Node, target: TableHandle, differences: Mapping[str, str], is_right: Callable[[dict[str, Mark]], bool]
) -> IdentityMismatchError:
    """The error of marks whose sources are not what they were.

    Args:
        differences: by source, what became of it.
        is_right: whether all rows up to some marks are what they were.
    """
    back = _last_version(node, target, is_right)
    rewind = (
        ""
        if back is None
        else f"rewind it to before it read what is gone: odi state rewind {node} --to-version {back} --cascade; or "
    )
    return IdentityMismatchError(
        f"{node}: {'; '.join(differences.values())}; above its HWM, rows would be missing, and rows that are gone "
        "would stay",
        fix=f"{rewind}rebuild its table from its sources: odi run {node.command} --full-refresh; "
        f"or go on above the HWM with the table as it is: odi state accept {node}",
        node=str(node),
    )


def _last_version(node: Node, target: TableHandle, is_right: Callable[[dict[str, Mark]], bool]) -> int | None:
    """The newest version of the node's table that holds only what its sources still hold; None if that is not known, or
    there is none that can be gone back to."""
    after: int | None = None
    for stamp in target.stamps():
        hwm = CommitFacts.of(stamp).hwm if stamp.app_id == app_id(node.key) else None
        if hwm is None:
            continue
        if any(identity.history is None for identity in hwm.measures.values()) or not hwm.measures:
            return None
        if after is not None and is_right(node.marks(hwm.mark, hwm.remembered, hwm.measures)):
            return after - 1 if _is_whole(target, after - 1) else None
        after = stamp.version
    return None


def _is_whole(target: TableHandle, version: int) -> bool:
    try:
        before = TableHandle.open(target.location, version)
    except TableError as error:
        if cannot_look(error):
            raise
        return False
    return not lost_files(target.location, before.live_files)
