"""One cluster for all tests of this folder, and one Spark Connect server on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odi_assets_tests.cluster.servers import Cluster, connect_server, standalone_cluster

PLACES = ("standalone", "connect")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def remote(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server."""
    with connect_server(tmp_path_factory.mktemp("connect"), cluster.master) as address:
        yield address


@pytest.fixture
def place(request: pytest.FixtureRequest, cluster: Cluster) -> tuple[str, str]:
    """A key of a project's ``spark`` settings, and the address to give it."""
    if request.param == "connect":
        return "remote", request.getfixturevalue("remote")
    return "master", cluster.master
