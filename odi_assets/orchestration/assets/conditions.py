"""When Dagster requests runs of nodes by itself: the conditions of ``automation:``, and conditions of a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import AutomationCondition as Condition
from dagster._core.definitions.declarative_automation.operators.dep_operators import DepsAutomationCondition

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames, node_of, partition_of

if TYPE_CHECKING:
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

    from odi_assets.orchestration.assets.sources import Sources

NodeCondition = Condition[Any]


def condition_of(project: Project, key: NodeKey, sources: Sources, deps: Sequence[dg.AssetKey]) -> NodeCondition | None:
    """The condition that ``automation`` of a node asks for, made of Dagster's own; None if it asks for none.

    It holds as soon as the node can run: all that it reads is there and none of that is being made, no blocking check
    of a user's on it has failed, and the node is not in a run.

    Args:
        deps: the assets that the node reads.

    Raises:
        ConfigError: nothing that the node reads shows that it has changed.
    """
    automation = project.graph.node(key).automation
    if automation is None:
        return None
    above = {dep: node for dep in deps if (node := node_of(project, dep)) is not None}
    parted = [dep for dep, node in above.items() if partition_of(project, node) is not None]
    own = [dep for dep in deps if dep not in above and sources.owns(dep)]
    unseen = sources.unseen(key)
    due: NodeCondition
    if automation.on_cron is not None:
        unseen = own
        passed = Condition.cron_tick_passed(automation.on_cron, project.timezone_of(key.pipeline))
        due = passed.since(Condition.newly_requested())
    elif set(deps) <= set(unseen):
        raise ConfigError(
            f"`automation: eager` of {key} would wait for ever: nothing that it reads shows without being read that it "
            "has changed",
            fix="follow a source (`incremental`), or run the node at times, as in `automation: on_cron 0 6 * * *`",
            node=str(key),
        )
    else:
        due = _moved([dep for dep in above if dep not in parted], own)
    label = "eager" if automation.on_cron is None else f"on_cron({automation.on_cron})"
    ready = _ready(parted, unseen) & ~_checks_failed(project, above)
    return (due & ready.with_label("ready") & ~Condition.in_progress()).with_label(label)


def _moved(nodes: Sequence[dg.AssetKey], sources: Sequence[dg.AssetKey]) -> NodeCondition:
    """The node is missing, or something that it reads has changed or is about to, since the node was handled last.

    Args:
        nodes, sources: of what it reads, nodes without partitions and the project's own sources.
    """
    updated = Condition.any_deps_updated()
    due: NodeCondition = Condition.newly_missing()
    due = due | (updated.ignore(dg.AssetSelection.assets(*nodes, *sources)) if nodes or sources else updated)
    if nodes:
        # A run in which another node failed shows a node with nothing new as materialized: its data version stays.
        above = updated.allow(dg.AssetSelection.assets(*nodes))
        due = due | above.replace("newly_updated", Condition.data_version_changed())
    # Not `since_last_handled`: that forgets what was missing when the condition was evaluated first.
    due = due.since((Condition.newly_requested() | Condition.newly_updated()).with_label("handled"))
    # What is requested now will change, whatever was handled since the last look.
    due = due | Condition.any_deps_match(Condition.will_be_requested())
    if not sources:
        return due
    # Dagster compares the times of a single condition with the times of another one: a source that moves just after a
    # request, or a run, is not taken for read by it.
    moved = Condition.any_deps_match(Condition.newly_updated()).allow(dg.AssetSelection.assets(*sources))
    moved = moved.with_label("any_sources_moved")
    return due | (moved.since(Condition.newly_requested()) & moved.since(Condition.newly_updated()))


def _ready(parted: Sequence[dg.AssetKey], unseen: Sequence[dg.AssetKey]) -> NodeCondition:
    """All that a node reads is there, and none of it is being made.

    Args:
        parted, unseen: of what it reads, nodes with partitions, and sources that need not have been reported.
    """
    missing = Condition.any_deps_missing()
    if parted or unseen:
        missing = missing.ignore(dg.AssetSelection.assets(*parted, *unseen))
    ready = ~missing & ~Condition.any_deps_in_progress()
    for asset in parted:
        # Not all of its partitions have rows.
        ready = ready & Condition.any_deps_match(~Condition.missing()).allow(dg.AssetSelection.assets(asset))
    return ready


def _checks_failed(project: Project, above: Mapping[dg.AssetKey, NodeKey]) -> NodeCondition:
    """A blocking check on what a node reads has failed. Checks of the project file do not count: an increment that they
    stop is not in the table."""
    own = [
        dg.AssetCheckKey(dep, check.name)
        for dep, node in above.items()
        for check in project.graph.node(node).all_checks
    ]
    failed = Condition.any_checks_match(Condition.check_failed(), blocking_only=True)
    failed = failed.ignore(dg.AssetSelection.checks(*own)) if own else failed
    return Condition.any_deps_match(failed).with_label("any_deps_blocking_checks_failed")


def require_conditions_that_hold(
    project: Project, graph: AssetGraph, nodes: Iterable[NodeKey], sources: Sources
) -> None:
    """Look at the conditions that nodes have once all definitions of a code location are known, a user's own too.

    Raises:
        ConfigError: a condition would ask for partitions of a node, or wait for a source of which nothing is reported.
    """
    for key in nodes:
        asset = DagsterNames.of(project).asset(key)
        condition = graph.get(asset).automation_condition if graph.has(asset) else None
        if condition is None or project.graph.node(key).automation is not None:
            continue
        if partition_of(project, key) is not None:
            raise ConfigError(
                f"{key} has partitions and an automation condition: Dagster would request a lone partition of it, and "
                "never the increment",
                fix="give the node `automation: eager` (or `on_cron …`) in the project file: it then has no partitions "
                "in Dagster, and takes in what is new; another condition may replace that one in Python",
                node=str(key),
            )
        if (unseen := sources.unseen(key)) and _asks_for_deps(condition):
            raise ConfigError(
                f"the automation condition of {key} would wait for `{unseen[0].to_user_string()}` for ever: nobody "
                "looks at that source",
                fix="give the node `automation: eager` (or `on_cron …`) in the project file; another condition may "
                "replace that one in Python",
                node=str(key),
            )


def _asks_for_deps(condition: NodeCondition) -> bool:
    return isinstance(condition, DepsAutomationCondition) or any(map(_asks_for_deps, condition.children))
