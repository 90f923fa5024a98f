"""Whether Maven Central can be reached, where Spark fetches ``spark.packages`` from."""

from __future__ import annotations

import socket
from functools import cache

import pytest

_HOST = "repo1.maven.org"


@cache
def _is_reached() -> bool:
    try:
        socket.create_connection((_HOST, 443), timeout=10).close()
    except OSError:
        return False
    return True


def needs_maven() -> None:
    """Skip a test that fetches a JAR where there is no way to it."""
    if not _is_reached():
        pytest.skip(f"{_HOST} is not reached, and `spark.packages` are fetched from there")
