"""Which runs a command is about: by status, and by when they ended."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic_core import PydanticCustomError

from odi_assets.config.models.durations import parse_duration
from odi_assets.errors import ConfigError
from odi_assets.state.records import RunStatus

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project
    from odi_assets.state.records import RunRecord

PipelineOption = Annotated[str | None, typer.Option("--pipeline", "-p", metavar="NAME", help="Only this pipeline.")]
NodeFilter = Annotated[str | None, typer.Option("--node", "-n", metavar="NAME", help="Only this node.")]
StatusOption = Annotated[
    list[str] | None,
    typer.Option("--status", "-s", metavar="STATUS", help="Only runs that ended so, as FAILURE; may be given again."),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only runs that ended since: `2d`, `12h`, a date or a UTC time."),
]


def chosen_runs(
    project: Project,
    pipeline: str | None,
    node: str | None,
    status: list[str] | None = None,
    since: str | None = None,
    limit: int | None = None,
) -> list[RunRecord]:
    """The runs of the project's environment that were asked for, newest first.

    Raises:
        ConfigError: there is no such pipeline, node or status; or the time is none.
    """
    if node and "." in node and pipeline is None:
        pipeline, _, node = node.partition(".")
    statuses, start = _statuses(status), _moment(since)
    everything = not statuses and start is None
    records = project.open_state().list_runs(pipeline=pipeline, node=node, limit=limit if everything else None)
    if not records:
        # A name that history does not know may be a node that has not run, or a mistake.
        project.pipeline_nodes(pipeline, (node,) if node else ())
    runs = [
        record
        for record in records
        if (not statuses or record.status.value in statuses) and (start is None or record.timestamp >= start)
    ]
    return runs[:limit]


def _statuses(texts: list[str] | None) -> set[str]:
    known = [status.value for status in RunStatus]
    wanted = {part.strip().upper() for text in texts or () for part in text.split(",")}
    if strange := wanted - set(known):
        raise ConfigError(f"there is no status {', '.join(sorted(strange))}", fix=f"there are: {', '.join(known)}")
    return wanted


def _moment(since: str | None) -> datetime | None:
    if since is None:
        return None
    with suppress(PydanticCustomError):
        return datetime.now(UTC) - parse_duration(since)
    try:
        start = datetime.fromisoformat(since)
    except ValueError:
        raise ConfigError(
            f"`{since}` is neither a time span nor a time", fix="write it as 2d, 12h, 2024-01-31 or 2024-01-31T05:00"
        ) from None
    return start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
