"""How far the sources of a pipeline are ahead of their HWMs, without Spark.

A node is planned only if something changed since it was planned last: the position of a source, its table, or its HWM.
What was found is remembered in memory, and what had nothing new also in the sensor's cursor, for a new process.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import dagster as dg

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.delta.position import table_position
from odi_assets.nodes.history.repair import GRACE
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.apply import AppliedLogs
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import KnownHwms, plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.orchestration.assets.sources import Sources, is_watched, looked_at
from odi_assets.orchestration.automation.looks import Looks
from odi_assets.orchestration.automation.marks_read import read_marks
from odi_assets.orchestration.automation.observed import Observer, Sighting, digest, sightings
from odi_assets.sources.marks import hwm_text

logger = logging.getLogger(__name__)
_DIGITS = 12


@dataclass(frozen=True)
class Positions:
    """What one look at the sources found.

    Attributes:
        ahead: nodes whose source is ahead, with what is new in words.
        current: nodes whose source is not ahead, with their HWM in words.
        errors: nodes whose source could not be examined, or has moved in a way that starts nothing, and why.
        unseen: nodes that there was no time for.
        marks: by node that is ahead, a hash of where its sources stand.
        follow: the nodes in ``ahead`` that only follow the first run of others.
    """

    ahead: dict[NodeKey, str] = field(default_factory=dict)
    current: dict[NodeKey, str] = field(default_factory=dict)
    errors: dict[NodeKey, str] = field(default_factory=dict)
    unseen: tuple[NodeKey, ...] = ()
    marks: dict[NodeKey, str] = field(default_factory=dict)
    follow: frozenset[NodeKey] = frozenset()

    def joined(
        self, ahead: Mapping[NodeKey, str], marks: Mapping[NodeKey, str], errors: Mapping[NodeKey, str]
    ) -> Positions:
        """These, and what another look found of other nodes."""
        return replace(
            self,
            ahead={**self.ahead, **ahead},
            marks={**self.marks, **marks},
            errors={**self.errors, **errors},
        )

    @property
    def fingerprint(self) -> str:
        """A hash of the positions of the sources that are ahead."""
        return digest({str(key): mark for key, mark in self.marks.items()}) if self.marks else ""


@dataclass(frozen=True)
class _Seen:
    """One look at one node.

    Attributes:
        print: a hash of all that its plan depends on; empty if there is no plan, because a table is not there yet.
        mark: a hash of where its sources stand, as far as another run would meet the same again.
        ahead: whether they are ahead of the HWM.
        text: what is new, or why nothing is, in words; empty if the HWM says it.
        warning: a move of a source that starts nothing, in words; empty if there is none.
        lasts: as long as ``print`` stays the same, so does the rest.
        sightings: where its sources outside the project stand.
    """

    print: str
    mark: str
    ahead: bool
    text: str
    lasts: bool
    warning: str = ""
    sightings: tuple[Sighting, ...] = ()

    @property
    def is_idle(self) -> bool:
        return self.lasts and not self.ahead and not self.warning


class Watch:
    """Looks at the sources of one pipeline, again and again.

    Attributes:
        nodes: the nodes with a source whose position is known without reading it.
        unreported: by node, where sources stand that may have moved, until somebody reports it.
    """

    def __init__(
        self,
        project: Project,
        pipeline: str,
        nodes: Sequence[NodeKey] | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.project, self.pipeline, self._sources = project, pipeline, sources
        self.unreported: dict[NodeKey, tuple[Sighting, ...]] = {}
        self.nodes = watched_nodes(project, pipeline) if nodes is None else tuple(nodes)
        automation = project.config.automation
        self._looks: Looks[NodeKey, _Seen] = Looks(automation.looks_at_once, automation.look_timeout.total_seconds())
        self._seen: dict[NodeKey, _Seen] = {}
        self._first: dict[NodeKey, tuple[str, float]] = {}
        self._changed: set[NodeKey] = set()
        self._repaired_all = time.monotonic()
        self._next = 0

    @cached_property
    def _state_keys(self) -> dict[NodeKey, str]:
        return {key: state_key(key, self.project.graph.node(key)) for key in self.nodes}

    @cached_property
    def _definition(self) -> str:
        # What is remembered of another project file, or of another of its environments, is of no use. Neither is what
        # was remembered before sources were reported.
        chosen = (self.project.chosen or "").encode()
        return hashlib.sha256(self.project.path.read_bytes() + b"\0observed\0" + chosen).hexdigest()[:_DIGITS]

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self.project, self._sources)

    def observe(self, instance: dg.DagsterInstance, running: Container[NodeKey], seconds: float) -> None:
        """Report the sources that moved since they were reported last, as observations of their assets. After
        ``seconds``, the next call goes on.

        Args:
            running: nodes that are in a run. What they read is reported by a later call.
        """
        until = time.monotonic() + seconds
        for key in list(self.unreported):
            if time.monotonic() < until and self._observer.report(instance, key, self.unreported[key], running):
                del self.unreported[key]

    def recall(self, remembered: Mapping[str, str], definition: str) -> None:
        """Take up what :meth:`remember` gave to an earlier process."""
        if self._seen or definition != self._definition:
            return
        nodes = {str(key): key for key in self.nodes}
        self._seen = {
            nodes[name]: _Seen(fingerprint, "", False, "", True)
            for name, fingerprint in remembered.items()
            if name in nodes
        }

    def remember(self) -> tuple[dict[str, str], str]:
        """The nodes that had nothing new, each with a hash of all that this depends on; and what it is valid for."""
        lasting = {
            str(key): seen.print for key, seen in self._seen.items() if seen.is_idle and key not in self.unreported
        }
        return lasting, self._definition

    def to_repair(self) -> tuple[NodeKey, ...]:
        """The nodes whose table a run may have written without a row of history: those that changed since this was
        asked last; once in a while all, because a run gets some time to write its row."""
        if time.monotonic() - self._repaired_all > GRACE.total_seconds():
            self._repaired_all = time.monotonic()
            return self.project.graph.order(self.pipeline)
        changed, self._changed = self._changed, set()
        return tuple(key for key in self.nodes if key in changed)

    def look(self, seconds: float, leave_out: Sequence[NodeKey] = ()) -> Positions:
        """Compare the watched sources with their HWMs; after ``seconds``, no further node is begun. The next look
        begins with those.

        Args:
            leave_out: nodes that need no look.
        """
        until = time.monotonic() + seconds
        hwms, logs = KnownHwms(read_marks(self.project)), AppliedLogs(self.project)
        turn = self.nodes[self._next :] + self.nodes[: self._next]
        asked = [key for key in turn if key not in leave_out]
        questions: dict[NodeKey, Callable[[], _Seen]] = {key: self._question(key, hwms, logs) for key in asked}
        positions, answered = Positions(), set()
        for answer in self._looks.ask(questions, until):
            key, seen = answer.key, answer.value
            answered.add(key)
            if seen is None:
                error = answer.error
                logger.warning("%s: its source cannot be looked at: %s", key, error)
                logger.debug("why %s cannot be looked at", key, exc_info=error)
                positions.errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            if seen is not self._seen.get(key):
                self.unreported[key] = seen.sightings or self.unreported.get(key, ())
            self._seen[key] = seen
            if seen.warning:
                logger.warning("%s: %s", key, seen.warning)
                positions.errors[key] = seen.warning
            if seen.ahead:
                positions.ahead[key], positions.marks[key] = seen.text, seen.mark
            else:
                entry = hwms.get_entry(self._state_keys[key])
                positions.current[key] = seen.text or hwm_text(entry.value if entry else None) or "nothing to read"
        unseen = tuple(key for key in asked if key not in answered)
        self._next = self.nodes.index(unseen[0]) if unseen else 0
        return Positions(
            self._in_order(positions.ahead),
            self._in_order(positions.current),
            self._in_order(positions.errors),
            unseen,
            self._in_order(positions.marks),
            frozenset(key for key in positions.ahead if not self._seen[key].print),
        )

    def _in_order(self, group: Mapping[NodeKey, str]) -> dict[NodeKey, str]:
        # Answers come in the order in which sources gave them.
        return {key: group[key] for key in self.nodes if key in group}

    def _question(self, key: NodeKey, state: KnownHwms, logs: AppliedLogs) -> Callable[[], _Seen]:
        return lambda: self._look_at(key, state, logs)

    def _look_at(self, key: NodeKey, state: KnownHwms, logs: AppliedLogs) -> _Seen:
        node, graph = Node.of(self.project, key), self.project.graph
        missing = [up for up in graph.upstream(key) if table_position(self.project.target(up))["version"] is None]
        if missing:
            return _follows(key, missing)
        kind = node.kind
        positions = {source.name: source.position() for source in looked_at(node)}
        entry = state.get_entry(node.state_key, deleted=True)
        stored = None if entry is None else [entry.revision, entry.updated_at.isoformat(), hwm_text(entry.value)]
        mark = digest(positions)
        fingerprint = digest([mark, stored, table_position(node.target.location)])
        earlier = self._seen.get(key)
        if earlier is not None and earlier.print == fingerprint and earlier.lasts:
            return earlier
        if self._first.get(key, ("",))[0] != fingerprint:
            self._first[key] = fingerprint, time.monotonic()
        settles = max((source.settles_within.total_seconds() for source in node.sources), default=0.0)
        lasts = not kind.leaves_work and (settles == 0 or time.monotonic() - self._first[key][1] > settles)
        self._changed.add(key)
        log = logs.of(key)
        # A log that has grown since the look began is not the one whose position is remembered.
        is_current = log is not None and log.position in positions.values()
        plan = plan_node(self.project, state, key, RunRequest(accept_loss=True, log=log if is_current else None))
        ahead = _is_ahead(plan)
        stands = {read.name: read.stands_at for read in plan.reads if read.stands_at is not None}
        mark = digest({**positions, **stands}) if stands else mark
        warning = "; ".join(read.warning for read in plan.reads if read.warning)
        settled = settles == 0 or lasts
        seen = sightings(plan, positions, settled=settled)
        return _Seen(fingerprint, mark, ahead, plan.summary if ahead else "", lasts, warning, seen)


def watched_nodes(project: Project, pipeline: str) -> tuple[NodeKey, ...]:
    """The nodes of a pipeline with a source whose position is known without reading it."""
    return tuple(key for key in project.graph.order(pipeline) if is_watched(Node.of(project, key)))


def look(project: Project, pipeline: str, seconds: float) -> Positions:
    """Compare the watched sources of a pipeline with their HWMs, once; see :meth:`Watch.look`."""
    return Watch(project, pipeline).look(seconds)


def _is_ahead(plan: NodePlan) -> bool:
    # A source that is read again behind its mark is not ahead of it.
    return not plan.nothing_new and (plan.node.kind.leaves_work or any(read.moves for read in plan.reads))


def _follows(key: NodeKey, missing: Sequence[NodeKey]) -> _Seen:
    names = ", ".join(str(above) for above in missing)
    if any(above.pipeline == key.pipeline for above in missing):
        # A run of the pipeline makes them first, and then this node.
        return _Seen("", digest(names), True, f"follows the first run of {names}", False)
    return _Seen("", "", False, f"nothing: {names} has not been run", False)
