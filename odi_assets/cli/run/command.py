"""``odi run``: materialize nodes and report how each ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import (
    DownstreamOption,
    EveryOption,
    FromOption,
    FullRefreshOption,
    JsonOption,
    NodeOption,
    PartitionOption,
    PipelineArgument,
    ResumeOption,
    Settings,
    ToOption,
    YesOption,
    bounds_of,
)
from odi_assets.cli.terminal.output import data_json, note, stdout_kept_for_data
from odi_assets.errors import ConfigError
from odi_assets.nodes.request import RunRequest
from odi_assets.spark.jvm.java import find_java
from odi_assets.util.debugging import debugging

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.result import RunSummary


def run(
    settings: Settings,
    pipeline: PipelineArgument = None,
    node: NodeOption = None,
    downstream: DownstreamOption = False,
    full_refresh: FullRefreshOption = False,
    resume: ResumeOption = False,
    from_: FromOption = None,
    to: ToOption = None,
    partition: PartitionOption = None,
    yes: YesOption = False,
    every: EveryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run nodes: read what is new, write it, and remember how far that was."""
    from odi_assets.cli.run.results import (
        show_checks,
        show_failures,
        show_left_out,
        show_next,
        show_results,
        show_rows_left,
    )
    from odi_assets.cli.terminal.selection import pipelines_in_order, selected_nodes

    project = settings.project()
    bounds, partitions = bounds_of(from_, to) if from_ or to else None, tuple(partition or ())
    request = RunRequest(full_refresh, resume, bounds, accept_loss=yes, partitions=partitions)
    keys = selected_nodes(project, pipeline, node, downstream=downstream)
    if not keys:
        note("The project file has no pipelines: there is nothing to run.")
        if as_json:
            data_json([])
        return
    quiet_libraries()
    if every is not None:
        _serve(project, keys, every, request, as_json=as_json)
        return
    try:
        summaries = _run(project, keys, request)
    except KeyboardInterrupt:
        note("odi: interrupted; what was committed stays, and the next run goes on from there")
        raise
    results = [result for summary in summaries for result in summary.results]
    if as_json:
        data_json([{"run_id": s.run_id, **result.to_json()} for s in summaries for result in s.results])
    else:
        note()
        show_results(results)
        note()
        show_rows_left(results)
        show_checks(results)
        if resume:
            show_left_out(results)
    if not all(summary.success for summary in summaries):
        show_failures(results)
        run = {result.key.pipeline for result in results}
        left_out = [name for name in pipelines_in_order(project, keys) if name not in run]
        if left_out:
            note(f"Not run, because nodes that they read failed: {', '.join(left_out)}")
        raise typer.Exit(FAILED)
    if not as_json:
        show_next(project, results)


def _serve(project: Project, keys: Sequence[NodeKey], every: str, request: RunRequest, *, as_json: bool) -> None:
    from odi_assets.cli.run.service import serve

    if request != RunRequest(accept_loss=request.accept_loss) or as_json:
        raise ConfigError(
            "a service loads what is new, and ends when it is stopped: --every goes without --full-refresh, --resume, "
            "--from, --to, --partition and --json",
            fix="leave them out; odi runs list --json shows its runs",
        )
    if not project.config.spark.remote and _need_spark(project, keys, request):
        find_java()
    serve(project, keys, every)


def _run(project: Project, keys: Sequence[NodeKey], request: RunRequest) -> list[RunSummary]:
    """Run nodes, with Spark and Dagster only if something is new."""
    from odi_assets.cli.run.progress import RunProgress
    from odi_assets.cli.terminal.selection import pipelines_in_order
    from odi_assets.nodes.idle_run import outlook, record_idle_run
    from odi_assets.spark.session import SMALL_BYTES, session_beginning

    pipelines = pipelines_in_order(project, keys)
    state = project.open_state()
    with stdout_kept_for_data():
        run_outlook = outlook(project, state, keys, request)
        if run_outlook.idle is not None:
            with RunProgress(keys) as progress:
                summaries = record_idle_run(
                    project, state, pipelines, run_outlook.idle, progress.listen, progress.begin
                )
            if summaries is not None:
                return summaries
    request = _ready(project, keys, request)
    is_small = run_outlook.bytes is not None and run_outlook.bytes <= SMALL_BYTES
    begun: AbstractContextManager[None] = nullcontext()
    if _need_spark(project, keys, request):
        # The JVM starts while Dagster is imported.
        begun = session_beginning(project.config.spark, app_name=f"odi run {' '.join(pipelines)}", is_small=is_small)
    with stdout_kept_for_data(), begun, RunProgress(keys) as progress:
        from odi_assets.orchestration.run import run_pipelines

        return run_pipelines(project, pipelines, request, on_event=progress.listen, on_pipeline=progress.begin)


def _ready(project: Project, keys: Sequence[NodeKey], request: RunRequest) -> RunRequest:
    """``request``, once there is a Java for it, if it needs one, and somebody agreed to what a full refresh loses.

    Raises:
        JavaError: there is none.
        Exit: nobody agreed.
    """
    if not project.config.spark.remote and _need_spark(project, keys, request):
        find_java()
    if request.full_refresh and not request.accept_loss:
        from odi_assets.cli.run.losses import consented

        return consented(project, keys, request)
    return request


def _need_spark(project: Project, keys: Sequence[NodeKey], request: RunRequest) -> bool:
    """Whether a run of ``keys`` is sure to need Spark. What is new in a log seldom does."""
    return request.full_refresh or not all(project.graph.node(key).is_of_log for key in keys)


def quiet_libraries() -> None:
    """Leave it to ``odi`` to say how a run goes: Spark and py4j keep their errors to the exceptions they raise."""
    from odi_assets.spark.jvm.gateway import LOG_LEVEL_VARIABLE

    if not debugging():
        os.environ.setdefault(LOG_LEVEL_VARIABLE, "fatal")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        # py4j logs some errors as the root logger.
        logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
