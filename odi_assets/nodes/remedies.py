"""Makes remedies of the rooms below ones of a node: they name it, and name no transform that it cannot have.

Typed as they are, their commands would load every node of the project again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.delta.schema_evolution import REBUILD
from odi_assets.errors import OdiError
from odi_assets.nodes.node import Node
from odi_assets.sources.marks import READ
from odi_assets.state.values.typed_text import to_text

_OF_ANY_NODE = re.compile(r"odi run (?:… |--node NODE )?--full-refresh|run the node with --full-refresh")

_OF_ITS_STATE = re.compile(r"(odi state (?:rewind|adopt)) NODE\b")

_OF_TRANSFORMS = re.compile(
    r"(?:cast it in the transform(?: \([^)]*\))?: CAST\(.+? AS .+?\)(?=, or|; or)|drop the column in the transform(?=,)"
    r"|select it in the transform \(.+? if it is gone for good\))(?:[,;] (?:or )?)?"
)


@contextmanager
def remedies_named(node: Node) -> Iterator[None]:
    """Within, an error that says to load a node again, or to take it back, names ``node`` in the command."""
    try:
        yield
    except OdiError as error:
        error.fix = remedy_of(node, _with_hwm(node, error, _of_parquet(node, error)))
        raise


def _of_parquet(node: Node, error: OdiError) -> str | None:
    """The fix of ``error``, where a full refresh reads files of which some have the type of the table, some another."""
    read, fix = node.config.read, error.fix
    if fix is None or REBUILD not in fix or "unites" not in error.fields:
        return fix
    if read is None or read.format != "parquet" or read.declared is not None:
        return fix
    if error.fields["unites"]:
        way = f"set `write.schema: evolve`, and {REBUILD}" if error.fields["policy"] == "fail" else REBUILD
    elif error.fields["both"] is not None:
        way = f"name the columns in `read.schema`, `{error.fields['both']}` among them, and {REBUILD}"
    else:
        way = "land the files with one type"
    return fix.replace(REBUILD, way)


def _with_hwm(node: Node, error: OdiError, fix: str | None) -> str | None:
    """``fix`` with the command that sets the HWM which the error has, where it is all of the node's mark."""
    hwm = error.fields.get("hwm")
    if fix is None or hwm is None or tuple(node.following) != (READ,):
        return fix
    return fix.replace(" (odi state set)", f": odi state set {node.state_key} {shlex.quote(to_text(hwm))}")


def remedy_of(node: Node, fix: str | None) -> str | None:
    """``fix`` with the commands that load ``node`` again, alone, or take it back, and with no way that the node does
    not have."""
    if fix is not None and node.config.apply is not None:
        fix = _OF_TRANSFORMS.sub("", fix)
    if fix is not None:
        fix = _OF_ANY_NODE.sub(lambda _: f"odi run {node.command} --full-refresh", fix)
        fix = _OF_ITS_STATE.sub(lambda match: f"{match[1]} {node}", fix)
    return fix
