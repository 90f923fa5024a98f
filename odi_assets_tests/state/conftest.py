"""Both backends, made afresh or reopened, for the one contract suite."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from odi_assets.config.models import ProjectConfig, RetryConfig
from odi_assets.delta.retry import Retry
from odi_assets.state import LocalJSONStateBackend, StateBackend, create_state_backend
from odi_assets.state.delta.backend import CatalogStateBackend

CLOUD = "ODI_TEST_CLOUD"
"""The environment variable that tells writer processes the connection of an object store."""
QUICK = RetryConfig(retries=30, base_delay=0.01, max_delay=0.05, jitter=0.02)


class Reopen(Protocol):
    """Opens the same state again, as another process would."""

    def __call__(self, environment: str | None = None) -> StateBackend: ...


def open_backend(kind: str, folder: Path, environment: str | None = None, **options: Any) -> StateBackend:
    """The backend of a folder; also what the writer processes of these tests call."""
    if kind == "local":
        return LocalJSONStateBackend(folder / "state.json", environment=environment)
    if kind == "cloud":
        return open_cloud(json.loads(os.environ[CLOUD]), folder, environment)
    return CatalogStateBackend(
        str(folder / "meta_runs"),
        str(folder / "meta_state"),
        environment=environment,
        retry=options.get("retry", Retry(QUICK)),
    )


def open_cloud(connection: dict[str, Any], folder: Path, environment: str | None = None) -> StateBackend:
    """The backend of a project file whose system tables are at a connection."""
    node = {"name": "n", "write": {"connection": "cloud", "path": "n"}}
    project = {
        "project": "x",
        "connections": {"cloud": connection},
        "pipelines": [{"pipeline": "p", "nodes": [node]}],
        "system": {"connection": "cloud", "path": folder.as_posix().lstrip("/"), "retry": QUICK.model_dump()},
    }
    return create_state_backend(ProjectConfig.model_validate(project)).in_environment(environment)


@pytest.fixture(params=["local", "catalog"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reopen(kind: str, tmp_path: Path) -> Callable[..., StateBackend]:
    def opened(environment: str | None = None) -> StateBackend:
        return open_backend(kind, tmp_path, environment)

    return opened


@pytest.fixture
def backend(reopen: Reopen) -> StateBackend:
    return reopen()
