"""``odi system``: keeping the system tables small and true, and sharing them with Odibi."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import typer
from pydantic_core import PydanticCustomError

from odi_assets.cli.doctor import recover_history
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings
from odi_assets.cli.terminal.output import data_json, note
from odi_assets.config.models.durations import parse_duration
from odi_assets.errors import ConfigError, TableError
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.util.words import counted

_LABELS = {
    "runs_recovered": "rows of run history written for runs that vanished",
    "runs_dropped": "rows of run history dropped",
    "files_folded": "small files compacted into one",
    "files_removed": "files removed that nothing refers to any more",
    "rows_mirrored": "high-water marks written into Odibi's meta_state that it lacked",
}


def maintain(
    settings: Settings,
    keep_runs_for: Annotated[
        str | None,
        typer.Option(
            "--keep-runs-for",
            metavar="SPAN",
            help="Drop runs that ended longer ago, as in 90d; else `system.keep_runs_for`; else none are dropped.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Complete run history, drop old runs, compact small files and remove those that nothing refers to.

    The newest run of each node always stays. Runs compact on their way too; nothing breaks without this.
    """
    project = settings.project()
    span = _span(keep_runs_for) or (project.config.system.keep_runs_for if project.config.system else None)
    state = project.open_state()
    done, unreadable = {"runs_recovered": 0}, None
    try:
        done["runs_recovered"] = 0 if dry_run else len(recover_history(project, state))
    except TableError as error:
        unreadable = error
    done |= state.maintain(keep_runs_for=span, dry_run=dry_run)
    if as_json:
        data_json(done)
    else:
        _show(done, span, dry_run=dry_run)
    if unreadable is not None:
        raise unreadable


def _show(done: Mapping[str, int], span: timedelta | None, *, dry_run: bool) -> None:
    for name, number in done.items():
        if not (dry_run and name == "runs_recovered"):
            note(f"{number:>6,} {_LABELS.get(name, name)}")
    if span is None:
        note("All runs are kept: neither --keep-runs-for nor `system.keep_runs_for` says for how long.")
    if dry_run:
        note("Nothing was changed.")


def share(settings: Settings, as_json: JsonOption = False) -> None:
    """Give `meta_state` and `meta_runs` Odibi's columns, so that Odibi can use them beside this tool.

    Nothing is lost: revisions go to a table beside `meta_state`, and details of runs into `metrics_json`. Tables that
    are not there yet are made.
    """
    state = settings.project().open_state()
    if not isinstance(state, CatalogStateBackend):
        raise ConfigError(
            "this project keeps its state in a JSON file, which Odibi reads as it is",
            fix="name a `system` in the project file to keep it in tables",
        )
    done = state.share_with_odibi()
    if as_json:
        data_json(done)
        return
    for (name, number), path in zip(done.items(), (state.meta_state_path, state.meta_runs_path), strict=True):
        note(f"{name} at {path}: Odibi's columns; {counted(number, 'row')} rewritten")


def _span(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except PydanticCustomError as error:
        raise ConfigError(f"--keep-runs-for {text} {error}", fix="say, for example, --keep-runs-for 90d") from None
