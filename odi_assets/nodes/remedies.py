"""Makes remedies of the rooms below ones of a node: they name it, and name no transform that it cannot have.

Typed as they are, their commands would load every node of the project again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.errors import OdiError
from odi_assets.nodes.node import Node

_OF_ANY_NODE = re.compile(r"odi run (?:… |--node NODE )?--full-refresh|run the node with --full-refresh")

_OF_TRANSFORMS = re.compile(
    r"(?:cast it in the transform: CAST\(.+? AS .+?\)(?=[,;])|drop the column in the transform(?=,)"
    r"|select it in the transform \(.+? if it is gone for good\))(?:[,;] (?:or )?)?"
)


@contextmanager
def remedies_named(node: Node) -> Iterator[None]:
    """Within, an error that says to load a node again names ``node`` in the command."""
    try:
        yield
    except OdiError as error:
        error.fix = remedy_of(node, error.fix)
        raise


def remedy_of(node: Node, fix: str | None) -> str | None:
    """``fix`` with the command that loads ``node`` again, alone, and with no way that the node does not have."""
    if fix is not None and node.config.apply is not None:
        fix = _OF_TRANSFORMS.sub("", fix)
    return fix and _OF_ANY_NODE.sub(lambda _: f"odi run {node.command} --full-refresh", fix)
