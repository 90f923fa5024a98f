"""The lineage of all columns of a project, node by node, over the columns that its tables and sources have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import NodeConfig, ReadConfig
from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.delta.table import TableHandle
from odi_assets.lineage.made import NotFollowed, Rows
from odi_assets.lineage.node_lineage import NodeLineage, applied_rows, owners_of, same_rows, stored_rows
from odi_assets.lineage.query_rows import query_rows
from odi_assets.nodes.project import Project
from odi_assets.sources.marks import READ

Columns = tuple[str, ...]
NEEDS_PLAN = "it is a Python function, and only Spark's plan says what it does"


class Plans(Protocol):
    """Plans nodes, whose SQL or function is not understood without Spark."""

    def rows(self, key: NodeKey) -> Rows:
        """What the transform of a node gives.

        Raises:
            NotFollowed: there is no plan, or it does not say it.
        """


class ProjectLineage:
    """Reads lineage as it is asked for, and remembers it.

    Args:
        plans: gives what plans functions, and SQL that is not understood without Spark; None: nothing does.
    """

    def __init__(self, project: Project, plans: Callable[[ProjectLineage], Plans] | None = None) -> None:
        self.project = project
        self._plans = plans
        self._nodes: dict[NodeKey, NodeLineage] = {}
        self._tables: dict[NodeKey, TableHandle] = {}
        self._sources: dict[str, Columns | None] = {}
        self._lacking: dict[NodeKey, bool] = {}
        self._up_to_date: set[NodeKey] = set()

    def node(self, key: NodeKey) -> NodeLineage:
        """The lineage of a node.

        Raises:
            ConfigError: there is no such node, or its SQL file cannot be read.
            TableError: a table cannot be looked at.
        """
        waiting, begun = [key], set[NodeKey]()
        while waiting:
            current_key = waiting[-1]
            if current_key in self._nodes:
                waiting.pop()
                continue
            owners = (
                [owner for owner in self.owners(current_key).values() if isinstance(owner, NodeKey)]
                if current_key not in begun
                else []
            )
            begun.add(current_key)
            # Its columns are those that the nodes above give, whose tables do not have them yet. Nodes that read by
            # path may read in a circle.
            first = [
                owner for owner in owners if owner not in self._nodes and owner not in begun and self._is_behind(owner)
            ]
            waiting += first
            if not first:
                self._nodes[current_key] = self._read(current_key)
        return self._nodes[key]

    def of_run(self, key: NodeKey, transform_rows: Rows | None, stored: Columns) -> NodeLineage:
        """The lineage of a node that has run: its table is not looked at.

        Args:
            transform_rows: what its transform gave; None if it is read here.
            stored: the columns of its table.

        Raises:
            NotFollowed: it is not known.
        """
        node = self.project.graph.node(key)
        views = {} if transform_rows is not None or node.transform is None else self.views(key)
        if transform_rows is None:
            transform_rows = self._given(key, node, views or dict.fromkeys(self._own_views(key)), stored)
        return NodeLineage(key, stored, stored_rows(transform_rows, node, views), self.owners(key))

    def table(self, key: NodeKey) -> TableHandle:
        """The table of a node, which may not be there yet."""
        if key not in self._tables:
            self._tables[key] = TableHandle.open(self.project.target(key))
        return self._tables[key]

    def owners(self, key: NodeKey) -> dict[str, NodeKey | str]:
        """By view that a node reads, whose it is: a node's, or a source's, as ``odi ls`` names it."""
        node, resolve = self.project.graph.node(key), self.project.graph.resolve
        upstream = {view: resolve(key, node_input.node) for view, node_input in node.inputs.items() if node_input.node}
        reads = {at: self._writer(read) for at, read in node.reads.items()}
        writers = {at: writer for at, writer in reads.items() if writer is not None}
        database = ""
        if node.apply is not None:
            log = self.project.graph.node(resolve(key, node.apply.changes)).read
            database = f"{log.connection}:{node.apply.table}" if log is not None else ""
        checks = node.checks if node.quarantine else ()
        referenced = [check.references.node for check in checks if check.references is not None]
        return owners_of(node, upstream, writers, database, {name: resolve(key, name) for name in referenced})

    def _is_behind(self, key: NodeKey) -> bool:
        """Whether a node's table is not there yet, or lacks what a source above it declares."""
        if not self.table(key).exists:
            return True
        waiting, met = [key], {key, *self._up_to_date}
        while waiting and key not in self._up_to_date:
            current_key = waiting.pop()
            if self._lacks_declared(current_key):
                return True
            more = {owner for owner in self.owners(current_key).values() if isinstance(owner, NodeKey)} - met
            met |= more
            waiting += more
        self._up_to_date |= met
        return False

    def _lacks_declared(self, key: NodeKey) -> bool:
        if key not in self._lacking:
            node = self.project.graph.node(key)
            declared = [name for read in node.reads.values() for name in read.all_columns or ()]
            is_read = node.transform is None or node.transform.function is None
            self._lacking[key] = False
            if declared and is_read and self.table(key).exists:
                stored = {name.casefold() for name in self.table(key).columns}
                self._lacking[key] = any(name.casefold() not in stored for name in declared)
        return self._lacking[key]

    @cached_property
    def _places(self) -> dict[str, NodeKey]:
        nodes = self.project.graph.nodes
        tables = {self.project.target(key).uri: key for key in nodes}
        return {**{uri: key for key in nodes if (uri := self._quarantine(key)) is not None}, **tables}

    def _quarantine(self, key: NodeKey) -> str | None:
        node = self.project.graph.node(key)
        path = node.quarantine
        return None if path is None else self.project.location(node.write.connection, path).uri

    def is_of_quarantine(self, owner: NodeKey, read: ReadConfig | None) -> bool:
        """Whether a ``read`` reads the quarantine of a node by its path."""
        if read is None or not read.stored_at or read.READS != "table":
            return False
        return self.project.location(read.connection, read.stored_at).uri == self._quarantine(owner)

    def _writer(self, read: ReadConfig) -> NodeKey | None:
        """The node whose table, or quarantine, a ``read`` reads by its path."""
        if not read.stored_at or read.READS != "table":
            return None
        return self._places.get(self.project.location(read.connection, read.stored_at).uri)

    # -- one node

    def views(self, key: NodeKey) -> dict[str, Columns | None]:
        """By view that a node reads, its columns; None where they are not known."""
        node = self.project.graph.node(key)
        reads = {at[1] if len(at) > 1 else READ: read for at, read in node.reads.items()}
        owners = self.owners(key)
        return {view: self._columns(owners[view], reads.get(view)) for view in self._own_views(key)}

    def _own_views(self, key: NodeKey) -> list[str]:
        node = self.project.graph.node(key)
        return list(dict.fromkeys([*([READ] if node.read is not None else []), *node.inputs]))

    def _columns(self, owner: NodeKey | str, read: ReadConfig | None) -> Columns | None:
        if isinstance(owner, NodeKey) and self.is_of_quarantine(owner, read):
            own = self._columns(owner, None)
            return None if own is None else (*own, FAILED_CHECKS)
        if isinstance(owner, NodeKey):
            if owner in self._nodes and self._is_behind(owner):
                return self._nodes[owner].columns
            return tuple(self.table(owner).columns) if self.table(owner).exists else None
        if read is None:
            return None
        if (named := read.all_columns) is not None:
            return tuple(named)
        if owner not in self._sources:
            table = read.READS == "table" and TableHandle.open(self.project.location(read.connection, read.stored_at))
            self._sources[owner] = tuple(table.columns) if table and table.exists else None
        return self._sources[owner]

    def _read(self, key: NodeKey) -> NodeLineage:
        views = self.views(key)
        try:
            stored = tuple(self.table(key).columns) if self.table(key).exists else None
            return self._lineage(key, self._given(key, self.project.graph.node(key), views, stored), views)
        except NotFollowed as unknown:
            table = self.table(key)
            columns = tuple(table.columns) if table.exists else None
            return NodeLineage(key, columns, None, self.owners(key), str(unknown), unknown.fix)

    def _lineage(self, key: NodeKey, rows: Rows, views: Mapping[str, Columns | None]) -> NodeLineage:
        kept_rows = stored_rows(rows, self.project.graph.node(key), views)
        table = self.table(key)
        stored = tuple(table.columns) if table.exists else ()
        folded = {name.casefold() for name in stored}
        added: dict[str, str] = {}
        for name, _ in kept_rows.columns:
            added.setdefault(name.casefold(), name)
        columns = (*stored, *(name for folded_name, name in added.items() if folded_name not in folded))
        is_known = table.exists or kept_rows.unlisted is None
        twice = [name for name, count in Counter(name.casefold() for name, _ in kept_rows.columns).items() if count > 1]
        if twice:
            why = f"its rows have `{twice[0]}` more than once, and no table takes that"
            fix = f"give the columns `{twice[0]}` names of their own"
            return NodeLineage(key, columns if is_known else None, None, self.owners(key), why, fix)
        return NodeLineage(key, columns if is_known else None, kept_rows, self.owners(key))

    def _given(
        self, key: NodeKey, node: NodeConfig, views: Mapping[str, Columns | None], stored: Columns | None
    ) -> Rows:
        """What the transform of a node gives.

        Raises:
            NotFollowed: that is not known.
        """
        if node.apply is not None:
            if stored is None:
                raise NotFollowed("it has the columns of the database's table, which its first run finds")
            keys = tuple(name for name in node.write.keys if name != "*")
            return applied_rows(stored, keys, next(iter(node.inputs)))
        if node.transform is None:
            return _as_it_is(views, stored)
        if node.transform.function is None:
            try:
                return query_rows(node.transform.sql_text(self.project.root), tuple(views.items()))
            except NotFollowed:
                if self._plans is None:
                    raise
        if self._plans is None:
            raise NotFollowed(NEEDS_PLAN)
        return self._planned.rows(key)

    @cached_property
    def _planned(self) -> Plans:
        assert self._plans is not None
        return self._plans(self)


def _as_it_is(views: Mapping[str, Columns | None], stored: Columns | None) -> Rows:
    if len(views) != 1:
        raise NotFollowed("it has no transform that makes one table of its inputs")
    ((view, columns),) = views.items()
    if columns is None and stored is None:
        raise NotFollowed("the columns of its source are known once it has run")
    return same_rows(view, columns or stored or ())
