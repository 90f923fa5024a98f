"""How far captures are behind their servers' logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.start import table_and_start
from odi_assets.nodes.project import Project
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.cdc.lag import CapturedLog, LogLag
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.state.backend import StateBackend
from odi_assets.util.words import counted


@dataclass(frozen=True)
class CaptureLag:
    """How far a capture is behind, and the limit of the project file.

    Attributes:
        lag: None if the log does not go on where the capture is.
        slot: empty where there are no slots.
        limit: bytes.
    """

    lag: LogLag | None
    slot: str
    limit: int

    @property
    def is_beyond(self) -> bool:
        """Whether it is behind by more than the limit, or cannot go on."""
        return self.lag is None or max(self.lag.bytes, self.lag.slot_bytes) > self.limit

    @property
    def text(self) -> str:
        if self.lag is None:
            return f"the slot `{self.slot}` is gone" if self.slot else "the server has deleted its log above it"
        words = f"it is behind the server's log by {self.lag}"
        if self.slot:
            words += f"; its slot holds {counted(self.lag.slot_bytes, 'byte')}"
        return f"{words}, more than `warn_lag`, {self.limit:,}" if self.is_beyond else words

    @property
    def metrics(self) -> Mapping[str, Any]:
        return {} if self.lag is None else self.lag.metrics


def lag_of(project: Project, state: StateBackend, key: NodeKey) -> CaptureLag | None:
    """How far a node that captures a log is behind; None if it has captured nothing.

    Raises:
        SourceError: the server cannot be reached, or the slot is read by another session.
    """
    node = Node.of(project, key)
    source = node.sources[0]
    assert isinstance(source, CapturedLog)
    _, start = table_and_start(node, state)
    if start.hwm is None:
        return None
    with remedies_named(node):
        lag = source.lag(CaptureMark.of(start.hwm.value, source.label))
    return CaptureLag(lag, source.slot, source.warn_lag)
