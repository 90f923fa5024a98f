"""``odi state history | reset | delete``: earlier values of a high-water mark, and going back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.state.inspect import (
    KeyArgument,
    entry_json,
    entry_of,
    origin_of,
    require_inputs,
    shown_value,
    type_name,
    warn_if_unused,
)
from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import Column, data_json, data_table, moment, note, short_id
from odi_assets.cli.terminal.typed_values import from_text
from odi_assets.state.values import dump, to_json

if TYPE_CHECKING:
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.project import Project
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.records import HwmEntry

_COLUMNS = (
    Column("revision", lambda entry: str(entry.revision), "right"),
    Column("HWM", lambda entry: shown(entry), wrap=True),
    Column("type", lambda entry: None if entry.deleted else type_name(entry)),
    Column("written (UTC)", lambda entry: moment(entry.updated_at)),
    Column("version", lambda entry: entry.target_commit, "right", spare=True),
    Column("run", lambda entry: short_id(entry.run_id), spare=True),
)


def history(
    settings: Settings,
    key: KeyArgument,
    as_json: JsonOption = False,
) -> None:
    """List the revisions of a high-water mark, newest first: what it was, since when, and which run wrote it."""
    project = settings.project()
    state = project.open_state()
    revisions = state.history(key) or [entry_of(key, project, state)]
    if as_json:
        data_json([{**entry_json(entry), "deleted": entry.deleted} for entry in revisions])
    else:
        data_table(_COLUMNS, revisions)


def delete(
    settings: Settings,
    key: KeyArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Delete a high-water mark: its node loads everything at its next run. Its history stays."""
    project = settings.project()
    state = project.open_state()
    present = entry_of(key, project, state)
    note(f"This deletes {_described(present)}.")
    note(f"Its history stays: `odi state reset {key} --to-revision {present.revision}` brings it back.")
    _tell_next(project, key, None)
    if dry_run:
        return
    require_consent(yes)
    state.delete_hwm(key, expected_revision=present.revision)
    note(f"{key}: {shown(present)} → deleted")


def reset(
    settings: Settings,
    key: KeyArgument,
    to_revision: Annotated[
        int | None, typer.Option("--to-revision", metavar="N", min=0, help="What it was: see `odi state history`.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="VALUE", help="JSON, or plain text with --type.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The type of VALUE, as in `odi state set`.")
    ] = None,
    to_nothing: Annotated[bool, typer.Option("--to-nothing", help="The state before the first load: null.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Set a high-water mark back to an earlier revision, to a value, or to nothing."""
    from odi_assets.state.reset import set_back

    target_count = (to_revision is not None) + (value is not None) + to_nothing
    if target_count != 1 or (kind is not None and value is None):
        raise typer.BadParameter("say where to: one of --to-revision N, --value VALUE [--type TYPE], --to-nothing")
    project = settings.project()
    state = project.open_state()
    present = entry_of(key, project, state, deleted=True)
    wanted = _wanted(state, present, to_revision, value, kind)
    if to_revision is None:
        require_inputs(project, key, wanted.value)
        wanted = wanted._replace(origin=origin_of(project, key))
    note(f"This sets {_described(present)} to {shown(wanted)}.")
    _tell_next(project, key, wanted)
    if dry_run:
        return
    require_consent(yes)
    set_back(state, present, wanted)
    note(f"{key}: {shown(present)} → {shown(wanted)}")


def _wanted(
    state: StateBackend, present: HwmEntry, to_revision: int | None, value: str | None, kind: str | None
) -> HwmEntry:
    from odi_assets.state.reset import revision

    if to_revision is not None:
        return revision(state, present.key, to_revision)
    typed_value: Any = None if value is None else from_text(value, kind, present.value)
    return present._replace(value=typed_value, deleted=False, target_commit=None, value_type=None)


def _described(entry: HwmEntry) -> str:
    which = f"the high-water mark {entry.key}"
    return f"{which} ({shown(entry)}, revision {entry.revision}, of {moment(entry.updated_at)} UTC)"


def shown(entry: HwmEntry) -> str:
    """What the key is at this revision, in a few words."""
    return "deleted" if entry.deleted else shown_value(entry) or dump(to_json(entry.value)[0])


def _tell_next(project: Project, key: str, wanted: HwmEntry | None) -> None:
    """Say what the node of ``key`` will do at its next run, from ``wanted`` on; None or a tombstone: from the start."""
    from odi_assets.nodes.node import Node

    nodes = (Node.of(project, name) for name in project.graph.nodes)
    owner = next((node for node in nodes if node.state_key == key), None)
    if owner is None:
        warn_if_unused(project, key)
    elif not owner.following:
        note(f"warning: {owner} reads everything at each run, and has no use for a high-water mark")
    elif wanted is None or wanted.deleted or wanted.value is None:
        note(f"The next run of {owner} reads everything, and replaces its table; it stops first if that loses rows.")
    else:
        note(f"The next run of {owner} reads what lies after that.")
        tell_of_repeats(owner)


def tell_of_repeats(node: Node) -> None:
    """Say that rows which are read again will be in the table of ``node`` twice, if they will."""
    if not node.target.rows_are_known:
        note("It appends: rows that its table holds already and that are read again will be there twice.")
        note(f"`odi state rewind {node}` takes a table and its high-water mark back together.")
