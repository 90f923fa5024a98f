"""What a node's commit says of itself in its table's log: enough to repair state and history from the log alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from odi_assets.connections.location import Location
from odi_assets.delta.changes import is_other_history
from odi_assets.delta.history import CommittedStamp, commit_text, digest_of, fences_in
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.sources.marks import Identity
from odi_assets.state.values import Encoded, decode, encode


@dataclass(frozen=True)
class CommittedHwm:
    """The HWM that a commit carries.

    Attributes:
        json, type: its value as state stores it.
        remembered: by source, what its mark has to remember beside its value.
        measures: by source, what its mark measures; empty in commits of older versions.
        root: the folder that the project had then; None if that is not known. The facts of the commit have it.
    """

    json: str
    type: str
    remembered: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Identity] = field(default_factory=dict)
    root: str | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        mark: NodeMark | None,
        remembered: Mapping[str, Any] | None = None,
        measures: Mapping[str, Identity] | None = None,
    ) -> CommittedHwm:
        """The HWM ``mark``, to be committed."""
        stored = _encoded(mark)
        return cls(stored.json, stored.type, remembered or {}, measures or {})

    @property
    def mark(self) -> NodeMark | None:
        return NodeMark.of_value(decode(self.json, self.type))

    def carries(self, mark: NodeMark | None) -> bool:
        """Whether it carries ``mark``, types included."""
        return tuple(_encoded(mark)) == (self.json, self.type)

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"value": self.json, "type": self.type}
        if self.remembered:
            facts["reads"] = dict(self.remembered)
        if self.measures:
            facts["measures"] = {name: identity.to_json() for name, identity in self.measures.items()}
        return facts

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> CommittedHwm:
        measures = _identities(stored.get("measures"))
        return cls(stored["value"], stored["type"], stored.get("reads") or {}, measures)


def _encoded(mark: NodeMark | None) -> Encoded:
    return encode(None if mark is None else mark.value)


@dataclass(frozen=True)
class HwmOrigin:
    """What an HWM is of, as state stores it beside the HWM. None where that is not known.

    Attributes:
        node: ``pipeline.node``.
        root: the folder of the project, links resolved.
        table_id: the id of the node's table; None in an HWM that was set by hand.
        commit: identifies the commit of that table whose HWM it is (see ``delta.history.commit_digest``).
        measures: by source, what its mark measures.
        accepted: somebody accepted the table as it was then. Later commits of the table have its rows, and more.
        place: where that table is, links resolved; None where early versions did not store it.
        fences: by app id, the transaction numbers of that commit. A table with lower ones never had it.
    """

    node: str | None = None
    project: str | None = None
    root: str | None = None
    table_id: str | None = None
    measures: Mapping[str, Identity] = field(default_factory=dict)
    commit: str | None = None
    accepted: bool | None = None
    place: str | None = field(default=None, compare=False)
    fences: Mapping[str, int] | None = field(default=None, compare=False)

    def of_version(self, table: Location, version: int | None) -> HwmOrigin:
        """The origin of an HWM that belongs to ``version`` of the node's ``table``; None stands for no table."""
        if version is None or version < 0:
            return replace(self, commit=None, fences=None)
        text = commit_text(table, version)
        commit, fences = (None, None) if text is None else (digest_of(text), fences_in(text))
        return replace(self, commit=commit, place=table.true_path(), fences=fences)

    def is_other_history(self, table: TableHandle, version: int) -> bool:
        """Whether ``table`` never had the commit of the HWM, which made ``version``.

        Raises:
            TableError: the log cannot be read.
        """
        # The log may have lost that commit; it never loses the numbers.
        lower = (table.transaction_number(app) < number for app, number in (self.fences or {}).items())
        return any(lower) or is_other_history(table, version, self.commit)

    def to_json(self) -> str:
        """The text that state stores."""
        return json.dumps(
            {**vars(self), "measures": {name: identity.to_json() for name, identity in self.measures.items()}}
        )

    @classmethod
    def from_json(cls, text: str | None) -> HwmOrigin | None:
        """The origin that state stores; None for an HWM without one.

        Raises:
            StateError: it is no origin.
        """
        if not text:
            return None
        try:
            stored = json.loads(text)
            known = {item.name: stored.get(item.name) for item in fields(cls)}
            return cls(**{**known, "measures": _identities(known["measures"])})
        except (ValueError, AttributeError) as error:
            raise StateError(
                f"state says of an HWM that it is of {text[:80]}, which is not what a run writes",
                fix="set the HWM again (odi state set), and it is one of the node as it is defined now",
            ) from error


def _identities(stored: Mapping[str, Any] | None) -> dict[str, Identity]:
    identities = {name: Identity.from_json(stored_identity) for name, stored_identity in (stored or {}).items()}
    return {name: identity for name, identity in identities.items() if identity is not None}


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """The facts of one commit. A fact that does not apply, or that an older version did not write, is None.

    Attributes:
        node: ``pipeline.node``.
        project: its project.
        root: the folder of the project, links resolved.
        history: which run history of the project the run is in (see ``Project.history``).
        mode: how the rows were written, or ``rewind``, or ``adopt``.
        increment: what was read, in words.
        positions: the position of each source, and of each node in ``depends_on``.
        state_revision, state_updated_at: the state entry that the plan saw; if there was none, 0 and the time of the
            plan.
        inputs: by upstream node, the version of its table that was read. None: not known.
        partial: the run was of only some of the pipeline's nodes.
        bounds: start and end of a bounded run.
        ranges: of a bounded run, by source whose cursor was in ``bounds``: what the source consisted of.
        partitions: the values of a column that a run was bounded to.
        sources: of a run that was bounded, and of a rewind to a table without an HWM: what each source is that the node
            follows. No mark says it.
        hwm: the HWM that belongs to the table's rows from this commit on.
        unmarked: the table may hold rows that no HWM counts, for a part of it was run. A run that moves the HWM counts
            them.
        before_first_run: of a rewind, and of an adoption: the table holds no row of the node's increments from then on.
        rewound_to: of a rewind: the version it went back to.
        rows_written, rows_updated: counted by the write.
        store: the version of the node's state store that belongs to the table's rows from this commit on.
        stream: of a stream node: the batch whose rows are in the table from this commit on.
        known_by: by what the node's write knows the rows that are in the table from this commit on (see
            ``planning.known_rows``).
        quarantine: of a node with a quarantine: the increment's bad rows (see ``execution.checks.bad_rows``).
    """

    node: str
    project: str | None = None
    root: str | None = None
    history: str | None = None
    run_id: str | None = None
    attempt: int | None = None
    mode: str | None = None
    increment: str | None = None
    code_version: str | None = None
    positions: Mapping[str, Any] | None = None
    state_revision: int = 0
    state_updated_at: datetime | None = None
    inputs: Mapping[str, int] | None = None
    partial: bool = False
    bounds: tuple[str, str] | None = None
    ranges: Mapping[str, Any] | None = None
    partitions: tuple[str, ...] | None = None
    sources: Mapping[str, Any] | None = None
    hwm: CommittedHwm | None = None
    unmarked: bool | None = None
    before_first_run: bool | None = None
    rewound_to: int | None = None
    rows_written: int | None = None
    rows_updated: int | None = None
    store: Mapping[str, Any] | None = None
    stream: StreamFacts | None = None
    known_by: Mapping[str, Any] | None = None
    quarantine: Mapping[str, Any] | None = None

    def origin(self, table_id: str | None) -> HwmOrigin:
        """What the HWM of this commit is of."""
        measures = self.hwm.measures if self.hwm else {}
        return HwmOrigin(self.node or None, self.project, self.root, table_id, measures)

    @property
    def origin_of_part(self) -> HwmOrigin | None:
        """What the rows of a part are of, where no HWM says it; None if this commit does not either."""
        sources = _identities(self.sources)
        return HwmOrigin(self.node or None, self.project, self.root, None, sources) if sources else None

    def to_json(self) -> dict[str, Any]:
        """The facts as the log stores them. The commit itself adds the counts of rows and ``rewound_to``."""
        facts = {
            **vars(self),
            "bounds": list(self.bounds) if self.bounds else None,
            "partitions": list(self.partitions) if self.partitions else None,
            "hwm": self.hwm.to_json() if self.hwm else None,
            "partial": self.partial or None,
            "stream": self.stream.to_json() if self.stream else None,
        }
        known = {name: value for name, value in facts.items() if value is not None}
        updated_at = self.state_updated_at.isoformat() if self.state_updated_at else None
        return {**known, "state_updated_at": updated_at}

    @classmethod
    def last_in(cls, target: TableHandle, fences: Collection[str]) -> CommitFacts | None:
        """The facts of the newest commit of ``target`` under one of ``fences``; None if the log holds none."""
        if not any(target.transaction_number(fence) for fence in fences):
            return None
        own = (stamp for stamp in target.stamps() if stamp.app_id in fences)
        return next(map(cls.of, own), None)

    @classmethod
    def of(cls, stamp: CommittedStamp) -> CommitFacts:
        """The facts of a commit of ours, read from the log; commits of older versions are understood too."""
        facts = stamp.facts
        updated_at, bounds, rewound_to = facts.get("state_updated_at"), facts.get("bounds"), facts.get("rewound_to")
        as_they_are = {item.name: facts.get(item.name) for item in fields(cls)}
        typed: dict[str, Any] = {
            "node": str(facts.get("node") or ""),
            "attempt": int(facts["attempt"]) if facts.get("attempt") else None,
            "state_revision": int(facts.get("state_revision") or 0),
            "state_updated_at": datetime.fromisoformat(updated_at) if updated_at else None,
            "partial": bool(facts.get("partial")),
            "bounds": (str(bounds[0]), str(bounds[1])) if bounds else None,
            "partitions": tuple(map(str, facts["partitions"])) if facts.get("partitions") else None,
            "hwm": CommittedHwm.from_json(facts["hwm"]) if facts.get("hwm") else None,
            "rewound_to": None if rewound_to is None else int(rewound_to),
        }
        if facts.get("stream"):
            typed["stream"] = StreamFacts.from_json(facts["stream"])
        return cls(**{**as_they_are, **typed})
