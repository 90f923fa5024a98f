"""The quarantine of a node: the table of the rows that fail its checks, kept in step with the node's table.

Two tables cannot be committed at once. So the node's commit alone decides: the bad rows are staged as files in the
folder of the quarantine, the node's commit names them among its facts, and a commit of the quarantine puts them in
after that. A run that dies before the node's commit has put no row anywhere. One that dies between the two commits is
completed by the node's next run, with the very files that the node's commit names: nothing is computed again, so a
source that changed in between does not matter.

Each commit of the node has an app transaction of its own in the quarantine, by its write id. An odd number says that
its rows are in, an even one that a rewind has taken them out, none that they never were in. So two runs that complete
the same commit put its rows in once, whatever the order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.conflicts import membership
from odi_assets.delta.files.footers import WrittenFile, written_files
from odi_assets.delta.partition_values import PartitionValues, same_spelling
from odi_assets.delta.retry import raced
from odi_assets.delta.schema_evolution import plan_schema, replaced_schema
from odi_assets.delta.table import TableHandle
from odi_assets.errors import FencedError, OdiError, TableConflictError, TableError
from odi_assets.nodes.execution.checks.bad_rows import TABLE, BadRows, out_of_step
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.writers import Writer, committer, other_quarantiner, quarantine_facts
from odi_assets.nodes.result import ADOPT
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted

_log = logging.getLogger(__name__)


def bring_in_step(node: Node, target: TableHandle) -> int:
    """Complete what runs and rewinds that died have left: put bad rows in whose commit of the node was made, take those
    out whose commit was undone. Needs no Spark.

    Returns:
        How many commits of the node were completed.

    Raises:
        DamagedTableError: the quarantine's log holds no version any more.
        TableError: the quarantine cannot be read or written.
    """
    differences = out_of_step(node, target)
    for path in dict.fromkeys(bad.path for _, bad in differences.undone):
        undone = [bad for _, bad in differences.undone if bad.path == path]
        raced(lambda undone=undone: _take_out(node, target, undone), lost=_is_conflict)  # type: ignore[misc]
    for version, bad in differences.missing:
        _log.info("%s: its quarantine gets the rows of version %d", node, version)
        raced(lambda bad=bad, version=version: _put_in(node, version, bad), lost=_is_conflict)  # type: ignore[misc]
    lost = [*(missing for missing in differences.missing if is_lost(node, missing[1])), *differences.passed]
    if lost:
        _log.warning("%s: %s. To do: %s", node, *lost_rows(node, lost))
    return len(differences.undone) + len(differences.missing)


def _is_conflict(error: OdiError) -> bool:
    return isinstance(error, TableConflictError)


def _put_in(node: Node, version: int, bad: BadRows) -> None:
    location = bad.place(node)
    table, app = TableHandle.open(location), bad.app_id
    number = table.transaction_number(app)
    if number % 2:
        return
    schema = str(bad.schema)
    files = staged_files(location, bad.folder, schema, node.partition_by)
    if sum(file.rows for file in files) != bad.rows:
        # The caller names them.
        return
    facts = quarantine_facts(node, table, of_version=version, of_write=bad.write_id)
    # What another node's rows are among by now is replaced no more.
    replaces = None if other_quarantiner(node, table) else bad.replaces
    if replaces == TABLE and table.exists:
        changes = FileChanges("table", files, removed=table.live_files, replace_all=True)
        schema = replaced_schema(table, schema)
    else:
        removed = _in_partitions(table, replaces)
        changes = FileChanges("partitions" if removed else "rows", files, removed=removed)
        if table.exists:
            schema, added, _ = plan_schema(table, schema, "evolve")
            if added and removed:
                # Delta takes columns in only in a commit that removes all files or none.
                columns = Stamp.next_on(table, f"{app}:columns", facts)
                commit(table, schema, table.partition_columns, FileChanges("rows", (), new_schema=True), columns)
                raise TableConflictError("the quarantine has gained columns", uri=location.uri)
            changes = replace(changes, new_schema=bool(added))
    try:
        commit(table, schema, node.partition_by, changes, Stamp(app, number + 1, facts))
    except FencedError:
        _log.debug("%s: another run has completed the quarantine of version %d", node, version)


def lost_rows(node: Node, lost: Sequence[tuple[int, BadRows]]) -> tuple[str, str]:
    """What is wrong with a quarantine that lacks rows for good, and what to do about it.

    Args:
        lost: the versions of the node's table that named the rows, at least one, oldest first.
    """
    versions = sorted(version for version, _ in lost)
    of = f"version {versions[0]}" if len(versions) == 1 else f"{len(versions):,} versions, {versions[0]} the first,"
    why = "their files are gone" if all(is_lost(node, bad) for _, bad in lost) else "rows of later versions are in it"
    rows = f"{counted(sum(bad.rows - bad.replaced for _, bad in lost), 'row')} of {of} of its table"
    text = f"its quarantine at {lost[0][1].place(node).uri} lacks {rows}, and {why}"
    return text, f"put the quarantine back from a copy; or load everything again: odi run {node.command} --full-refresh"


def is_lost(node: Node, bad: BadRows) -> bool:
    """Whether the rows of a commit cannot be put into the quarantine any more."""
    files = staged_files(bad.place(node), bad.folder, str(bad.schema), node.partition_by)
    return sum(file.rows for file in files) != bad.rows


def _in_partitions(table: TableHandle, replaces: str | Sequence[PartitionValues] | None) -> list[Any]:
    if not table.exists or replaces is None or isinstance(replaces, str):
        return []
    is_replaced = membership(list(replaces))
    return [file for file in table.live_files if is_replaced(file.partition)]


def _take_out(node: Node, target: TableHandle, undone: Sequence[BadRows]) -> None:
    """Put the quarantine back to before the first of the ``undone`` commits of the node. Where other nodes' rows came
    in since, only the rows of these commits go."""
    table = TableHandle.open(undone[0].place(node))
    apps = {bad.app_id: bad for bad in undone}
    numbers = [(app, number + 1) for app in apps if (number := table.transaction_number(app)) % 2]
    if not numbers:
        return
    stamp, also = Stamp(*numbers[0], quarantine_facts(node, table, mode="rewind")), numbers[1:]
    first = min((made.version for made in table.stamps() if made.app_id in dict(numbers)), default=None)
    shared = _others_since(first or 0, node, target, table)
    try:
        if first and not shared:
            engine_of(table).restore(table, first - 1, stamp, also)
            return
    except FencedError:
        return
    except TableConflictError:
        raise
    except TableError as error:
        _log.warning("%s: its quarantine is not put back to version %s: %s", node, (first or 0) - 1, error.message)
    # It began with these rows; or what it was before is not known any more, or would be without others' rows.
    folders = tuple(f"{apps[app].folder}/" for app, _ in numbers)
    removed = [file for file in table.live_files if (first == 0 and not shared) or file.path.startswith(folders)]
    stamp = Stamp(stamp.app_id, stamp.number, stamp.facts, transactions=also)
    commit(table, table.schema_json, table.partition_columns, FileChanges("rows", (), removed=removed), stamp)
    if shared:
        text = "%s: %s has written its former quarantine at %s too, where %d of %d undone rows are found and removed"
        counts = sum(file.rows or 0 for file in removed), sum(apps[app].rows for app, _ in numbers)
        _log.warning(text, node, shared, table.location.uri, *counts)


def _others_since(first: int, node: Node, target: TableHandle, table: TableHandle) -> Writer | None:
    """Another node that wrote ``table`` in version ``first`` or later. A former name of the node is none: the log of
    ``target``, its table, names the rows."""
    committers = ((stamp, committer(stamp)) for stamp in table.stamps() if stamp.version >= first)
    foreign = [(stamp, writer) for stamp, writer in committers if writer is not None and not writer.is_of(node)]
    # An adoption writes no row.
    foreign = [(stamp, writer) for stamp, writer in foreign if stamp.facts.get("mode") != ADOPT]
    if not foreign:
        return None
    own = {bad.write_id for stamp in target.stamps() if (bad := BadRows.of(stamp)) is not None}
    return next((writer for stamp, writer in foreign if stamp.facts.get("of_write") not in own), None)


def staged_files(location: Location, folder: str, schema: str, partition_by: Sequence[str]) -> list[WrittenFile]:
    """The files of bad rows in ``folder``, with their partition values in one spelling."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    return [
        replace(file, partition={name: same_spelling(file.partition[name], kinds[name]) for name in partition_by})
        for file in written_files(location, folder)
    ]


def require_own(node: Node, table: TableHandle) -> None:
    """Raises TableError if there is a table that is no quarantine."""
    if table.exists and FAILED_CHECKS not in table.columns:
        raise TableError(
            f"{node}: the table at {table.location.uri} is no quarantine: it has no column `{FAILED_CHECKS}`",
            fix="give the node another `quarantine`; nothing was committed",
            uri=table.location.uri,
        )


def live_partitions(table: TableHandle, wanted: Sequence[Mapping[str, str | None]]) -> list[PartitionValues]:
    """Those of the ``wanted`` partitions in which the quarantine has rows."""
    if not table.exists:
        return []
    is_wanted = membership(list(wanted))
    return list({tuple(f.partition.items()): f.partition for f in table.live_files if is_wanted(f.partition)}.values())
