"""What runs a deployment's runs: the daemon, the queue with its limits, the launcher, and the pools of nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator

from odi_assets.nodes.project import Project
from odi_assets.orchestration.deployment.look import Look, not_looked_at, right, wrong
from odi_assets.orchestration.naming import partition_of, pool_of
from odi_assets.orchestration.runs.daemons import daemons_at
from odi_assets.orchestration.runs.instance import CONFIG_FILE
from odi_assets.util.words import counted

DAEMON, QUEUE, POOLS = "daemon", "run queue", "pools"


def look_at_daemon(instance: dg.DagsterInstance) -> Iterator[Look]:
    """The heartbeats of the daemon's threads, and the errors that they have."""
    remedy = "start one `dagster-daemon run` with this home; its log says what stopped it"
    statuses = instance.get_daemon_statuses()
    late: list[str] = []
    for name, status in sorted(statuses.items()):
        beat = status.last_heartbeat
        if beat is None or not status.healthy:
            late.append(f"{name} ({'never' if beat is None else f'{time.time() - beat.timestamp:,.0f} s ago'})")
        for error in (beat.errors or [])[:1] if beat is not None else ():
            yield wrong(DAEMON, f"{name}: {error.message.strip().splitlines()[0]}", "see the daemon's log")
    if late:
        yield wrong(DAEMON, f"no heartbeat of {', '.join(late)}", remedy)
    else:
        yield right(DAEMON, f"{counted(len(statuses), 'thread')} with heartbeats: {', '.join(sorted(statuses))}")
    here = daemons_at(Path(instance.root_directory))
    if len(here) > 1:
        remedy = f"end all but one of the processes {', '.join(map(str, here))}"
        yield wrong(DAEMON, f"{len(here)} with this home run on this host: they request runs twice", remedy)
    yield not_looked_at(
        DAEMON, "whether another host or user has one: heartbeats say nothing of it", "start exactly one"
    )


def look_at_queue(instance: dg.DagsterInstance) -> Iterator[Look]:
    """Whether runs are queued, how many run at once, and whether runs that vanished are ended."""
    concurrency = instance.get_concurrency_config()
    queue, pools = concurrency.run_queue_config, concurrency.pool_config
    if not isinstance(instance.run_coordinator, QueuedRunCoordinator) or queue is None:
        name = type(instance.run_coordinator).__name__
        yield wrong(
            QUEUE,
            f"{name} starts each run at once: no limit and no pool holds",
            f"leave `run_coordinator` out of {CONFIG_FILE}: Dagster queues runs then",
        )
        return
    most = queue.max_concurrent_runs
    if most < 0:
        yield wrong(
            QUEUE,
            "any number of runs may run at once, each with a JVM",
            f"`concurrency: {{runs: {{max_concurrent_runs: 2}}}}` in {CONFIG_FILE}",
        )
    else:
        launcher = type(instance.run_launcher).__name__
        yield right(QUEUE, f"at most {counted(most, 'run')} at once, so as many JVMs; {launcher} starts them")
    granularity = pools.pool_granularity.value if pools.pool_granularity else "op"
    if granularity != "run" or pools.default_pool_limit != 1:
        yield wrong(
            POOLS,
            f"granularity is {granularity}, and the default limit {pools.default_pool_limit}: two runs of a node may "
            "compute the same rows at once, and one of them in vain",
            f"`concurrency: {{pools: {{granularity: run, default_limit: 1}}}}` in {CONFIG_FILE}",
        )
    if not instance.run_monitoring_enabled:
        yield wrong(
            QUEUE,
            "runs are not monitored: one whose process vanished on another host holds its nodes' pools for ever",
            f"`run_monitoring: {{enabled: true, max_runtime_seconds: 86400}}` in {CONFIG_FILE}",
        )


def look_at_pools(instance: dg.DagsterInstance, project: Project) -> Look:
    """The limits that somebody gave to the pools of nodes."""
    nodes = list(project.graph.nodes)
    pools = {pool_of(project, key) for key in nodes}
    pools |= {pool_of(project, key, of_ranges=True) for key in nodes if partition_of(project, key) is not None}
    limits = {
        pool_limit.name: pool_limit.limit
        for pool_limit in instance.event_log_storage.get_pool_limits()
        if not pool_limit.from_default
    }
    others = {name: limit for name, limit in limits.items() if name in pools and limit != 1}
    if not others:
        names = sorted(pools)
        return right(POOLS, f"{counted(len(names), 'pool')} of nodes, {names[0]} among them: none has a limit but 1")
    name, limit = min(others.items())
    more = f", as {len(others) - 1} more" if len(others) > 1 else ""
    return wrong(
        POOLS,
        f"{name} has the limit {limit}{more}: "
        + ("its node never runs" if limit == 0 else "two runs of its node may compute the same rows at once"),
        f"dagster instance concurrency set {name} 1",
    )
