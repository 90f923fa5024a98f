"""``odi run --every``: nodes that run again and again, until they are stopped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from odi_assets.cli.terminal.output import note, stdout_kept_for_data
from odi_assets.config.models.durations import parse_span
from odi_assets.errors import ConfigError

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.events import NodeEvent
    from odi_assets.nodes.project import Project


def span_of(text: str) -> timedelta:
    """The time that ``--every`` names.

    Raises:
        ConfigError: it is none.
    """
    try:
        return parse_span(text)
    except PydanticCustomError as error:
        raise ConfigError(f"--every {text} is no time", fix="write it as 10s, 1m or 1h") from error


def serve(project: Project, keys: Sequence[NodeKey], every: str) -> None:
    """Run ``keys`` whenever their sources have something new, until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: ``every`` is no time.
        OdiError: too many runs in a row have failed.
    """
    span = span_of(every)
    from odi_assets.nodes.service import NodeService
    from odi_assets.orchestration.runs.instance import open_instance
    from odi_assets.orchestration.runs.reconcile import repair_history

    with stdout_kept_for_data():
        with open_instance(project.root) as instance:
            repair_history(project, instance)
        note(f"Looks for new data every {every}; SIGTERM or Ctrl-C stops it after the commit that is being made.")
        NodeService(project, keys, span, _say).run()
    note("Stopped; what was committed stays, and the next run goes on from there.")


def _say(event: NodeEvent) -> None:
    from odi_assets.cli.run.progress import outcome

    if event.kind == "progressed":
        note(f"{event.key}: {event.reason}")
    elif event.result is not None:
        note(f"{event.key}: {outcome(event.result)}")
        if event.result.error is not None:
            note(event.result.error)
