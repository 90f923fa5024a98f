"""``odi tables``: compaction, checkpoint and vacuum of nodes' tables, and the repair of torn ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import Column, data_json, data_table, note
from odi_assets.cli.terminal.selection import selected_nodes
from odi_assets.delta.maintenance.maintain import MaintenanceOptions
from odi_assets.errors import ConfigError
from odi_assets.nodes.recovery import repair as repairs
from odi_assets.nodes.recovery.maintenance import maintain_beside, maintain_node, maintain_quarantine
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odi_assets.config.graph import NodeKey
    from odi_assets.delta.maintenance.maintain import Maintenance
    from odi_assets.nodes.project import Project
    from odi_assets.state.backend import StateBackend

_COLUMNS = (
    Column("node", lambda of: of[0]),
    Column("files", lambda of: f"{of[1].before.files:,} → {of[1].after.files:,}", "right"),
    Column("MB", lambda of: f"{_mb(of[1].before.bytes)} → {_mb(of[1].after.bytes)}", "right"),
    Column(
        "compacted",
        lambda of: f"{of[1].compaction.files_removed:,} → {of[1].compaction.files_added:,}",
        "right",
    ),
    Column("deleted", lambda of: len(of[1].vacuumed), "right"),
    Column("MB deleted", lambda of: _mb(of[1].vacuumed_bytes), "right", spare=True),
    Column("back to version", lambda of: of[1].rewindable_from, "right"),
)
_REPAIRS = (
    Column("table", lambda repaired: repaired.what),
    Column("is wrong", lambda repaired: "; ".join(repaired.faults), wrap=True),
    Column("set aside", lambda repaired: counted(len(repaired.moved), "file")),
    Column("then at version", lambda repaired: repaired.version, "right"),
    Column("next", lambda repaired: repaired.next, wrap=True),
)
_MEGABYTE = 1024 * 1024


def maintain(
    settings: Settings,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="NODE or PIPELINE.NODE; all nodes if none is named.")
    ] = None,
    retain_hours: Annotated[
        int, typer.Option("--retain-hours", min=0, help="Keep files that left a table this long, for rewinds.")
    ] = 168,
    small_mb: Annotated[int, typer.Option("--small-mb", min=0, help="Compact files below this size; 0: none.")] = 64,
    target_mb: Annotated[int, typer.Option("--target-mb", min=1, help="Size of the files they become.")] = 128,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compact small files, write a checkpoint, and delete files that no version needs any more.

    Quarantines, and rows that streams keep, are looked after as the nodes' own tables. No row changes, and runs may go
    on. Versions older than --retain-hours can no longer be gone back to.
    """
    project = settings.project()
    keys = selected_nodes(project, None, nodes)
    if not keys:
        note("The project file has no pipelines, so there are no tables of nodes.")
        if as_json:
            data_json([])
        return
    options = MaintenanceOptions(retain_hours, small_mb * _MEGABYTE, target_mb * _MEGABYTE, dry_run)
    if not dry_run:
        note(
            f"This compacts the tables of {counted(len(keys), 'node')}, with quarantines and kept rows, and deletes "
            f"files that left them more than {counted(retain_hours, 'hour')} ago; versions before that can no longer "
            "be gone back to."
        )
        require_consent(yes)
    state = project.open_state()
    done = [(key, *table) for key in keys for table in _maintained(project, state, key, options)]
    if as_json:
        data_json([_as_json(*row, dry_run) for row in done])
        return
    named_rows = [
        (str(key) if table == "node" else f"{key} ({table})", maintenance) for key, table, maintenance in done
    ]
    data_table(_COLUMNS, [row for row in named_rows if row[1] is not None])
    for name, maintenance in named_rows:
        for text in maintenance.notes if maintenance else ("has no table yet",):
            note(f"{name}: {text}")


def _maintained(
    project: Project, state: StateBackend, key: NodeKey, options: MaintenanceOptions
) -> Iterator[tuple[str, Maintenance | None]]:
    """What is done to each table of a node, the node's own first."""
    own = maintain_node(project, state, key, options)
    yield "node", own
    quarantine = maintain_quarantine(project, state, key, options, own.rewindable_from) if own else None
    if quarantine:
        yield "quarantine", quarantine
    yield from maintain_beside(project, state, key, options).items()


def _mb(number: int) -> str:
    return f"{number / _MEGABYTE:,.1f}"


def _as_json(key: NodeKey, table: str, maintenance: Maintenance | None, dry_run: bool) -> dict[str, Any]:
    head = {"pipeline": key.pipeline, "node": key.node, "table": table, "dry_run": dry_run}
    return {**head, **(asdict(maintenance) if maintenance else {"before": None})}


def repair(
    settings: Settings,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE]...", help="NODE, PIPELINE.NODE, or the path of a Delta table; all nodes if none."
        ),
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Repair the system tables, or the state file, instead of nodes' tables.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set aside what a power cut tore of tables' logs, and put each node's mark back to the last whole version.

    Nothing is deleted: what is taken out of a table is moved to _odi_aside in its folder. Rows of a commit that is set
    aside are read again by the node's next run.
    """
    project = settings.project()
    state = project.open_state()
    if system and tables:
        raise ConfigError("--system names the tables itself", fix="give --system, or name nodes, not both")
    if not dry_run:
        note("This sets files aside that are torn, and versions after them; no run should be under way.")
        require_consent(yes)
    if system:
        repaired_tables = list(repairs.repair_system(project, state, dry_run=dry_run))
    else:
        names = tables or [str(key) for key in project.graph.order()]
        chosen_tables = [table for name in names for table in repairs.find_tables(project, name)]
        repaired_tables = [
            repaired
            for table in chosen_tables
            for repaired in repairs.repair_table(project, state, *table, dry_run=dry_run)
        ]
    if as_json:
        data_json([repaired.to_json() for repaired in repaired_tables])
    elif repaired_tables:
        data_table(_REPAIRS, repaired_tables)
    for repaired in repaired_tables:
        if repaired.aside is not None:
            note(f"{repaired.what}: what was set aside is in {repaired.aside}. Next: {repaired.next}")
    if not repaired_tables:
        note("Nothing is torn: every log that was looked at is whole. `odi doctor --deep` reads the data files, too.")
