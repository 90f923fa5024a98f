"""``odi state export | import | migrate``: state as a document, and from one store to another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.state.inspect import entry_json, node_keys
from odi_assets.cli.state.revisions import shown
from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, note
from odi_assets.errors import ConfigError
from odi_assets.state.factory import PROJECT, open_store
from odi_assets.state.transfer.document import parse, to_document, to_text
from odi_assets.state.transfer.load import TransferEffect, decide
from odi_assets.state.transfer.migrate import migration
from odi_assets.state.transfer.snapshot import into as put_into
from odi_assets.state.transfer.snapshot import take
from odi_assets.store.copies import StoreCopy, copies_of_stores
from odi_assets.util.durable import write_file
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project
    from odi_assets.state.transfer.load import Transfer, TransferredKey

_STREAM = "-"
_COLUMNS = (
    Column("key", lambda difference: difference.after.key),
    Column("effect", lambda difference: _EFFECTS.get(difference.effect.value, difference.effect.value)),
    Column("there now", lambda difference: difference.before and shown(difference.before), wrap=True),
    Column("comes", lambda difference: shown(difference.after), wrap=True),
    Column("environment", lambda difference: difference.environment, optional=True),
)
_STORES = {
    TransferEffect.ADDED: "is copied",
    TransferEffect.CHANGED: "is brought up to date",
    TransferEffect.UNCHANGED: "unchanged",
    TransferEffect.BACK: "another one, or one that went on, is there already, and stays",
}
_EFFECTS: dict[str, str] = {"back": "would move back"}

FileArgument = Annotated[str, typer.Argument(metavar="[FILE]", help="A file; - is the standard stream.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also keys that are further on in the target, or were written later there.")
]
IntoOption = Annotated[
    str | None,
    typer.Option("--into", metavar="ENVIRONMENT", help="Put the one environment that it holds into this one."),
]
RenameOption = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Another name for a key; may be given again.")
]


def export(
    settings: Settings,
    file: FileArgument = _STREAM,
    runs: Annotated[bool, typer.Option("--runs", help="With run history.")] = False,
    history: Annotated[bool, typer.Option("--history", help="With the revisions before the present one.")] = False,
    all_environments: Annotated[
        bool, typer.Option("--all-environments", help="Not just this project's environment.")
    ] = False,
) -> None:
    """Write all high-water marks, with their types, as one JSON document that `odi state import` reads."""
    project = settings.project()
    state = project.open_state()
    snapshot = take(
        state,
        project=project.config.project,
        environments=None if all_environments else [state.environment],
        history=history,
        runs=runs,
    )
    text = to_text(to_document(snapshot, history=history, runs=runs))
    if file == _STREAM:
        data(text)
    else:
        _write(Path(file), text)
    keys = sum(not key.entry.deleted for state_ in snapshot.environments for key in state_.keys)
    and_runs = f", {counted(sum(len(s.runs) for s in snapshot.environments), 'run')}" if runs else ""
    note(f"{counted(keys, 'key')}{and_runs}{'' if file == _STREAM else f' in {file}'}")


def import_(
    settings: Settings,
    file: FileArgument = _STREAM,
    into: IntoOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take over the high-water marks (and runs) of a document of `odi state export`, all or none.

    The whole document is checked before anything changes, and what would change is shown.
    """
    project = settings.project()
    snapshot = parse(_read(file), "standard input" if file == _STREAM else file)
    same_tables = snapshot.project == project.config.project and into is None
    if into is not None:
        snapshot = put_into(snapshot, into or None)
    transfer = decide(snapshot, project.open_state(), same_tables=same_tables, force=force)
    _show(transfer, as_json)
    transfer.require_none_kept()
    _finish(transfer, dry_run, yes)


def migrate(
    settings: Settings,
    source: Annotated[str, typer.Option("--from", metavar="STORE", help="Where the state is; it stays there.")],
    target: Annotated[
        str, typer.Option("--to", metavar="STORE", help="Where it shall be; the project's own store unless given.")
    ] = "project",
    rename: RenameOption = None,
    into: IntoOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy state from one store to another: all environments, revisions and runs; doing it twice changes nothing.

    The state stores of nodes go along.

    A STORE is `project`, a file (.odibi/state.json, Odibi's too), a folder of meta_state and meta_runs (Odibi's too),
    CONNECTION:PATH for such a folder, or another project file.
    """
    project = settings.project()
    stores = [open_store(name, project.config, project.root) for name in (source, target)]
    transfer = migration(
        *stores,
        renames=_renames(rename or []),
        into=into or None,
        rename_environment=into is not None,
        force=force,
    )
    copies = copies_of_stores(*stores, into=into or None, rename_environment=into is not None)
    _show(transfer, as_json, copies)
    if transfer.kept:
        note(f"Left as it is: {counted(len(transfer.kept), 'key')} that would move back; --force takes them over.")
    if repr(stores[1]) == repr(open_store(PROJECT, project.config, project.root)):
        _tell_unused(project, transfer)
    _finish(transfer, dry_run, yes, [copy for copy in copies if copy.is_to_do])


def _finish(transfer: Transfer, dry_run: bool, yes: bool, copies: Sequence[StoreCopy] = ()) -> None:
    if transfer.changes_nothing and not copies:
        note("Nothing to do: all of it is there already.")
        return
    runs = f", {counted(transfer.runs_added, 'run')}" if transfer.runs_added else ""
    said = f"{counted(len(transfer.moves), 'key')}{runs}"
    if copies:
        said += f", {counted(len(copies), 'state store')}"
    indexes = [move.after.key for move in transfer.moves if move.effect is TransferEffect.BACK and _is_index(move)]
    if indexes:
        note(
            f"{counted(len(indexes), 'key')} of runs, {', '.join(indexes[:3])} among them, move back in state alone: a "
            "table's log counts over an older entry of a run. `odi state rewind` takes a table and its HWM back; "
            "`odi state set` sets an HWM."
        )
    if dry_run:
        note(f"This would write {said}.")
        return
    note(f"This writes {said}.")
    require_consent(yes)
    for copy in copies:
        copy.apply()
    transfer.apply()
    note(f"Written: {said}.")


def _is_index(move: TransferredKey) -> bool:
    """Whether a run wrote what comes, as what a commit of its table carries."""
    written = None if move.move is None else move.move.entry
    return written is not None and written.is_index


def _show(transfer: Transfer, as_json: bool, copies: Sequence[StoreCopy] = ()) -> None:
    if as_json:
        stores = {copy.name: copy.effect.value for copy in copies}
        data_json(
            {
                "keys": [_difference_json(d) for d in transfer.differences],
                "runs_added": transfer.runs_added,
                "runs_there": transfer.runs_there,
                **({"stores": stores} if stores else {}),
            }
        )
        return
    changing = [d for d in transfer.differences if d.effect != "unchanged"]
    if changing:
        data_table(_COLUMNS, changing)
    if len(transfer.differences) > len(changing):
        note(f"{counted(len(transfer.differences) - len(changing), 'key')} unchanged")
    if transfer.runs_there:
        note(f"{counted(transfer.runs_there, 'run')} there already")
    for copy in copies:
        note(f"state store {copy.name}: {_STORES[copy.effect]}")


def _difference_json(difference: TransferredKey) -> dict[str, Any]:
    return {
        "key": difference.after.key,
        "environment": difference.environment,
        "effect": difference.effect.value,
        "before": None if difference.before is None else entry_json(difference.before),
        "after": entry_json(difference.after),
    }


def _tell_unused(project: Project, transfer: Transfer) -> None:
    """Name the keys that no node reads, and how to rename those that Odibi named after a node."""
    known = node_keys(project)
    unused = dict.fromkeys(d.after.key for d in transfer.moves if d.after.key not in known and not d.after.deleted)
    if unused:
        note(f"warning: no node of this project reads {', '.join(unused)}")
    for key in unused:
        meant = [name for name in known if f"{name.rpartition('.')[2]}_hwm" == key]
        if len(meant) == 1:
            note(f"  → {key} is Odibi's name for the mark of {meant[0]}: --rename {key}={meant[0]}")


def _renames(pairs: list[str]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise typer.BadParameter(f"--rename takes OLD=NEW, not {pair!r}")
        renames[old] = new
    return renames


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == _STREAM else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", fix="name a file of `odi state export`") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8 text", fix="name a file of `odi state export`") from None


def _write(file: Path, text: str) -> None:
    try:
        write_file(file, f"{text}\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", fix="name another file") from None
