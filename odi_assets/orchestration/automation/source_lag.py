"""How far the sources of a pipeline are ahead of their HWMs, without Spark."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.sources.marks import Mark, Unresolved, hwm_text
from odi_assets.state.values import encode

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Positions:
    """What one look at the sources found.

    Attributes:
        ahead: nodes whose source is ahead, with what is new in words.
        current: nodes whose source is not ahead, with their HWM in words.
        errors: nodes whose source could not be examined, or has moved in a way that starts nothing, and why.
        unseen: nodes that there was no time for.
        fingerprint: a hash of the positions of the sources that are ahead.
    """

    ahead: dict[NodeKey, str] = field(default_factory=dict)
    current: dict[NodeKey, str] = field(default_factory=dict)
    errors: dict[NodeKey, str] = field(default_factory=dict)
    unseen: tuple[NodeKey, ...] = ()
    fingerprint: str = ""


def watched_nodes(project: Project, pipeline: str) -> tuple[NodeKey, ...]:
    """The nodes of a pipeline with a source that tells its position without being read."""
    nodes = [Node.of(project, key) for key in project.graph.order(pipeline)]
    return tuple(node.key for node in nodes if node.config.stream or any(source.watchable for source in node.sources))


def look(project: Project, pipeline: str, seconds: float) -> Positions:
    """Compare the watched sources of a pipeline with their HWMs; after ``seconds``, no further node is begun."""
    deadline = time.monotonic() + seconds
    state = project.open_state()
    marks: dict[str, list[str]] = {}
    found = Positions()
    waiting = list(watched_nodes(project, pipeline))
    while waiting and time.monotonic() < deadline:
        key = waiting.pop(0)
        try:
            missing = [above for above in project.graph.upstream(key) if not _exists(project, above)]
            if missing:
                _wait_for(key, missing, found, marks)
                continue
            plan = plan_node(project, state, key, RunRequest(accept_loss=True))
        except Exception as error:
            # One source that is down must not keep the sensor from looking at the others.
            logger.exception("%s: its source cannot be looked at", key)
            found.errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        if warnings := [read.warning for read in plan.reads if read.warning]:
            logger.warning("; ".join(warnings))
            found.errors[key] = "; ".join(warnings)
        if not _is_ahead(plan):
            found.current[key] = hwm_text(plan.start.hwm) or "nothing to read"
        else:
            found.ahead[key] = plan.summary
            marks[str(key)] = [_mark(read.after) for read in plan.reads]
    return Positions(found.ahead, found.current, found.errors, tuple(waiting), _fingerprint(marks))


def _is_ahead(plan: NodePlan) -> bool:
    # A source that is read again behind its mark is not ahead of it. A batch that was planned and not committed is
    # reason enough to run a stream.
    return not plan.nothing_new and (plan.node.config.stream is not None or any(read.moves for read in plan.reads))


def _exists(project: Project, key: NodeKey) -> bool:
    return TableHandle.open(project.target(key)).exists


def _wait_for(key: NodeKey, missing: Sequence[NodeKey], found: Positions, marks: dict[str, list[str]]) -> None:
    names = ", ".join(str(above) for above in missing)
    if any(above.pipeline == key.pipeline for above in missing):
        # A run of the pipeline makes them first, and then this node.
        found.ahead[key] = f"follows the first run of {names}"
        marks[str(key)] = [names]
    else:
        found.current[key] = f"nothing: {names} has not been run"


def _fingerprint(marks: Mapping[str, Sequence[str]]) -> str:
    return hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest()[:16] if marks else ""


def _mark(mark: Mark | Unresolved | None) -> str:
    return str(mark) if mark is None or isinstance(mark, Unresolved) else encode(mark.value).json
