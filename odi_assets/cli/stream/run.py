"""``odi stream run``: a stream node as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.run.progress import outcome
from odi_assets.cli.run.service import span_of
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import data_json, note, stdout_kept_for_data
from odi_assets.spark.jvm.java import find_java
from odi_assets.streams.service import serve
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.streams.query.run import BatchProgress


def run(
    settings: Settings,
    node: NodeArgument,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="How often to look for new data: `10s`, `1m`.")
    ] = "10s",
    as_json: JsonOption = False,
) -> None:
    """Run a stream node until SIGTERM or Ctrl-C, which end it after the batch that it computes."""
    project = settings.project()
    key = project.node_named(node)
    interval = f"{int(span_of(every).total_seconds() * 1000)} milliseconds"
    if not project.config.spark.remote:
        find_java()
    quiet_libraries()
    note(f"{key}: looks for new data every {every}; SIGTERM or Ctrl-C stops it after the batch that runs.")
    with stdout_kept_for_data():
        result = serve(project, key, interval, lambda batch: note(f"{key}: {_batch_text(batch)}"))
    if as_json:
        data_json(result.to_json())
    note(f"{key}: {outcome(result)}")


def _batch_text(batch: BatchProgress) -> str:
    rows = sum(batch.rows_in.values())
    seconds = batch.durations_ms.get("triggerExecution", 0) / 1000
    text = f"batch {batch.batch}: {counted(rows, 'row')} read, {seconds:.1f} s"
    if dropped := sum(operator.rows_dropped for operator in batch.operators):
        text += f"; {counted(dropped, 'row')} came too late"
    if batch.operators:
        text += f"; {counted(sum(operator.rows_total for operator in batch.operators), 'row')} in state"
    return text
