"""Fixtures of the orchestration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from odi_assets.nodes.project import Project
from odi_assets_tests.orchestration.small_project import make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The small project, with two days landed and nothing run."""
    return make_project(tmp_path / "project", "2024-01-01", "2024-01-02")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral
