"""Takes a stream node back: its table, its checkpoint, and what is recorded and kept of its batches, to one batch.

A copy of the checkpoint is kept, so that one can go forward again, to rows that were kept of the batches too. Should
this die in the middle, the same command completes it: until the checkpoint is back, its node cannot run, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odi_assets.checkpoints.verdict import judge
from odi_assets.connections.location import Location
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, ConfigError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.recovery.table_versions import Choice
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.streams.execution.kept_rows import bring_in_step
from odi_assets.streams.execution.ledger import StreamLedger
from odi_assets.streams.planning.inputs import ends_at, stream_inputs
from odi_assets.streams.planning.kept_rows import kept_tables
from odi_assets.streams.planning.marks import batch_at, checkpoint_named, stream_facts, stream_marks, stream_stamps
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.truncate import CheckpointFolder


@dataclass(frozen=True)
class CheckpointRewind:
    """How a node's checkpoint goes to a batch.

    Attributes:
        facts: the batch.
        before: the last batch in the table now.
        checkpoint: the checkpoint of the batch's query.
        source: the folder that holds the batch: the checkpoint itself, or a copy of it.
    """

    facts: StreamFacts
    before: StreamFacts | None
    checkpoint: Location
    source: Location

    def gone_files(self, node: Node) -> Iterator[str]:
        """The files that later batches have read, and that are gone from the landing zone."""
        log = stream_marks(node, TableHandle.open(node.target.location)).log
        inputs = stream_inputs(node)
        ends = ends_at(node, [source.name for source in inputs], ProgressLog(self.source), self.facts)
        for source in inputs:
            end = ends.get(source.name) or {}
            names = [name for loss in source.losses(log) for name in loss.names]
            read = log.read_files(source.name) if names else {}
            yield from (name for name in names if read[name].number > int(end.get("logOffset", -1)))

    def apply(self, node: Node) -> None:
        """Take checkpoint, ``meta_batches`` and kept rows to the batch; the table is there already."""
        folder, batch = CheckpointFolder(self.checkpoint), self.facts.batch
        log = ProgressLog(self.checkpoint)
        if self.source != self.checkpoint:
            if log.query() is not None:
                folder.keep_copy()
            folder.put_back(self.source)
        is_ahead = max(log.planned(), default=-1) > batch
        if is_ahead and self.source == self.checkpoint:
            folder.keep_copy()
        for which, location in kept_tables(node).items():
            table = TableHandle.open(location)
            if table.exists:
                # While the checkpoint has the batches that are undone, it is known which of their rows are there.
                bring_in_step(table, which, log, CommitFacts(node=str(node)), batch)
        if is_ahead:
            folder.truncate(batch, ends_at(node, log.names("sources"), log, self.facts))
        node.project.open_batches().forget_after(str(node), self.facts.query, batch)
        # Queries that came after it go too: of full refreshes.
        StreamLedger(node).write(TableHandle.open(node.target.location))


def plan_checkpoint(node: Node, before: TableHandle) -> CheckpointRewind:
    """How the checkpoint follows the table to the version that ``before`` was opened at. Changes nothing.

    Raises:
        ConfigError: that version has no batch of the node.
        CheckpointError: no checkpoint holds its batch (any more), or the state after it cannot be rebuilt.
    """
    now = TableHandle.open(node.target.location)
    facts = batch_at(node, now, int(before.version or 0))
    if facts is None:
        raise ConfigError(
            f"{node}: version {before.version} of its table has no batch of the stream, so no checkpoint belongs to it",
            fix=f"choose a later version (odi state rewind {node} --list); or start over: odi run {node.command} "
            "--full-refresh",
            node=str(node),
        )
    checkpoint, damage = checkpoint_named(node, facts.checkpoint), None
    for source in (checkpoint, *CheckpointFolder(checkpoint).copies()):
        log = ProgressLog(source)
        planned = log.batch(facts.batch) if facts.batch in log.committed() else None
        # A batch of the same files may be of another branch, which was computed under another definition.
        is_branch = planned is not None and facts.planned_ms in (0, planned.planned_ms)
        if planned is not None and is_branch and facts.is_same_batch(stream_facts(planned, source)):
            of_source = _damage(node, source, facts.batch)
            if of_source is None:
                return CheckpointRewind(facts, stream_marks(node, now).last, checkpoint, source)
            damage = damage or of_source
    if damage is not None:
        raise damage
    held = ProgressLog(checkpoint).committed()
    holds = f"it holds batches {held[0]} to {held[-1]}" if held else "it holds no batch"
    raise CheckpointError(
        f"{node}: its checkpoint does not hold batch {facts.batch} (any more): {holds} ({checkpoint.uri})",
        fix=f"choose a batch that it holds (`retain_batches` says how many are kept); or start over: odi run "
        f"{node.command} --full-refresh",
        node=str(node),
        path=checkpoint.uri,
    )


def _damage(node: Node, checkpoint: Location, batch: int) -> CheckpointError | None:
    """Why a query could not go on after a batch of a checkpoint; None if it can, or if the checkpoint is in a store."""
    if not checkpoint.is_local:
        return None
    files = judge(checkpoint.local_path).files
    if batch in files.readable:
        return None
    before, fault = [number for number in files.readable if number < batch], files.lost.get(batch)
    why = "" if fault is None else f": {fault.path} {fault.fault}"
    way = f"go back further: odi state rewind {node} --to-batch {before[-1]}; or " if before else ""
    return CheckpointError(
        f"{node}: the state after batch {batch} cannot be rebuilt from {checkpoint.uri}{why}",
        fix=f"{way}put the file back from a copy (`odi checkpoint files {node}` names all that are damaged); or start "
        f"over: odi run {node.command} --full-refresh",
        node=str(node),
        path=checkpoint.uri,
    )


def at_batch(node: Node, number: int) -> Choice:
    """The version of a node's table that has the rows up to batch ``number`` of its query."""

    def choose(handle: TableHandle) -> int:
        marks = stream_marks(node, handle)
        query = marks.last.query if marks.last else None
        after: CommittedStamp | None = None
        for stamp, facts in stream_stamps(handle, app_id(node.key)):
            if facts is not None and facts.batch == number and facts.query == query:
                if after is None:
                    in_effect = marks.held is not None and marks.held.batch == number
                    return int(handle.version or 0) if in_effect and marks.held == marks.last else stamp.version
                return after.version - 1
            after = stamp
        raise ConfigError(
            f"the log of the table of {node} has no batch {number} of its query {query or ''}".rstrip(),
            fix=f"odi state rewind {node} --list shows the batches to go to",
            node=str(node),
        )

    return choose
