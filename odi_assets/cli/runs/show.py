"""``odi runs show | last``: one run in full, and how the nodes of a pipeline ended last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.runs.list import record_json, show_table
from odi_assets.cli.terminal.exit_codes import readable
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import data, data_json
from odi_assets.errors import ConfigError, StateError
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.records import RunRecord

_FOR_RESUMING = ("inputs", "target", "resumed_from", "partial")
"""Metrics that only a later ``--resume`` asks for; ``--json`` has them."""


def show(
    settings: Settings,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or as much of its beginning as is needed.")],
    as_json: JsonOption = False,
) -> None:
    """Show one run: each attempt of each node, in the order they ended, with errors and metrics."""
    state = settings.project().open_state()
    records = list(reversed(state.list_runs(run_id=_whole_id(state, run_id))))
    if as_json:
        data_json([record_json(record) for record in records])
        return
    first = records[0]
    facts = {"run": first.run_id, "project": first.project, "trigger": first.trigger}
    data("\n".join(f"{name:<8} {value}" for name, value in facts.items() if value))
    data("")
    _tell(records)


def last(
    settings: Settings,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="Only this node.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last attempt of each node of a pipeline, whichever run it was of."""
    project = settings.project()
    state = project.open_state()
    names = [node] if node is not None else _node_names(project, state, pipeline)
    last_records = [record for name in names if (record := state.get_last_run(pipeline, name)) is not None]
    if not last_records:
        # Names that neither the project nor its history knows are a mistake.
        project.pipeline_nodes(pipeline, () if node is None else (node,))
        what = pipeline if node is None else f"{pipeline}.{node}"
        raise StateError(f"{what} has not run yet", fix=f"run it: odi run {pipeline}")
    records = sorted(last_records, key=lambda record: record.timestamp)
    if as_json:
        data_json([record_json(record) for record in records])
    else:
        _tell(records)


def _whole_id(state: StateBackend, prefix: str) -> str:
    ids = state.find_run_ids(prefix)
    if prefix in ids or (len(ids) == 1 and prefix):
        return prefix if prefix in ids else ids[0]
    if not ids:
        raise ConfigError(f"there is no run {prefix!r}", fix="`odi runs list` shows the newest", run_id=prefix)
    raise ConfigError(
        f"{counted(len(ids), 'run')} or more begin with {prefix!r}: {', '.join(ids)}",
        fix="give more of its beginning",
        run_id=prefix,
    )


def _node_names(project: Project, state: StateBackend, pipeline: str) -> list[str]:
    """The nodes of a pipeline: from the project, or from its last run if it is no longer there."""
    if any(config.pipeline == pipeline for config in project.config.pipelines):
        return [key.node for key in project.pipeline_nodes(pipeline)]
    newest = state.list_runs(pipeline=pipeline, limit=1)
    runs = state.list_runs(pipeline=pipeline, run_id=newest[0].run_id) if newest else []
    return list(dict.fromkeys(record.node_name for record in runs))


def _tell(records: Sequence[RunRecord]) -> None:
    again = any(record.attempt > 1 for record in records)
    show_table(records, leave_out={"run"} if again else {"run", "attempt"})
    for record in records:
        shown = {name: value for name, value in record.metrics.items() if name not in _FOR_RESUMING}
        lines = [f"  {name}: {_text(value)}" for name, value in shown.items() if value not in (None, "")]
        if record.error:
            what = "reason" if record.status.value == "SKIPPED" else "error"
            lines.append(f"  {what}: {readable(record.error)}".replace("\n", "\n    "))
        if lines:
            of_attempt = f", attempt {record.attempt}" if again else ""
            data("\n".join(["", f"{record.pipeline_name}.{record.node_name}{of_attempt}", *lines]))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
