"""``odi sample``: days of the sample arrive, or all goes back to the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import Settings, YesOption
from odi_assets.cli.terminal.output import data, note
from odi_assets.config.graph import state_key
from odi_assets.delta.table import TableHandle
from odi_assets.sample.landing import arrive as land
from odi_assets.sample.landing import reset as put_back
from odi_assets.sample.tables import PIPELINE

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project


def arrive(
    settings: Settings,
    days: Annotated[int, typer.Option("--days", min=1, help="How many days land.")] = 1,
) -> None:
    """Land the next days of 2013."""
    project = settings.project()
    arrival = land(project.root, days)
    for path in arrival.files:
        data(str(path.relative_to(project.root.resolve())))
    note(arrival.summary)


def reset(
    settings: Settings,
    days: Annotated[
        int | None, typer.Option("--days", min=0, max=31, help="Leave this many days of January landed; else all.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Drop the sample's tables and high-water marks, and put its landing zone back to January."""
    project = settings.project()
    if not yes:
        _announce(project, days)
    require_consent(yes, "nothing was removed")
    note(put_back(project.path, days=days).summary)


def _announce(project: Project, days: int | None) -> None:
    keys = project.pipeline_nodes(PIPELINE)
    set_keys = {entry.key for entry in project.open_state().list_hwms()}
    marks = [name for name in (state_key(key, project.graph.node(key)) for key in keys) if name in set_keys]
    note("This removes:")
    for table in (project.target(key) for key in keys):
        if TableHandle.open(table).exists:
            note(f"  table {table.uri}")
    if marks:
        note(f"  high-water marks {', '.join(marks)}")
    note("  days after January that have landed")
    if days is not None:
        note(f"and keeps the first {days} days of January landed; the others wait for `odi sample arrive`.")
