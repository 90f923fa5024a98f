"""What a run says of its nodes while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.result import NodeResult


@dataclass(frozen=True)
class NodeEvent:
    """A node of a run started, has come as far as ``reason`` says, or finished with ``result``; or a resumed run
    decided, for a ``reason``, to run it."""

    kind: Literal["started", "progressed", "decided", "finished"]
    key: NodeKey
    result: NodeResult | None = None
    reason: str | None = None


Listener = Callable[[NodeEvent], None]


def nobody(event: NodeEvent) -> None:
    """The listener of a run that nobody watches."""
    del event
