"""Whether the log of a database can be read again from a version that a capture goes back to."""

from __future__ import annotations

from odi_assets.errors import StateError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.cdc.source import LogSource
from odi_assets.sources.marks import READ


def require_log_kept(node: Node, hwm: NodeMark | None, version: int) -> None:
    """Raises StateError if the server has let go of log that a capture would have to read once more.

    Args:
        hwm: the HWM of the version that comes back; None: it had none, and its next run begins with snapshots.
        version: this version.

    Raises:
        StateError: it has.
        SourceError: the server cannot be reached, so that it is not known.
    """
    (source,) = node.sources
    if hwm is None or not isinstance(source, LogSource):
        return
    mark = CaptureMark.of(hwm.of_source(READ, (READ,), str(node)), source.label)
    with source.opened() as log:
        gone = log.why_gone(mark)
    if gone is None:
        return
    appliers = [
        key for key in node.project.graph.downstream(node.key) if Node.of(node.project, key).applies == node.key
    ]
    rewinds = ", ".join(f"odi state rewind {key} --list" for key in appliers)
    below = f"rewind only the nodes that apply it, for they read the change log: {rewinds}; or " if rewinds else ""
    raise StateError(
        f"{node} cannot go back to version {version}: it would read the server's log above {mark.text(mark.end)} once "
        f"more, and {gone}",
        fix=f"{below}make new snapshots: odi run {node.command} --full-refresh --yes",
        node=str(node),
        version=version,
    )
