"""Keys and names in Dagster of what the project file names."""

from __future__ import annotations

import re

import dagster as dg

from odi_assets.config.graph import NodeKey

SOURCES_GROUP = "sources"
_GLOB = re.compile(r"[*?\[{]")
_EXTENSIONS = re.compile(r"(\.[A-Za-z0-9]{1,7}){1,2}$")


def asset_key(key: NodeKey) -> dg.AssetKey:
    """``[pipeline, node]``."""
    return dg.AssetKey([key.pipeline, key.node])


def node_key(key: dg.AssetKey) -> NodeKey:
    """The node of an asset key that :func:`asset_key` made."""
    pipeline, node = key.path
    return NodeKey(pipeline, node)


def op_name(key: NodeKey) -> str:
    """The step that materializes a node, as run configuration names it."""
    return f"{key.pipeline}__{key.node}"


def source_key(connection: str, path: str) -> dg.AssetKey:
    """The key of a source: its connection, then its path up to the first wildcard, without a file extension.

    ``landing`` and ``flights/2013-*.csv`` give ``[landing, flights]``; ``airlines.csv`` gives ``[landing, airlines]``.
    """
    parts: list[str] = []
    for part in path.strip("/").split("/"):
        if _GLOB.search(part):
            return dg.AssetKey([connection, *parts])
        if part not in ("", "."):
            parts.append(part)
    if parts:
        parts[-1] = _EXTENSIONS.sub("", parts[-1]) or parts[-1]
    return dg.AssetKey([connection, *parts])
