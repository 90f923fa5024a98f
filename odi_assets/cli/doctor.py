"""``odi doctor``, and what repairs most of what it finds: ``odi state recover`` and ``odi state accept``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import (
    DryRunOption,
    JsonOption,
    NodeArgument,
    NodeOption,
    PipelineArgument,
    Settings,
    YesOption,
)
from odi_assets.cli.terminal.output import Column, data_json, data_table, hwm_change, note
from odi_assets.cli.terminal.selection import selected_nodes
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.errors import ConfigError, TableError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.start import table_and_start
from odi_assets.nodes.planning.writers import require_written_by_itself
from odi_assets.nodes.recovery.accept import accept as accept_table
from odi_assets.nodes.recovery.doctor import examine, kept_gaps, unfinished
from odi_assets.nodes.recovery.files import files_of_system, not_looked_at
from odi_assets.nodes.recovery.findings import NOTED, Kind, lasting
from odi_assets.nodes.recovery.recover import find_recovery, recover_hwm, what_state_is_ahead_of
from odi_assets.nodes.recovery.repair import RECOVER
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.recovery.findings import Disagreement
    from odi_assets.nodes.recovery.recover import Recovery
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.records import RunRecord

_DISAGREEMENTS = (
    Column("node", lambda disagreement: str(disagreement.key or "system")),
    Column("what", lambda disagreement: disagreement.kind.value),
    Column("found", lambda disagreement: disagreement.message, wrap=True),
    Column("remedy", lambda disagreement: disagreement.remedy, wrap=True),
)
_LOOKS = (
    Column("part", lambda look: look.part),
    Column("outcome", lambda look: look.outcome.value),
    Column("found", lambda look: look.found, wrap=True),
    Column("remedy", lambda look: look.remedy, wrap=True, optional=True),
)
_RECOVERIES = (
    Column("node", lambda recovery: f"{recovery['pipeline']}.{recovery['node']}"),
    Column("what", lambda recovery: "row of history" if "status" in recovery else "HWM"),
    Column(
        "recovered",
        lambda recovery: (
            recovery["status"] if "status" in recovery else hwm_change(recovery["hwm_before"], recovery["hwm_after"])
        ),
        wrap=True,
    ),
    Column("version", lambda recovery: recovery["table_version"], "right"),
    Column("run", lambda recovery: recovery["run_id"]),
)

NodesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NODE]...", help="NODE or PIPELINE.NODE; all nodes unless some are named."),
]


def doctor(
    settings: Settings,
    pipeline: PipelineArgument = None,
    node: NodeOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all data files and commits too: rows, values, checksums of pages.")
    ] = False,
    of_deployment: Annotated[
        bool,
        typer.Option("--deployment", help="Look at Dagster's instance, storage, daemon, limits and versions instead."),
    ] = False,
    webserver: Annotated[
        str | None,
        typer.Option("--webserver", metavar="URL", help="With --deployment: the UI, which knows the code servers too."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Report where tables, state and run history disagree, each with its remedy. Exit code 1 if they do.

    Every live file is looked for, with its size; ledgers, checkpoints of streams and kept rows are opened.
    """
    project = settings.project()
    if of_deployment or webserver:
        if not of_deployment or pipeline or node or deep:
            raise typer.BadParameter(
                "--webserver goes with --deployment; PIPELINE, --node and --deep go with tables alone"
            )
        _of_deployment(project, webserver, as_json)
        return
    state, keys = project.open_state(), selected_nodes(project, pipeline, node)
    of_system = lasting(lambda deeply: list(files_of_system(project, state, deep=deeply)), deep=deep)
    examined = [*of_system, *_after(of_system, examine(project, state, keys, deep=deep))]
    disagreements = [disagreement for disagreement in examined if disagreement.kind not in NOTED]
    rest = [
        *(disagreement for disagreement in examined if disagreement.kind in NOTED),
        *not_looked_at(project, keys, deep=deep),
    ]
    if as_json:
        data_json([disagreement.to_json() for disagreement in [*disagreements, *rest]])
    elif disagreements:
        data_table(_DISAGREEMENTS, disagreements)
    note(
        f"{counted(len(disagreements), 'disagreement')} about {_about(disagreements)}."
        if disagreements
        else f"Tables, state and run history of {counted(len(keys), 'node')} agree."
    )
    for finding in rest:
        lead = "Not looked at: " if finding.kind is Kind.NOT_LOOKED_AT else ""
        note(
            f"{lead}{finding.message if lead else finding.message[:1].upper() + finding.message[1:]}. {finding.remedy}"
        )
    for key, work in ({} if of_system else unfinished(project, state, keys)).items():
        note(f"{key}: {work}; its next run goes on there.")
    for key, gaps in ({} if of_system else kept_gaps(project, keys)).items():
        note(f"{key}: {gaps}: these rows are lost.")
    if disagreements:
        raise typer.Exit(FAILED)


def _after(of_system: list[Disagreement], of_nodes: list[Disagreement]) -> list[Disagreement]:
    """The disagreements of nodes. Where system tables have to be repaired, that comes first: until then, nothing can be
    written to state. The repair ends with the command that brings state up to the tables."""
    repair = next((found.remedy for found in of_system if found.remedy.endswith(RECOVER)), None)
    behind = (Kind.STATE_BEHIND, Kind.HISTORY_BEHIND) if repair is not None else ()
    return [replace(found, remedy=str(repair)) if found.kind in behind else found for found in of_nodes]


def _of_deployment(project: Project, webserver: str | None, as_json: bool) -> None:
    from odi_assets.orchestration.deployment.examine import examine_deployment
    from odi_assets.orchestration.deployment.look import LookOutcome

    looks = list(examine_deployment(project, webserver))
    seen = [look for look in looks if look.outcome is not LookOutcome.NOT_LOOKED_AT]
    wrong = [look for look in looks if look.outcome is LookOutcome.WRONG]
    if as_json:
        data_json([look.to_json() for look in looks])
    else:
        data_table(_LOOKS, seen)
    for look in looks:
        if look.outcome is LookOutcome.NOT_LOOKED_AT:
            note(f"Not looked at: {look.part}: {look.found}{f' ({look.remedy})' if look.remedy else ''}.")
    note(f"{counted(len(wrong), 'thing')} wrong." if wrong else "Nothing is wrong in what was looked at.")
    if wrong:
        raise typer.Exit(FAILED)


def _about(disagreements: list[Disagreement]) -> str:
    nodes = {disagreement.key for disagreement in disagreements if disagreement.key is not None}
    parts = [counted(len(nodes), "node")] if nodes else []
    return " and ".join(
        [*parts, *(["the system tables"] if any(disagreement.key is None for disagreement in disagreements) else [])]
    )


def recover(
    settings: Settings,
    nodes: NodesArgument = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring state and run history up to what the tables' logs say, as each node's next run would."""
    project = settings.project()
    keys = [project.node_named(name) for name in nodes] if nodes else list(project.graph.order())
    state = project.open_state()
    recoveries: list[Recovery] = []
    unreadable: dict[NodeKey, TableError] = {}
    for key in keys:
        try:
            recovery = (find_recovery if dry_run else recover_hwm)(project, state, key)
        except TableError as error:
            unreadable[key] = error
            continue
        if recovery is not None:
            recoveries.append(recovery)
    readable = [key for key in keys if key not in unreadable]
    rows = recover_history(project, state, nodes=readable, every_commit=True, dry_run=dry_run)
    done = [*(recovery.to_json() for recovery in recoveries), *map(_row_json, rows)]
    if as_json:
        data_json(done)
    elif done:
        data_table(_RECOVERIES, done)
    would = "would be recovered" if dry_run else "recovered"
    if recoveries:
        note(f"{counted(len(recoveries), 'HWM')} {would}.")
    if rows:
        note(f"{counted(len(rows), 'row')} of run history {would}.")
    for key, why in unreadable.items():
        note(f"odi: {key} was left out: {why}")
    if unreadable:
        raise typer.Exit(FAILED)
    ahead = {key: how for key in readable if (how := what_state_is_ahead_of(project, state, key)) is not None}
    for key, how in ahead.items():
        note(f"{key}: state is ahead of its table, which {how}. No log brings that back: odi doctor names the ways on.")
    if not (recoveries or rows or ahead):
        note("State has what the tables' logs say, and so has the run history.")


def recover_history(project: Project, state: StateBackend, **options: Any) -> list[RunRecord]:
    """Add the rows of runs that vanished to run history, and return them; see ``reconcile`` for the options."""
    from odi_assets.orchestration.runs.instance import open_instance
    from odi_assets.orchestration.runs.reconcile import reconcile

    with open_instance(project.root) as instance:
        return reconcile(project, instance, state=state, **options)


def _row_json(row: RunRecord) -> dict[str, Any]:
    return {
        "pipeline": row.pipeline_name,
        "node": row.node_name,
        "status": row.status.value,
        "attempt": row.attempt,
        "table_version": row.table_version,
        "run_id": row.run_id,
    }


def accept(
    settings: Settings,
    node: NodeArgument,
    yes: YesOption = False,
) -> None:
    """Go on above the HWM with a table that was dropped, restored or emptied: what it lost is not loaded again."""
    project = settings.project()
    key = project.node_named(node)
    own, state = Node.of(project, key), project.open_state()
    target, start = table_and_start(own, state)
    hwm = start.hwm
    if hwm is None:
        raise ConfigError(f"{key} has no high-water mark", fix="its next run reads everything", node=str(key))
    require_written_by_itself(own, target)
    now = f"is at version {target.version}, with {target.rows} rows" if target.exists else "does not exist"
    note(f"{key} was loaded up to {hwm}; its table {target.location.uri} {now}.")
    gone = lost_files(target.location, target.live_files)
    if gone:
        files = counted(len(target.live_files), "file")
        note(f"Of the {files} of that version {len(gone):,} are gone or cut; the table goes on without them.")
    note("The next run reads on above that HWM. Rows below it that the table has lost stay lost.")
    require_consent(yes)
    accept_table(project, state, key)
    note(f"{key}: accepted.")
