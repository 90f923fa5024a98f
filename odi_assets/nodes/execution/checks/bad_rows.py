"""The rows that failed a node's checks, as the node's commits name them, and whether its quarantine has them.

Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.delta.files.footers import WRITE_FOLDER
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_ids

if TYPE_CHECKING:
    from odi_assets.delta.history import CommittedStamp

FACT = "quarantine"
"""Key of the facts of a node's commit."""
TABLE = "table"
"""What a commit replaces in the quarantine: all of it."""
_PREFIX = "odi_assets.quarantine:"


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
    """

    since: int
    path: str
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

    def place(self, node: Node) -> Location:
        """Where the quarantine is."""
        return node.project.location(node.config.write.connection, self.path)


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
    """Where the quarantine of a node is not in step with ``target``, the node's table.

    The commits count, and not the project file: a quarantine that the file no longer names gets its rows too.
    """
    if not target.exists:
        return OutOfStep()
    counts, gone = _bad_rows(node, target)
    paths = {bad.path: bad.place(node) for _, bad in (*counts, *gone)}
    tables = {path: TableHandle.open(place) for path, place in paths.items()}

    def is_in(bad: BadRows) -> bool:
        return tables[bad.path].transaction_number(bad.app_id(str(node))) % 2 == 1

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
        if bad is None and undone_after is None and CommitFacts.of(stamp).run_id is not None:
            # A run without a quarantine, which has brought everything before it in step.
            break
        if bad is None:
            continue
        if undone_after is None:
            upto = max(upto, bad.since)
        if bad.write_id is not None:
            (gone if is_undone else counts).append((stamp.version, bad))
    return counts, gone
