"""Sets aside what is torn of a stream's checkpoint: what the next run writes again, or all of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from odi_assets.checkpoints.inspect import missing_descriptions, torn_descriptions
from odi_assets.checkpoints.log_files import numbered_files, read_lines, read_object
from odi_assets.checkpoints.verdict import why_unusable
from odi_assets.connections.location import Location
from odi_assets.delta.maintenance.repair import set_aside
from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, StateError
from odi_assets.nodes.node import Node
from odi_assets.nodes.recovery.repair import Repaired
from odi_assets.state.delta.batches import stateful_operators
from odi_assets.streams.planning.kept_rows import UNMATCHED, kept_tables
from odi_assets.streams.planning.marks import checkpoint_base, checkpoint_named, last_batch, stream_marks


def checkpoint_in_use(node: Node) -> Location:
    """The checkpoint of a node's last batch, read from its table alone."""
    _, last = last_batch(node, TableHandle.open(node.target.location), streams_only=True)
    return checkpoint_base(node) if last is None else checkpoint_named(node, last.checkpoint)


def why_stuck(node: Node, checkpoint: Location) -> str | None:
    """Why a query cannot go on from a checkpoint of this machine; None if it can, or if there is none."""
    if not checkpoint.is_local or not checkpoint.local_path.is_dir():
        return None
    try:
        stream_marks(node, TableHandle.open(node.target.location), streams_only=True)
    except CheckpointError as error:
        return error.message
    why = why_unusable(checkpoint, _operators(node))
    if why is not None:
        return f"{checkpoint.uri}: {why}"
    # Spark goes on without it. Its State Reader, which finds the unmatched rows, does not.
    torn = torn_descriptions(checkpoint.local_path) if UNMATCHED in kept_tables(node) else {}
    return next(iter(torn.values()), None)


def missing_description(checkpoint: Location) -> str | None:
    """A description of the state of a checkpoint of this machine that is gone, without which its query goes on."""
    if not checkpoint.is_local:
        return None
    # A query that starts writes them one after the other.
    missing, again = missing_descriptions(checkpoint.local_path), missing_descriptions(checkpoint.local_path)
    return next((path for path in missing if path in again), None)


def _operators(node: Node) -> frozenset[int]:
    try:
        return stateful_operators(node.project.open_batches().of_node(str(node)))
    except StateError:
        # Doctor names what is wrong with the records.
        return frozenset()


def repair_checkpoint(node: Node, *, dry_run: bool) -> Iterator[tuple[str, tuple[str, ...], str | None, bool]]:
    """Set aside what keeps a node's query from going on.

    Yields:
        For each step: what is wrong, what is moved, relative to the folder above the checkpoint, where to (None in a
        dry run), and whether the checkpoint was set aside whole.

    Raises:
        TableError: a file cannot be moved.
    """
    checkpoint = checkpoint_in_use(node)
    why = why_stuck(node, checkpoint)
    above = replace(checkpoint, uri=posixpath.dirname(checkpoint.uri.rstrip("/")))
    name = posixpath.basename(checkpoint.uri.rstrip("/"))
    torn = () if why is None else (*_torn_commit(checkpoint), *torn_descriptions(checkpoint.local_path))
    if why is not None and torn:
        moves = tuple(f"{name}/{path}" for file in torn for path in _with_checksum(checkpoint, file))
        yield why, moves, None if dry_run else set_aside(above, moves), False
        why = None if dry_run else why_stuck(node, checkpoint)
    if why is not None:
        yield why, (name,), None if dry_run else set_aside(above, (name,)), True


def repaired(node: Node, *, dry_run: bool) -> Iterator[Repaired]:
    """Set aside what keeps a node's query from going on, and say what to run next.

    Raises:
        TableError: a file cannot be moved.
    """
    uri, version = checkpoint_in_use(node).uri, TableHandle.open(node.target.location).version
    for why, moves, aside, whole in repair_checkpoint(node, dry_run=dry_run):
        following = f"odi run {node.command}{' --full-refresh' if whole else ''}"
        yield Repaired(f"{node} (checkpoint)", uri, (why,), moves, version, aside, following)


def _torn_commit(checkpoint: Location) -> tuple[str, ...]:
    """The newest commit if it is torn, relative to the checkpoint: Spark computes its batch again."""
    folder = checkpoint.local_path / "commits"
    newest = max(numbered_files(folder), default=None)
    if newest is None:
        return ()
    try:
        read_object(folder / str(newest), "\n".join(read_lines(folder / str(newest))[1]))
    except CheckpointError:
        return (f"commits/{newest}",)
    return ()


def _with_checksum(checkpoint: Location, file: str) -> list[str]:
    """A file of the checkpoint and its checksum, as far as they are there."""
    folder, _, name = file.rpartition("/")
    return [path for path in (file, f"{folder}/.{name}.crc") if (checkpoint.local_path / path).exists()]
