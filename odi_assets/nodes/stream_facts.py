"""What the commit of a stream node's batch says of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from odi_assets.nodes.mark import NodeMark

BatchSpan = tuple[int, int]
"""The first and the last number of a range of batches without gaps."""

_LEFT_OUT = ("token_logged", "late_times", "gaps", "changed", "evicts", "keeps", "settings", "read_at")
"""Facts that are not stored where there is nothing to say."""


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """What the commit of a batch says of it: enough to know the batch again, and to rebuild its row of
    ``meta_batches``.

    Attributes:
        query: the id of the query, from its checkpoint's ``metadata``.
        batch: the number of the batch.
        checkpoint: the name of the checkpoint's folder.
        offsets: by input, how far the batch reads; see :class:`~odi_assets.state.delta.batches.BatchRecord`.
        watermark_ms: the watermark that the batch ran with, in milliseconds since 1970, UTC; 0 before there was one.
        planned_ms: when Spark planned the batch, likewise.
        rows_dropped: rows that came too late, by stateful operator; None if that was not known at the commit.
        token_logged: the Spark Connect server that computed the batch has its token in its log.
        late_times: by input, SQL of the time that decides whether a row is late, for the next run of the same
            definition; None if nobody asked.
        gaps: of a table of kept rows: batches whose rows it lacks, and nobody knows any more.
        changed: what of the query is not as the checkpoint notes it, which is what the first batch was computed with:
            by what it is, the checkpoint's and the batch's, in words.
        evicts: a watermark that moves makes Spark run another batch, even without new rows.
        keeps: the tables of kept rows that the node had, by their keys in the project file.
        settings: those of the node that the next batch is compared with, by their keys in the project file; empty in
            commits of older versions.
        read_at: by input, the files of the batch that changed after Spark had planned it, and before they were read:
            each with the time of its last change, in milliseconds since 1970, UTC.
    """

    query: str
    batch: int
    checkpoint: str
    offsets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    watermark_ms: int = 0
    planned_ms: int = 0
    rows_dropped: tuple[int, ...] | None = None
    token_logged: bool = False
    late_times: Mapping[str, str] | None = None
    gaps: tuple[BatchSpan, ...] = ()
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    evicts: bool = False
    keeps: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    read_at: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def mark(self) -> NodeMark:
        """How far the batch read, as plans and run history show it. State has no mark of a stream."""
        return NodeMark({"query": self.query, "batch": self.batch})

    def is_same_batch(self, planned: StreamFacts) -> bool:
        """Whether this is the batch that a checkpoint has planned: the same query, number and offsets. The number alone
        does not tell it: after the checkpoint is put back to an earlier copy, other rows get the same number. A plan of
        the same moment may name more inputs since: those that came back after it, and of which it read nothing."""
        if (self.query, self.batch) != (planned.query, planned.batch):
            return False
        if self.planned_ms != planned.planned_ms:
            return self.offsets == planned.offsets
        return all(planned.offsets.get(name) == offset for name, offset in self.offsets.items())

    def to_json(self) -> dict[str, Any]:
        stored = vars(self) | {"rows_dropped": None if self.rows_dropped is None else list(self.rows_dropped)}
        return {name: value for name, value in stored.items() if value or name not in _LEFT_OUT}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StreamFacts:
        known = {item.name: stored[item.name] for item in fields(cls) if stored.get(item.name) is not None}
        if "rows_dropped" in known:
            known["rows_dropped"] = tuple(known["rows_dropped"])
        known["gaps"] = tuple((first, last) for first, last in known.get("gaps", ()))
        known["keeps"] = tuple(known.get("keeps", ()))
        known["changed"] = {what: (stored, now) for what, (stored, now) in known.get("changed", {}).items()}
        return cls(**known)
