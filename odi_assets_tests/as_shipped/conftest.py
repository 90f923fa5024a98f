"""One installed environment for the tests of this room, and folders to type in."""

from __future__ import annotations

import pytest

from odi_assets_tests.as_shipped.installed import Installed, install
from odi_assets_tests.sources.sql.conftest import databases

__all__ = ["databases"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own."""
    return install(tmp_path_factory.mktemp("installed"))
