"""Follows a key through a change log: from the table of the database, by each change, to the tables that apply it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, OdiError
from odi_assets.explain.log_changes import ChangeOp, KeyHistory, TableLog
from odi_assets.explain.places import Trace, present
from odi_assets.explain.spans import Stay
from odi_assets.explain.verdicts import KeyVerdict, LoggedKeyChange, SearchedPlace, key_parts
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.apply import applied_below, key_in_log, mark_of_log
from odi_assets.nodes.project import Project
from odi_assets.sources.cdc.lookup import keys_there
from odi_assets.sources.cdc.source import LogSource
from odi_assets.tables.engine import engine_of
from odi_assets.util.words import counted


@dataclass(frozen=True)
class CapturedKeys:
    """Keys of a table in a change log.

    Attributes:
        trace: what is asked; the places that were looked at are added to it.
        capture: the node that writes the log.
        table: the captured table.
        columns: the columns that the keys are of.
    """

    trace: Trace
    capture: Node
    table: str
    columns: tuple[str, ...]

    def look(self, appliers: Sequence[Node]) -> dict[str, KeyHistory]:
        """Add the server and the log to the places, and the changes of each key; return them too.

        Args:
            appliers: the nodes whose tables are asked about.
        """
        log = TableHandle.open(self.capture.target.location)
        key = key_in_log(log, str(self.capture), self.table, str(self.capture))
        if not key:
            raise ConfigError(
                f"{self.table} has no key, so its changes cannot be followed",
                fix=f"give it a primary key; or look at the log itself: odi show {self.capture}",
                node=str(self.capture),
            )
        changes = TableLog(engine_of(log).read(self.trace.spark, log), self.table, self.capture, mark_of_log(log))
        by_key = changes.histories(self.columns, self.trace.keys)
        applied = {
            str(node): applied_below(node, TableHandle.open(node.target.location), log, self.trace.state)
            for node in appliers
        }
        history_by_key: dict[str, KeyHistory] = {}
        for asked_key in self.trace.keys:
            history = by_key.get(asked_key, KeyHistory())
            marked = [
                replace(change, applied_by=tuple(name for name, below in applied.items() if change.n < below))
                for change in history.changes
            ]
            self.trace.changes[asked_key], history_by_key[asked_key] = marked, replace(history, changes=tuple(marked))
        if {name.lower() for name in self.columns} == {name.lower() for name in changes.key}:
            self._at_server(changes.key)
        for asked_key in self.trace.keys:
            self.trace.add(asked_key, self._in_log(asked_key))
        return history_by_key

    def _at_server(self, key: Sequence[str]) -> None:
        """Whether the table of the database has the keys now."""
        source = self.capture.sources[0]
        if not isinstance(source, LogSource):
            # Its rows were captured by somebody else: their server is not known.
            return
        order = [[column.lower() for column in self.columns].index(name.lower()) for name in key]
        asked = {asked_key: tuple(key_parts(asked_key)[index] for index in order) for asked_key in self.trace.keys}
        name, why, there = f"{source.connection}:{self.table}", "", set[tuple[str, ...]]()
        try:
            there = keys_there(source, self.table, list(asked.values()))
        except OdiError as error:
            # The log itself needs no server.
            why = error.message
        for asked_key, parts in asked.items():
            if why:
                text = f"{name} cannot be looked at: {why}"
                place = SearchedPlace(name, KeyVerdict.UNEXPLAINED, text, is_source=True)
            elif parts in there:
                place = SearchedPlace(name, KeyVerdict.PRESENT, f"{name} has a row of it now", 1, is_source=True)
            else:
                place = SearchedPlace(name, KeyVerdict.NOT_LANDED, f"{name} has no row of it now", is_source=True)
            self.trace.add(asked_key, place)

    def _in_log(self, key: str) -> SearchedPlace:
        changes, name = self.trace.changes[key], str(self.capture)
        if changes:
            text = f"{name} has {counted(len(changes), 'change')} of it; the last one is {change_text(changes[-1])}"
            return SearchedPlace(name, KeyVerdict.PRESENT, text, len(changes))
        server = next((place for place in self.trace.places[key] if place.is_source and place.rows), None)
        if server is None:
            return SearchedPlace(name, KeyVerdict.NOT_LANDED, f"{name} has no change of it")
        text = f"{server.name} has a row of it, and {name} has not captured it yet. Run: odi run {self.capture.command}"
        return SearchedPlace(name, KeyVerdict.NOT_READ, text)


def followed_in_log(trace: Trace, node: Node, columns: tuple[str, ...], there: dict[str, Stay]) -> None:
    """Add what is known of keys in the table of a node that applies a log, and in its log.

    Args:
        there: since when the table has them, or until when it had them.
    """
    apply, captured_by = node.config.apply, node.applies
    assert apply is not None
    assert captured_by is not None
    capture = Node.of(trace.project, captured_by)
    histories = CapturedKeys(trace, capture, apply.table, columns).look([node])
    for key, history in histories.items():
        above = trace.at[key][str(capture)]
        trace.add(key, _in_table(node, above, history, there.get(key)))


def captured_in_log(trace: Trace, node: Node, table: str, columns: tuple[str, ...]) -> None:
    """Add what a change log has of keys of one of its tables, and who has applied it."""
    appliers = [
        applier
        for key in trace.project.graph.order()
        if (applier := Node.of(trace.project, key)).applies == node.key
        and applier.config.apply is not None
        and applier.config.apply.table == table
    ]
    CapturedKeys(trace, node, table, columns).look(appliers)


def _in_table(node: Node, above: SearchedPlace, history: KeyHistory, stay: Stay | None) -> SearchedPlace:
    """What is known of a key in the table of ``node``; ``above`` is what its log has."""
    name = str(node)
    waiting = [change for change in history.changes if name not in change.applied_by]
    then = f"; {counted(len(waiting), 'change')} of it not applied yet: odi run {node.command}" if waiting else ""
    if stay is not None and stay.rows:
        return present(node, stay, then)
    version, run_id = (stay.gone, stay.gone_run) if stay else (None, None)
    last = history.last(history.changes)
    if last is not None and history.is_removed_by(last):
        text = f"{name} has no row of it, for {_removal(last)}"
        return SearchedPlace(name, KeyVerdict.DELETED, text, 0, version, run_id)
    if last is not None and last in waiting:
        text = f"{name} has not applied it yet: {change_text(last)} is above what it has read"
        return SearchedPlace(name, KeyVerdict.NOT_READ, f"{text}. Run: odi run {node.command}")
    if last is not None:
        text = f"{name} has applied {change_text(last)}, and has no row of it: somebody else changed its table. "
        text += f"odi audit {node} compares it with the database; odi run {node.command} --full-refresh makes it again"
        return SearchedPlace(name, KeyVerdict.UNEXPLAINED, text)
    if stay is not None:
        text = f"{name} had it until version {stay.gone}, which was made of new snapshots, and these have no row of it"
        return SearchedPlace(name, KeyVerdict.DELETED, text, 0, version, run_id)
    return SearchedPlace(name, above.verdict, f"{name} has no row of it, for {above.text}")


def _removal(change: LoggedKeyChange) -> str:
    if change.op == ChangeOp.TRUNCATE:
        return f"{change_text(change)} emptied the table"
    if change.op == ChangeOp.NEW_SNAPSHOT:
        return f"{change_text(change)} began without it"
    if change.op == ChangeOp.KEY_CHANGE:
        return f"{change_text(change)} gave its row the key {', '.join(change.key)}"
    return f"{change_text(change)} took it out"


def change_text(change: LoggedKeyChange) -> str:
    """``the update n 14 at 0/1A2B3C (transaction 741, 2024-01-31 05:00:00 UTC)``."""
    where = "" if change.lsn is None else f" at {change.lsn}"
    when = f" (transaction {change.xid}, {change.committed_at:%Y-%m-%d %H:%M:%S} UTC)" if change.committed_at else ""
    return f"the {change.op} n {change.n:,}{where}{when}"


def table_of_log(project: Project, key: NodeKey, named: str | None) -> tuple[str, tuple[str, ...]]:
    """The captured table that is asked about, and the columns of its key.

    Args:
        key: a node that captures, or one that applies a log.
        named: the table, for a node that captures several.

    Raises:
        ConfigError: the log does not exist, or which table is meant is not said.
    """
    node = Node.of(project, key)
    capture, apply = node.applies or key, node.config.apply
    log = TableHandle.open(project.target(capture))
    mark = mark_of_log(log) if log.exists else None
    if mark is None:
        raise ConfigError(
            f"{capture} has captured nothing yet", fix=f"odi run {capture.pipeline} --node {capture.node}"
        )
    tables = sorted(mark["tables"])
    table = apply.table if apply is not None else named or (tables[0] if len(tables) == 1 else "")
    if not table:
        raise ConfigError(
            f"{key} captures {counted(len(tables), 'table')}, and which one is meant is not said",
            fix=f"name it: --table {tables[0]}" if tables else "capture a table first",
        )
    return table, key_in_log(log, str(capture), table, str(key))
