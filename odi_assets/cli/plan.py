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
    Column("reads", lambda one: one.summary, wrap=True),
    Column("writes", lambda one: one.facts.get("mode") if one.action != "nothing" else None),
    Column("HWM before → after", lambda one: hwm_change(*map(one.facts.get, ("hwm_before", "hwm_after"))), wrap=True),
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
    found = [one for one, _ in both]
    if as_json:
        data_json([{**one.to_json(), "quarantine": undone or None} for one, undone in both])
    else:
        name = node_name(keys)
        data_table([Column("node", lambda one: name(one.key)), *_COLUMNS], found)
        _conclude(found)
        show_losses(found)
        for one, undone in both:
            if undone:
                note(f"odi: {one.key}: {undone}; a run completes that first, even without new data")
    errors = [one for one in found if one.error]
    for one in errors:
        what = "would stop" if one.plan else "cannot be planned"
        note(f"odi: {one.key} {what}: {readable(str(one.error))}")
    if errors:
        raise typer.Exit(BAD_INPUT if all(isinstance(one.error, ConfigError) for one in errors) else FAILED)


def _with_quarantine(one: Forecast) -> tuple[Forecast, str]:
    """A forecast, and what its run completes first in the quarantine, in words."""
    if one.plan is None or one.error is not None:
        return one, ""
    try:
        return one, str(out_of_step(one.plan.node, one.plan.target))
    except OdiError as error:
        return replace(one, action="error", error=error), ""


def _conclude(found: Sequence[Forecast]) -> None:
    writing = sum(one.action == "write" for one in found)
    following = sum(one.action == "follow" for one in found)
    note()
    text = f"{writing:,} of {counted(len(found), 'node')} would write"
    note(f"{text}; {following:,} would follow what those before them write." if following else f"{text}.")
