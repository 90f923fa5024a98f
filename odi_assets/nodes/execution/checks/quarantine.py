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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.conflicts import membership
from odi_assets.delta.files.footers import WRITE_FOLDER, WrittenFile, written_files
from odi_assets.delta.partition_values import PartitionValues, same_spelling
from odi_assets.delta.retry import raced
from odi_assets.delta.schema_evolution import plan_schema, replaced_schema
from odi_assets.delta.table import TableHandle
from odi_assets.errors import FencedError, OdiError, TableConflictError, TableError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_ids
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.delta.history import CommittedStamp

_log = logging.getLogger(__name__)

FACT = "quarantine"
"""Key of the facts of a node's commit."""
_PREFIX = "odi_assets.quarantine:"
_TABLE = "table"


@dataclass(frozen=True)
class BadRows:
    """The bad rows of one commit of a node, as the commit names them.

    Attributes:
        since: the version of the node's table up to which the quarantine had everything when the commit was planned.
        rows: how many there are.
        write_id: names the folder of their files, and the transaction; None if nothing is to be done.
        replaces: what of the quarantine they replace: ``table``, partitions, or nothing.
        schema: the columns of the files, in Delta's JSON form.
    """

    since: int
    rows: int = 0
    write_id: str | None = None
    replaces: str | Sequence[PartitionValues] | None = None
    schema: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The facts as the log stores them."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def of(cls, stamp: CommittedStamp) -> BadRows | None:
        """What a commit says; None if its node had no quarantine."""
        stored = stamp.facts.get(FACT)
        return None if stored is None else cls(**stored)

    def app_id(self, node: str) -> str:
        """The transaction of these rows in the quarantine."""
        return f"{_PREFIX}{node}:{self.write_id}"

    @property
    def folder(self) -> str:
        """The folder of their files, relative to the quarantine."""
        return f"{WRITE_FOLDER}={self.write_id}"


def quarantine_of(node: Node) -> Location | None:
    """Where the quarantine of a node is; None if it has none."""
    path = node.config.quarantine
    return None if path is None else node.project.location(node.config.write.connection, path)


@dataclass(frozen=True)
class OutOfStep:
    """What the quarantine lacks, and what it has too much.

    Attributes:
        missing: commits of the node whose bad rows are not in, oldest first.
        undone: commits that a rewind has undone and whose bad rows are in, oldest first.
    """

    missing: tuple[tuple[int, BadRows], ...] = ()
    undone: tuple[tuple[int, BadRows], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.undone)


def out_of_step(node: Node, target: TableHandle) -> OutOfStep:
    """Where the quarantine of a node is not in step with ``target``, the node's table."""
    location = quarantine_of(node)
    if location is None or not target.exists:
        return OutOfStep()
    counts, gone = _bad_rows(node, target)
    if not counts and not gone:
        return OutOfStep()
    table = TableHandle.open(location)

    def is_in(bad: BadRows) -> bool:
        return table.transaction_number(bad.app_id(str(node))) % 2 == 1

    missing = [one for one in reversed(counts) if not is_in(one[1])]
    return OutOfStep(tuple(missing), tuple(one for one in reversed(gone) if is_in(one[1])))


def _bad_rows(node: Node, target: TableHandle) -> tuple[list[tuple[int, BadRows]], list[tuple[int, BadRows]]]:
    """The bad rows of the commits that count, and of those that rewinds have undone; newest first, as far down as the
    newest commit says that there is something to look for."""
    counts: list[tuple[int, BadRows]] = []
    gone: list[tuple[int, BadRows]] = []
    own, undone_after, upto = app_ids(node.key), None, -1
    for stamp in target.stamps():
        if stamp.version <= upto:
            break
        if stamp.app_id not in own:
            continue
        is_undone = undone_after is not None and stamp.version > undone_after
        rewound_to = CommitFacts.of(stamp).rewound_to
        if rewound_to is not None:
            undone_after = undone_after if is_undone else rewound_to
            continue
        bad = BadRows.of(stamp)
        if bad is None:
            continue
        if undone_after is None:
            upto = max(upto, bad.since)
        if bad.write_id is not None:
            (gone if is_undone else counts).append((stamp.version, bad))
    return counts, gone


def bring_in_step(node: Node, target: TableHandle) -> int:
    """Complete what runs and rewinds that died have left: put bad rows in whose commit of the node was made, take those
    out whose commit was undone. Needs no Spark.

    Returns:
        How many commits of the node were completed.

    Raises:
        TableError: the quarantine cannot be read or written.
    """
    location = quarantine_of(node)
    found = out_of_step(node, target)
    if location is None or not found:
        return 0
    if found.undone:
        raced(lambda: _take_out(node, location, [bad for _, bad in found.undone]), lost=_is_conflict)
    for version, bad in found.missing:
        _log.info("%s: its quarantine gets the rows of version %d", node, version)
        raced(lambda bad=bad, version=version: _put_in(node, location, version, bad), lost=_is_conflict)  # type: ignore[misc]
    return len(found.undone) + len(found.missing)


def _is_conflict(error: OdiError) -> bool:
    return isinstance(error, TableConflictError)


def _put_in(node: Node, location: Location, version: int, bad: BadRows) -> None:
    table, app = TableHandle.open(location), bad.app_id(str(node))
    number = table.transaction_number(app)
    if number % 2:
        return
    schema = str(bad.schema)
    files = staged_files(location, bad.folder, schema, node.partition_by)
    if sum(file.rows for file in files) != bad.rows:
        _log.warning(
            "%s: %s of version %d are not in its quarantine at %s: their files are gone; they are in the source only",
            node,
            counted(bad.rows, "bad row"),
            version,
            location.uri,
        )
        return
    facts = {"node": str(node), "of_version": version, "of_write": bad.write_id}
    if bad.replaces == _TABLE and table.exists:
        changes = FileChanges("table", files, removed=table.live_files, replace_all=True)
        schema = replaced_schema(table, schema)
    else:
        removed = _in_partitions(table, bad.replaces)
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


def _in_partitions(table: TableHandle, replaces: str | Sequence[PartitionValues] | None) -> list[Any]:
    if not table.exists or replaces is None or isinstance(replaces, str):
        return []
    is_replaced = membership(list(replaces))
    return [file for file in table.live_files if is_replaced(file.partition)]


def _take_out(node: Node, location: Location, undone: Sequence[BadRows]) -> None:
    """Put the quarantine back to before the first of the ``undone`` commits of the node."""
    table = TableHandle.open(location)
    apps = {bad.app_id(str(node)): bad for bad in undone}
    numbers = [(app, number + 1) for app in apps if (number := table.transaction_number(app)) % 2]
    if not numbers:
        return
    stamp, also = Stamp(*numbers[0], {"node": str(node), "mode": "rewind"}), numbers[1:]
    first = min((made.version for made in table.stamps() if made.app_id in dict(numbers)), default=None)
    try:
        if first:
            engine_of(table).restore(table, first - 1, stamp, also)
            return
    except FencedError:
        return
    except TableConflictError:
        raise
    except TableError as error:
        _log.warning("%s: its quarantine is not put back to version %s: %s", node, (first or 0) - 1, error.message)
    # It began with these rows; or what it was before is not known any more.
    folders = tuple(f"{apps[app].folder}/" for app, _ in numbers)
    removed = [file for file in table.live_files if first == 0 or file.path.startswith(folders)]
    stamp = Stamp(stamp.app_id, stamp.number, stamp.facts, transactions=also)
    commit(table, table.schema_json, table.partition_columns, FileChanges("rows", (), removed=removed), stamp)


def staged_files(location: Location, folder: str, schema: str, partition_by: Sequence[str]) -> list[WrittenFile]:
    """The files of bad rows in ``folder``, with their partition values in one spelling."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    return [
        replace(one, partition={name: same_spelling(one.partition[name], kinds[name]) for name in partition_by})
        for one in written_files(location, folder)
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
