"""``odi plan``: what a run would read and write, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from odi_assets.cli.boundary import BAD_INPUT, FAILED, readable
from odi_assets.cli.output import Column, counted, data_json, data_table, is_narrow, note
from odi_assets.cli.settings import (
    ConfigOption,
    DebugOption,
    FullRefreshOption,
    JsonOption,
    NodeOption,
    PipelineArgument,
    settings,
)
from odi_assets.errors import ConfigError, OdiError

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey

_COLUMNS = (
    Column("node"),
    Column("reads", wrap=True),
    Column("writes"),
    Column("HWM before → after", wrap=True),
)


def plan(
    context: typer.Context,
    pipeline: PipelineArgument = None,
    node: NodeOption = None,
    full_refresh: FullRefreshOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    debug: DebugOption = False,
) -> None:
    """Show what a run would read and write. Nothing is run."""
    from odi_assets.cli.selection import selected_nodes
    from odi_assets.nodes.plan import plan_node

    project = settings(context, config, debug).project()
    keys = selected_nodes(project, pipeline, node)
    state = project.open_state()
    plans: list[dict[str, Any]] = []
    errors: list[tuple[NodeKey, OdiError]] = []
    for key in keys:
        try:
            plans.append(plan_node(project, state, key, full_refresh=full_refresh).to_json())
        except OdiError as error:
            errors.append((key, error))
            plans.append({"pipeline": key.pipeline, "node": key.node, "action": "error", "error": readable(str(error))})
    if as_json:
        data_json(plans)
    else:
        one = len({key.pipeline for key in keys}) == 1
        data_table(_COLUMNS, [_row(found, one) for found in plans])
        _conclude(plans)
    for key, wrong in errors:
        note(f"odi: {key} cannot be planned: {readable(str(wrong))}")
    if errors:
        raise typer.Exit(BAD_INPUT if all(isinstance(wrong, ConfigError) for _, wrong in errors) else FAILED)


def _row(found: dict[str, Any], one_pipeline: bool) -> list[str]:
    from odi_assets.cli.results import hwm_change

    name = found["node"] if one_pipeline else f"{found['pipeline']}.{found['node']}"
    if found["action"] == "error":
        return [name, "cannot be planned, see below", "", ""]
    writes = "" if found["action"] == "nothing" else found["mode"]
    return [name, found["summary"], writes, hwm_change(found["hwm_before"], found["hwm_after"], is_narrow())]


def _conclude(plans: list[dict[str, Any]]) -> None:
    busy = sum(found["action"] == "write" for found in plans)
    note()
    note(f"{busy:,} of {counted(len(plans), 'node')} would write.")
    if 0 < busy < len(plans) or busy > 1:
        note("Nodes read what those before them write in the same run; this plan only knows what is there now.")
