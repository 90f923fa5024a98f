"""The Delta app transactions that a node's commits take."""

from __future__ import annotations

from odi_assets.config.graph import NodeKey

BEFORE_FIRST_RUN = "before_first_run"
"""What a rewind's commit says of a version that holds no row of the node's runs."""


def app_id(key: NodeKey) -> str:
    """The Delta app transaction that fences a node's commits."""
    return f"odi_assets:{key}"


def range_app_id(key: NodeKey) -> str:
    """The Delta app transaction of a node's bounded commits, which leave the fence of its increments alone."""
    return f"{app_id(key)}:range"


def app_ids(key: NodeKey) -> tuple[str, str]:
    """Both: that of increments and full refreshes, and that of bounded runs."""
    return app_id(key), range_app_id(key)
