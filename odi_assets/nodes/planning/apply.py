"""What a node that applies a change log takes from the log without Spark: its version, the key of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.start import hwm_in_target, marks_of, start_of
from odi_assets.nodes.project import Project
from odi_assets.sources.cdc.value_types import MARIADB, POSTGRES, ValueTypes
from odi_assets.sources.delta.source import TableSnapshot
from odi_assets.sources.marks import VersionMark
from odi_assets.state.backend import StateBackend

if TYPE_CHECKING:
    from odi_assets.nodes.planning.plan import NodePlan

_LONGEST_RUN = timedelta(days=1)
"""A log's commits of the last day are asked which of them a run has made."""


@dataclass
class AppliedLogs:
    """The change logs that the nodes of one run, or of one look at many nodes, apply; each is opened once.

    So all of these nodes see one version of a log: the mark, the keys and the rows that they take come from it, also if
    the log grows in the meantime. The version is the one that the run has captured, or else the newest one when the
    first node asks. A node that another run has brought beyond it looks at the newest one (see ``plan_node``).

    Attributes:
        run_id: the run; None for a look.
    """

    project: Project
    run_id: str | None = None
    _opened: dict[NodeKey, TableHandle] = field(default_factory=dict)

    def of(self, key: NodeKey) -> TableHandle | None:
        """The change log that the node ``key`` applies; None if it applies none.

        Raises:
            ConfigError: there is no such node.
            TableError: the log cannot be opened.
        """
        applied = self.project.graph.node(key).apply
        if applied is None:
            return None
        log = self.project.graph.resolve(key, applied.changes)
        opened = self._opened.get(log)
        # Threads that open it at once take the version of one of them.
        return opened if opened is not None else self._opened.setdefault(log, self._open(log))

    def forget(self) -> None:
        """Open the newest versions when they are asked for again."""
        self._opened.clear()

    def _open(self, log: NodeKey) -> TableHandle:
        newest = TableHandle.open(self.project.target(log))
        if self.run_id is None or not newest.exists:
            return newest
        recent = datetime.now(UTC) - _LONGEST_RUN
        stamps = takewhile(lambda stamp: stamp.committed_at > recent, newest.stamps())
        captured = next((stamp.version for stamp in stamps if stamp.facts.get("run_id") == self.run_id), None)
        return newest if captured in (None, newest.version) else TableHandle.open(newest.location, captured)


def key_of_log(plan: NodePlan) -> tuple[str, ...]:
    """The columns that identify a row of the table that ``plan`` applies, as the log's last commit has them.

    Raises:
        ConfigError: the log does not capture the table, or the table has no key.
    """
    node, config = plan.node, plan.node.config.apply
    if config is None:
        raise AssertionError("a node that applies a log")
    logs = [read.snapshot.handle for read in plan.reads if isinstance(read.snapshot, TableSnapshot)]
    key = key_in_log(logs[0], config.changes, config.table, str(node))
    if not key:
        raise ConfigError(
            f"{node}: {config.table} has no key, so it is not known which row a change is of",
            fix=f"give it a primary key and run `{config.changes}` again (Debezium's changes: name the key in "
            f"`read.keys`); or keep its changes with "
            f"`apply: {{…, table: {config.table}, history: true}}`",
            node=str(node),
        )
    return key


def require_captured(plan: NodePlan) -> None:
    """Raises ConfigError if the log does not capture the table that ``plan`` applies: nothing new would come of it."""
    node, config = plan.node, plan.node.config.apply
    for read in plan.reads:
        if config is not None and isinstance(read.snapshot, TableSnapshot) and read.snapshot.handle.exists:
            key_in_log(read.snapshot.handle, config.changes, config.table, str(node))


def value_types(plan: NodePlan) -> ValueTypes:
    """How the texts of the log are read, as the database writes them."""
    logs = [read.snapshot.handle for read in plan.reads if isinstance(read.snapshot, TableSnapshot)]
    return types_of_log(mark_of_log(logs[0]))


def types_of_log(mark: Mapping[str, Any] | None) -> ValueTypes:
    """How the texts of a log are read whose last mark is ``mark``."""
    return MARIADB if mark is not None and "binlog" in mark else POSTGRES


def key_in_log(log: TableHandle, name: str, table: str, node: str) -> tuple[str, ...]:
    """The columns that identify a row of a captured table; empty if it has no key.

    Args:
        log: the change log.
        name: the node that captures, for messages.
        node: the node that needs the key.

    Raises:
        ConfigError: the log does not capture the table.
    """
    mark = mark_of_log(log)
    tables = {} if mark is None else mark["tables"]
    if table not in tables:
        listed = ", ".join(sorted(tables)) or "none"
        raise ConfigError(
            f"{node}: the log `{name}` does not capture {table}; it captures {listed}",
            fix="name one of these in `apply.table`; or add the table to `tables` of the capture; or take the node out "
            "of the project",
            node=node,
        )
    return tuple(tables[table]["key"])


def mark_of_log(log: TableHandle) -> dict[str, Any] | None:
    """The value of the mark that belongs to a change log at its version, as its last commit has it."""
    for stamp in log.stamps():
        hwm = CommitFacts.of(stamp).hwm
        mark = hwm.mark if hwm is not None else None
        if mark is not None and isinstance(mark.value, dict) and "tables" in mark.value:
            return dict(mark.value)
    return None


def applied_below(node: Node, target: TableHandle, log: TableHandle, state: StateBackend) -> int:
    """The number below which the rows of a change log are in ``target``, the table of a node that applies it."""
    if not target.exists:
        return 0
    start = start_of(node, state.get_entry(node.state_key, deleted=True), target)
    marks = marks_of(node, replace(start, hwm=hwm_in_target(node, start, target)), target)
    mark = next(iter(marks.values()), None)
    if not isinstance(mark, VersionMark) or mark.table_id not in (None, log.table_id):
        return 0
    below: int | None = None
    for stamp in log.stamps():
        facts = CommitFacts.of(stamp)
        if stamp.app_id != app_id(node.applies or node.key) or facts.hwm is None or facts.hwm.mark is None:
            continue
        next_n = int(facts.hwm.mark.value["next_n"])
        below = next_n if below is None else min(below, next_n)
        if stamp.version <= mark.version:
            break
        if facts.mode == WriteMode.OVERWRITE:
            return 0
    return below or 0
