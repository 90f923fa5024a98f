"""Names the node in remedies of the rooms below: typed as they are, they would load every node of the project again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.errors import OdiError
from odi_assets.nodes.node import Node

_OF_ANY_NODE = re.compile(r"odi run (?:… |--node NODE )?--full-refresh|run the node with --full-refresh")


@contextmanager
def remedies_named(node: Node) -> Iterator[None]:
    """Within, an error that says to load a node again names ``node`` in the command."""
    try:
        yield
    except OdiError as error:
        error.fix = remedy_of(node, error.fix)
        raise


def remedy_of(node: Node, fix: str | None) -> str | None:
    """``fix`` with the command that loads ``node`` again, alone."""
    return fix and _OF_ANY_NODE.sub(lambda _: f"odi run {node.command} --full-refresh", fix)
