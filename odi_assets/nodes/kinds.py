"""The kinds of nodes, and the one table in which the core finds what is not the core.

A batch node is the default: its run is the sentence of ``run_node``, and :class:`NodeKind` as it stands describes it.
Another kind has a module of its own, which derives from :class:`NodeKind` and overrides what differs. The module is
loaded when the first node of that kind is met, so that a project without such nodes never pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from odi_assets.config.models import DrivingCursor, NodeConfig

if TYPE_CHECKING:
    from datetime import datetime

    import dagster as dg
    from pyspark.sql import SparkSession

    from odi_assets.config.graph import NodeKey
    from odi_assets.connections.location import Location
    from odi_assets.delta.table import TableHandle
    from odi_assets.nodes.commit_facts import CommitFacts
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.planning.plan import NodePlan
    from odi_assets.nodes.planning.writers import Writer
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.recovery.adopt import Adoption
    from odi_assets.nodes.recovery.findings import Disagreement
    from odi_assets.nodes.recovery.repair import Repaired
    from odi_assets.nodes.request import RunRequest
    from odi_assets.nodes.result import NodeResult, RunInfo
    from odi_assets.nodes.stream_facts import StreamFacts
    from odi_assets.sources.source import Source

PLACES = {
    "stream": "odi_assets.streams.kind:StreamKind",
    "document": "odi_assets.documents.gate.source:driven",
    "store": "odi_assets.store.node_store:open_node_store",
    "named store": "odi_assets.store.node_store:require_named",
}
"""By name, where a wing of the core is: its module, and what the core asks of it."""


class CommitsItself(Protocol):
    """Rows that take as many commits as they need: ``run_node`` leaves the commits to them."""

    @property
    def plan(self) -> NodePlan: ...

    def commit(self, run: RunInfo) -> NodeResult:
        """Read, commit, and say what became of it.

        Raises:
            OdiError: what ended the run. What was committed stays, and the next run goes on from there.
        """


class Service(Protocol):
    """A run that waits for what is new, until it is stopped."""

    def rows(self, plan: NodePlan, spark: SparkSession) -> CommitsItself:
        """The rows that the run takes in, not computed yet."""


class GoesAlong(Protocol):
    """What a node has beside its table and goes back with it in a rewind.

    Attributes:
        facts: what the commit of the rewind says of it.
        before: the same, as it is now; None if there is nothing yet.
    """

    @property
    def facts(self) -> StreamFacts: ...

    @property
    def before(self) -> StreamFacts | None: ...

    def gone_files(self, node: Node) -> Iterable[str]:
        """Files whose rows leave, and that no run can read again: they are gone from the landing zone.

        Raises:
            SourceError: the landing zone cannot be looked at.
        """

    def apply(self, node: Node) -> None:
        """Bring it to where the table is already. Done again after a crash, it completes what is left."""


class Former(Protocol):
    """What wrote a table that a node adopts, where the HWM is not in state."""

    def take_over(self, facts: CommitFacts) -> None:
        """Make it the adopting node's, in a commit that says ``facts``.

        Raises:
            FencedError: somebody committed to the table since; it was left as it is.
        """


class OpenedStore(Protocol):
    """The state store that a node's function asked for, with what the function changed in it."""

    @property
    def store(self) -> object: ...

    def stage(self) -> dict[str, Any]:
        """Write what was changed, and return what the node's commit is to say of its store."""

    def publish(self) -> None:
        """Make what was staged a version of the store. The node's commit has named it, so it counts already."""


class NodeKind:
    """What the core asks of a kind of node. As it stands: of batch nodes.

    Attributes:
        keeps_hwm: state has the HWM of its nodes; if not, what they have read is noted somewhere else.
        follows_every_source: its nodes take in what is new of each source, whether the source has an increment or not.
        leaves_work: a run may leave something to do that no source knows of, a batch that is planned among others.
        takes_rows_back: a node follows an input that went back by itself: its next run reads the input whole.
    """

    keeps_hwm: ClassVar[bool] = True
    follows_every_source: ClassVar[bool] = False
    leaves_work: ClassVar[bool] = False
    takes_rows_back: ClassVar[bool] = True

    # -- a run

    def plan(self, node: Node, request: RunRequest) -> NodePlan | None:
        """The plan of a node that keeps other marks than its sources have; None: the core plans it.

        Raises:
            OdiError: as ``plan_node`` does.
        """

    def rows(self, plan: NodePlan, spark: SparkSession) -> CommitsItself | None:
        """The rows of a node that commits them itself; None: they are one increment, and one commit."""

    def definition(self, dumped: dict[str, Any]) -> dict[str, Any]:
        """What a node's code version is made of, of its configuration as JSON values."""
        # As before there were other kinds, so that code versions stay what they are.
        inputs = {
            name: {key: settings[key] for key in settings if key != "read"}
            for name, settings in dumped["inputs"].items()
        }
        return {key: value for key, value in dumped.items() if key != "stream"} | {"inputs": inputs}

    # -- tables

    def tables_beside(self, node: Node) -> dict[str, Location]:
        """The tables that it keeps beside its own, by their keys in the project file."""
        del node
        return {}

    def has_folder(self, node: Node, uri: str) -> bool:
        """Whether a folder holds what the node has read."""
        del node, uri
        return False

    def unread_versions(self, node: Node, table: TableHandle) -> tuple[int, ...]:
        """Versions of a table of an input that together have all of its files that the node has yet to read.

        Raises:
            CheckpointError, TableError: it cannot be seen how far the node has read.
        """
        del node, table
        return ()

    def log_needed_from(self, node: Node, table: TableHandle) -> int | None:
        """The oldest version of a table of an input that its log has to hold for a node without an HWM to read on; None
        if it needs none.

        Raises:
            CheckpointError, TableError: it cannot be seen how far the node has read.
        """
        del node, table
        return None

    # -- what agrees with what

    def examine(self, node: Node, target: TableHandle) -> Iterable[Disagreement]:
        """What disagrees between the table and what a node without an HWM in state has read."""
        del node, target
        return ()

    def examine_files(self, node: Node) -> Iterable[Disagreement]:
        """What is wrong with the files that note what the node has read."""
        del node
        return ()

    def not_looked_at(self, node: Node) -> Iterable[tuple[str, str]]:
        """What an examination of the node leaves out, each with what looks at it."""
        del node
        return ()

    def figures(self, node: Node) -> Mapping[str, float | datetime | None]:
        """What monitoring shows of the node beside the figures of every node, by names of ``monitoring.gauges``.

        Raises:
            StateError: what its runs noted cannot be read.
        """
        del node
        return {}

    def gaps(self, node: Node) -> str | None:
        """What the node should have kept beside its table and never did, in words."""

    def require_auditable(self, node: Node) -> None:
        """Raises ConfigError if the node's table cannot be compared with its sources range by range."""

    # -- going back, going on

    def is_ahead_of_table(self, node: Node) -> bool:
        """Whether it has noted more as read than its table has."""
        del node
        return False

    def can_go_on(self, node: Node) -> bool:
        """Whether what it keeps beside its table belongs to the rows there, so that its next run goes on by itself."""
        del node
        return True

    def rewind(self, node: Node, before: TableHandle) -> GoesAlong | None:
        """What goes along to the version that ``before`` was opened at. Changes nothing.

        Raises:
            ConfigError, CheckpointError: it cannot go there.
        """

    def adopt(self, node: Node, target: TableHandle, writer: Writer | None) -> Adoption | None:
        """What there is to adopt for a node that keeps no HWM in state; None if nothing changed. Changes nothing.

        Args:
            writer: who wrote its table, if that was not the node itself.

        Raises:
            IdentityMismatchError: the node cannot go on with that table.
            SourceError, TableError: an input cannot be examined.
        """

    def repair(self, node: Node, *, dry_run: bool) -> Iterable[Repaired]:
        """Set aside what is torn of the files that note what the node has read.

        Raises:
            TableError: a file cannot be moved.
        """
        del node, dry_run
        return ()

    # -- what Dagster shows

    def metadata(self, config: NodeConfig) -> Mapping[str, str]:
        """What Dagster shows of the node's definition, beside its table and its columns."""
        del config
        return {}

    def has_limits(self, config: NodeConfig) -> bool:
        """Whether a node is held against limits of the project file after each run."""
        del config
        return False

    def asset_checks(self, project: Project, key: NodeKey) -> Iterable[dg.AssetChecksDefinition]:
        """The asset checks of a node, beside those that its project file gives."""
        del project, key
        return ()


_BATCH = NodeKind()


def kind_of(config: NodeConfig) -> NodeKind:
    """The kind of the node that ``config`` defines."""
    return _BATCH if config.kind == "batch" else _kind(config.kind)


@cache
def _kind(name: str) -> NodeKind:
    made: NodeKind = load_place(name)()
    return made


def gated(
    source: Source, by: DrivingCursor, locate: Callable[[str | None, str], Location], schema: str | None = None
) -> Source:
    """A source behind a document of another tool, which says when there is something to read.

    Args:
        locate: where a path of a connection is, or of the project's folder without one.
        schema: the columns of the source, in Spark's DDL, if the project file names them.
    """
    gated_source: Source = load_place("document")(source, by, locate, schema)
    return gated_source


def open_node_store(plan: NodePlan) -> OpenedStore:
    """The state store of the plan's node, at the version that belongs to its table's rows.

    Raises:
        ConfigError: the run is of a range, whose rows the store may have seen already.
        StateError: the store cannot be read.
    """
    opened: OpenedStore = load_place("store")(plan)
    return opened


def require_store(node: Node, target: TableHandle) -> None:
    """Raises StateError if the state store that belongs to the rows of the node's table is not there. Parts of a node
    have none."""
    facts = next((stamp.facts for stamp in target.stamps() if not stamp.facts.get("bounds")), {})
    if facts.get("store") or facts.get("rewound_to") is not None:
        load_place("named store")(node, target)


def load_place(name: str) -> Any:
    """What :data:`PLACES` names, loaded now."""
    module, _, attribute = PLACES[name].partition(":")
    return getattr(import_module(module), attribute)
