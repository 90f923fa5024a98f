"""All looks at a deployment, in the order in which one explains the next."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.nodes.project import Project
from odi_assets.orchestration.deployment.folders import look_at_folders
from odi_assets.orchestration.deployment.look import Look, not_looked_at
from odi_assets.orchestration.deployment.running import (
    DAEMON,
    POOLS,
    QUEUE,
    look_at_daemon,
    look_at_pools,
    look_at_queue,
)
from odi_assets.orchestration.deployment.storage import CLOCK, find_home, look_at_clock, open_storage
from odi_assets.orchestration.deployment.versions import SERVERS, look_at_packages, look_at_servers


def examine_deployment(project: Project, webserver: str | None = None) -> Iterator[Look]:
    """What instance, storage, daemon, queue, pools, clock, versions and folders are like, seen from this process.

    Nothing is made or changed, but for a file in each folder, which is removed again.

    Args:
        webserver: the address of the UI, which says what itself and the code servers are.

    Example:
        ``[look.found for look in examine_deployment(project) if look.outcome is LookOutcome.WRONG]``
    """
    home, look = find_home(project.root)
    yield look
    instance = None
    if home is not None:
        instance, looks = open_storage(home)
        yield from looks
    if instance is None:
        for part in (DAEMON, QUEUE, POOLS, CLOCK, *([SERVERS] if webserver else [])):
            yield not_looked_at(part, "there is no storage to ask")
    else:
        with instance:
            yield from look_at_daemon(instance)
            yield from look_at_queue(instance)
            yield look_at_pools(instance, project)
            yield look_at_clock(instance)
            if webserver:
                yield from look_at_servers(instance, webserver)
    if not webserver:
        yield not_looked_at(SERVERS, "the webserver and the code servers", "add --webserver http://HOST:3000")
    yield from look_at_packages()
    yield from look_at_folders(project, home)
