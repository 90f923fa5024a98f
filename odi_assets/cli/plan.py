"""``odi plan``: what a run would read and write, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from odi_assets.cli.run.losses import show_losses
from odi_assets.cli.terminal.exit_codes import BAD_INPUT, FAILED, readable
from odi_assets.cli.terminal.options import (
    DownstreamOption,
    FromOption,
    FullRefreshOption,
    JsonOption,
    NodeOption,
    PartitionOption,
    PipelineArgument,
    Settings,
    ToOption,
    bounds_of,
)
from odi_assets.cli.terminal.output import Column, data_json, data_table, hwm_change, node_name, note
from odi_assets.cli.terminal.selection import selected_nodes
from odi_assets.errors import ConfigError, OdiError
from odi_assets.nodes.execution.checks.bad_rows import out_of_step
from odi_assets.nodes.planning.forecast import forecast
from odi_assets.nodes.request import RunRequest
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.planning.forecast import Forecast

_COLUMNS = (
    Column("reads", lambda node_forecast: node_forecast.summary, wrap=True),
    Column(
        "writes", lambda node_forecast: node_forecast.facts.get("mode") if node_forecast.action != "nothing" else None
    ),
    Column(
        "HWM before → after",
        lambda node_forecast: hwm_change(*map(node_forecast.facts.get, ("hwm_before", "hwm_after"))),
        wrap=True,
    ),
)


def plan(
    settings: Settings,
    pipeline: PipelineArgument = None,
    node: NodeOption = None,
    downstream: DownstreamOption = False,
    full_refresh: FullRefreshOption = False,
    from_: FromOption = None,
    to: ToOption = None,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would read and write. Nothing is run."""
    project = settings.project()
    request = RunRequest(full_refresh, bounds=bounds_of(from_, to), partitions=tuple(partition or ()))
    keys = selected_nodes(project, pipeline, node, downstream=downstream)
    both = list(map(_with_quarantine, forecast(project, project.open_state(), keys, request)))
    forecasts = [node_forecast for node_forecast, _ in both]
    if as_json:
        data_json([{**node_forecast.to_json(), "quarantine": undone or None} for node_forecast, undone in both])
    else:
        name = node_name(keys)
        data_table([Column("node", lambda node_forecast: name(node_forecast.key)), *_COLUMNS], forecasts)
        _conclude(forecasts)
        show_losses(forecasts)
        for node_forecast, undone in both:
            if undone:
                note(f"odi: {node_forecast.key}: {undone}; a run completes that first, even without new data")
    errors = [node_forecast for node_forecast in forecasts if node_forecast.error]
    for node_forecast in errors:
        what = "would stop" if node_forecast.plan else "cannot be planned"
        note(f"odi: {node_forecast.key} {what}: {readable(str(node_forecast.error))}")
    if errors:
        raise typer.Exit(
            BAD_INPUT if all(isinstance(node_forecast.error, ConfigError) for node_forecast in errors) else FAILED
        )


def _with_quarantine(node_forecast: Forecast) -> tuple[Forecast, str]:
    """A forecast, and what its run completes first in the quarantine, in words."""
    if node_forecast.plan is None or node_forecast.error is not None:
        return node_forecast, ""
    try:
        return node_forecast, str(out_of_step(node_forecast.plan.node, node_forecast.plan.target))
    except OdiError as error:
        return replace(node_forecast, action="error", error=error), ""


def _conclude(forecasts: Sequence[Forecast]) -> None:
    writing = sum(node_forecast.action == "write" for node_forecast in forecasts)
    following = sum(node_forecast.action == "follow" for node_forecast in forecasts)
    note()
    text = f"{writing:,} of {counted(len(forecasts), 'node')} would write"
    note(f"{text}; {following:,} would follow what those before them write." if following else f"{text}.")
