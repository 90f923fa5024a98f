"""The rows that failed a node's checks, as the node's commits name them, and whether its quarantine has them.

Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.conflicts import membership
from odi_assets.delta.damage import require_no_remains
from odi_assets.delta.files.footers import WRITE_FOLDER
from odi_assets.delta.history import actions_at, commit_digest
from odi_assets.delta.partition_values import PartitionValues, same_spellings
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, node_of_app
from odi_assets.nodes.planning.writers import QUARANTINE_PREFIX

if TYPE_CHECKING:
    from odi_assets.delta.history import CommittedStamp

FACT = "quarantine"
"""Key of the facts of a node's commit."""
TABLE = "table"
"""What a commit replaces in the quarantine: all of it."""


@dataclass(frozen=True)
class BadRows:
    """The bad rows of one commit of a node, as the commit names them.

    Attributes:
        since: the version of the node's table up to which the quarantine had everything when the commit was planned, or
            up to which nothing counts any more.
        path: of the quarantine, below the connection of ``write``. The project file may name another one by now.
        rows: how many there are.
        write_id: names the folder of their files, and the transaction; None if nothing is to be done.
        replaces: what of the quarantine they replace: ``table``, partitions, or nothing.
        schema: the columns of the files, in Delta's JSON form.
        seen: the position of the quarantine when the commit was planned; None in commits of older versions.
        parts: if the quarantine has partitions: how many rows are in each; None in commits of older versions.
        node: which node made the commit, under the name that it had; empty until the commit is made.
        replaced: how many of the rows are in partitions that later commits have replaced; the log does not have it.
    """

    since: int
    path: str
    rows: int = 0
    write_id: str | None = None
    replaces: str | Sequence[PartitionValues] | None = None
    schema: str | None = None
    seen: Mapping[str, Any] | None = None
    parts: Sequence[tuple[PartitionValues, int]] | None = None
    node: str = ""
    replaced: int = 0

    def to_json(self) -> dict[str, Any]:
        """The facts as the log stores them."""
        own = {"node", "replaced"}
        return {name: value for name, value in vars(self).items() if value is not None and name not in own}

    @classmethod
    def of(cls, stamp: CommittedStamp) -> BadRows | None:
        """What a commit says; None if its node had no quarantine."""
        stored = stamp.facts.get(FACT)
        return None if stored is None else cls(**stored, node=node_of_app(stamp.app_id) or "")

    @property
    def app_id(self) -> str:
        """The transaction of these rows in the quarantine."""
        return f"{QUARANTINE_PREFIX}{self.node}:{self.write_id}"

    @property
    def folder(self) -> str:
        """The folder of their files, relative to the quarantine."""
        return f"{WRITE_FOLDER}={self.write_id}"

    def place(self, node: Node) -> Location:
        """Where the quarantine is."""
        return node.project.location(node.config.write.connection, self.path)


@dataclass(frozen=True)
class OutOfStep:
    """What the quarantine lacks, and what it has too much.

    Attributes:
        missing: commits of the node whose bad rows are not in, oldest first; but for those whose rows are all replaced.
        undone: commits that a rewind has undone and whose bad rows are in, oldest first.
        passed: commits whose bad rows are not in, while rows of later commits are, oldest first. They are not put in
            any more: what came later may have replaced them.
    """

    missing: tuple[tuple[int, BadRows], ...] = ()
    undone: tuple[tuple[int, BadRows], ...] = ()
    passed: tuple[tuple[int, BadRows], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.undone or self.passed)

    def __str__(self) -> str:
        """What the node's next run completes, in words; empty if that is nothing."""
        lacks = [f"lacks the bad rows of version {version}" for version, _ in self.missing]
        too_many = [f"has bad rows of version {version}, which was undone" for version, _ in self.undone]
        return f"its quarantine {'; '.join([*lacks, *too_many])}" if lacks or too_many else ""


def out_of_step(node: Node, target: TableHandle, *, every: bool = False) -> OutOfStep:
    """Where the quarantine of a node is not in step with ``target``, the node's table.

    The commits count, and not the project file: a quarantine that the file no longer names gets its rows too.

    Args:
        every: look at all commits of the node's log since the last one that replaced all rows. Else the newest ones are
            looked at, and all of them if the quarantine is not the table that the newest one had seen.

    Raises:
        TableError: the quarantine cannot be opened.
    """
    if not target.exists:
        return OutOfStep()
    bad_rows = _bad_rows(node, target, every=every)
    if not every and bad_rows.newest is not None and is_replaced(node, bad_rows.newest):
        bad_rows = _bad_rows(node, target, every=True)
    paths = {bad.path: bad.place(node) for _, bad in (*bad_rows.counts, *bad_rows.gone)}
    tables = {path: TableHandle.open(location) for path, location in paths.items()}

    def is_in(bad: BadRows) -> bool:
        return tables[bad.path].transaction_number(bad.app_id) % 2 == 1

    missing: list[tuple[int, BadRows]] = []
    passed: list[tuple[int, BadRows]] = []
    newer_in: set[str] = set()
    for version, bad in bad_rows.counts:
        if is_in(bad):
            newer_in.add(bad.path)
            continue
        bad = bad_rows.less_replaced(target, version, bad)
        if bad.rows and bad.rows == bad.replaced:
            continue
        if bad.path not in newer_in:
            missing.append((version, bad))
        elif bad.rows:
            passed.append((version, bad))
    undone = tuple(commit for commit in reversed(bad_rows.gone) if is_in(commit[1]))
    return OutOfStep(tuple(reversed(missing)), undone, tuple(reversed(passed)))


def is_replaced(node: Node, newest: BadRows) -> bool:
    """Whether the quarantine is not the table any more that the node's newest commit had seen: it is gone, or was put
    back or made again outside of odi. What a commit of an older version had seen is not known; then it counts as that.

    Raises:
        DamagedTableError: its log holds no version any more, and its data files are there.
        TableError: the quarantine cannot be opened.
    """
    if newest.path != node.config.quarantine:
        return False
    seen = newest.seen
    if seen is None:
        return True
    if seen["version"] is None:
        return False
    table = TableHandle.open(newest.place(node))
    if not table.exists:
        require_no_remains(table.location)
        return True
    if table.table_id != seen["table_id"] or int(table.version or 0) < seen["version"]:
        return True
    # A commit that was cleaned away identifies nothing.
    digest = commit_digest(table.location, seen["version"])
    return digest is None or digest != seen["commit"]


@dataclass
class _Found:
    """The bad rows of a node's commits, newest first.

    Attributes:
        counts: of the commits that count.
        gone: of those that rewinds have undone.
        newest: what the newest commit that counts says, rows or not; None if no commit counts.
        replacing: versions of commits that count and replaced partitions.
    """

    counts: list[tuple[int, BadRows]]
    gone: list[tuple[int, BadRows]]
    newest: BadRows | None = None
    replacing: list[int] = field(default_factory=list)
    _partitions: dict[int, list[PartitionValues]] = field(default_factory=dict)

    def less_replaced(self, target: TableHandle, version: int, bad: BadRows) -> BadRows:
        """The bad rows of ``version``, with how many of them later commits have replaced."""
        if not bad.parts:
            return bad
        kinds = target.columns
        later_versions = [later_version for later_version in self.replacing if later_version > version]
        for replacing_version in later_versions:
            if replacing_version not in self._partitions:
                self._partitions[replacing_version] = _partitions_at(target, replacing_version)
        replaced = [values for later_version in later_versions for values in self._partitions[later_version]]
        replaced += [
            values for at, bad_rows in self.counts if at in later_versions for values, _ in bad_rows.parts or ()
        ]
        is_replaced = membership(same_spellings(values, kinds) for values in replaced)
        counts = (count for values, count in bad.parts if is_replaced(same_spellings(values, kinds)))
        return replace(bad, replaced=sum(counts))


def _partitions_at(target: TableHandle, version: int) -> list[PartitionValues]:
    """The partitions that a commit wrote to or took files from, as far as the log still has it."""
    files = (action.get("add") or action.get("remove") for action in actions_at(target.location, version) or ())
    return [values for file in files if file and (values := file.get("partitionValues"))]


def _bad_rows(node: Node, target: TableHandle, *, every: bool) -> _Found:
    """The bad rows of the commits of a node.

    Args:
        every: of all commits since the last one that replaced all rows; else as far down as the newest commit says that
            there is something to look for.
    """
    bad_rows = _Found([], [])
    undone_after, upto = None, -1
    for stamp in target.stamps():
        if stamp.version <= upto and not every:
            break
        # The table is the node's: what others committed there was the node's under a former name, or was adopted.
        if node_of_app(stamp.app_id) is None:
            continue
        is_undone = undone_after is not None and stamp.version > undone_after
        facts = CommitFacts.of(stamp)
        if facts.rewound_to is not None:
            undone_after = undone_after if is_undone else facts.rewound_to
            continue
        if not is_undone and facts.mode == WriteMode.PARTITION_OVERWRITE:
            bad_rows.replacing.append(stamp.version)
        bad = BadRows.of(stamp)
        is_newest = bad_rows.newest is None and undone_after is None
        if bad is None and is_newest and facts.run_id is not None:
            # A run without a quarantine, which has brought everything before it in step.
            upto = max(upto, stamp.version)
        # A commit that was in step once does not count if the file no longer names its quarantine.
        elif bad is not None and (stamp.version > upto or (bad.path == node.config.quarantine and not is_undone)):
            if is_newest:
                upto = max(upto, bad.since)
            if not is_undone:
                bad_rows.newest = bad_rows.newest or bad
            if bad.write_id is not None:
                (bad_rows.gone if is_undone else bad_rows.counts).append((stamp.version, bad))
        if every and not is_undone and facts.mode == WriteMode.OVERWRITE:
            break
    return bad_rows
