"""Asking before a full refresh takes rows out of tables that their sources no longer give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.output import note
from odi_assets.nodes.planning.forecast import forecast

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.planning.forecast import Forecast
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.request import RunRequest


def consented(project: Project, keys: Sequence[NodeKey], request: RunRequest) -> RunRequest:
    """``request``, which may lose rows if somebody was asked and said so.

    Raises:
        Exit: with 1 if the answer is no, or if there is nobody to ask.
    """
    forecasts = forecast(project, project.open_state(), keys, request)
    if not any(loss.for_good for node_forecast in forecasts for loss in node_forecast.losses):
        return request
    show_losses(forecasts)
    require_consent(False, "nothing was run", FAILED)
    return replace(request, accept_loss=True)


def show_losses(forecasts: Sequence[Forecast]) -> None:
    """Say what a full refresh of each node loses."""
    for node_forecast in forecasts:
        for loss in node_forecast.losses:
            note(f"{node_forecast.key}: a full refresh loses {loss}")
