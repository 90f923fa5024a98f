"""``odi state rewind``: a node's table and its HWM, back together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, NodeArgument, Settings, YesOption
from odi_assets.cli.terminal.output import Column, count, data_json, data_table, hwm_change, moment, note, short_id
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.writers import require_written_by_itself
from odi_assets.nodes.recovery import rewind as rewinds
from odi_assets.nodes.recovery import table_versions
from odi_assets.nodes.recovery.table_versions import versions
from odi_assets.nodes.request import in_utc
from odi_assets.sources.losses import Loss
from odi_assets.streams.recovery.rewind import at_batch
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.recovery.table_versions import Choice, Version

_VERSIONS = (
    Column("version", lambda of: str(of[0].number), "right"),
    Column("made (UTC)", lambda of: moment(of[0].made_at)),
    Column("by", lambda of: of[1].get("mode") or (_COMPACTION if of[1] else of[0].operation)),
    Column("rows written", lambda of: of[1].get("rows_written"), "right"),
    Column("increment", lambda of: of[1].get("increment"), wrap=True),
    Column("run", lambda of: short_id(of[1].get("run_id")), spare=True),
)
_REWINDS = (
    Column("node", lambda row: f"{row['pipeline']}.{row['node']}"),
    Column("version", lambda row: f"{row['from_version']} → {row['to_version']}"),
    Column("rows", lambda row: f"{count(row['rows_before'])} → {count(row['rows_after'])}"),
    Column("HWM before → after", lambda row: hwm_change(row["hwm_before"], row["hwm_after"] or "none"), wrap=True),
    Column("undoes", lambda row: _undone([item["run_id"] for item in row["undone"]]), wrap=True),
)
_POINTS = "--to-version, --to-batch, --to-run, --before-run, --to-time or --redo"
_COMPACTION = "compaction"
"""The name of a commit of ours that no run made."""


def rewind(
    settings: Settings,
    node: NodeArgument,
    to_version: Annotated[
        int | None, typer.Option("--to-version", metavar="V", help="Back to this version of its table.")
    ] = None,
    to_batch: Annotated[
        int | None,
        typer.Option("--to-batch", metavar="N", help="Of a stream node: back to this batch, its checkpoint too."),
    ] = None,
    to_run: Annotated[
        str | None, typer.Option("--to-run", metavar="ID", help="Back to how this run left it; its first letters do.")
    ] = None,
    before_run: Annotated[
        str | None, typer.Option("--before-run", metavar="ID", help="Back to before this run's first commit.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="T", help="Back to how it stood then: 2013-01-31T05:00, in UTC.")
    ] = None,
    redo: Annotated[bool, typer.Option("--redo", help="Do again what the last rewind undid.")] = False,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Take along the nodes downstream that read what is undone.")
    ] = False,
    list_versions: Annotated[bool, typer.Option("--list", help="Show the versions to go to; change nothing.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put a node's table and its HWM back together, in one commit, as a new version."""
    project = settings.project()
    key = project.node_named(node)
    state = project.open_state()
    if list_versions:
        _list(project, key, as_json)
        return
    points: tuple[tuple[Any, Callable[[Any], Choice]], ...] = (
        (to_version, table_versions.at_version),
        (to_batch, lambda number: _at_batch(project, key, number)),
        (to_run, lambda run: table_versions.after_run(run, state, key)),
        (before_run, lambda run: table_versions.before_run(run, state, key)),
        (to_time, lambda text: table_versions.at_time(_moment(text))),
        (redo or None, lambda _: table_versions.before_last_rewind(Node.of(project, key))),
    )
    choices = [find(point) for point, find in points if point is not None]
    if len(choices) != 1:
        raise ConfigError(
            f"where to is not said: give one of {_POINTS}" if not choices else f"give one of {_POINTS}, not several",
            fix=f"`odi state rewind {key} --list` shows the versions to go to",
        )
    plan = rewinds.plan_rewind(project, state, key, choices[0], cascade=cascade)
    for other, why in plan.left.items():
        note(f"{other}: nothing to do, it {why}" if not why.startswith("all of") else f"{other}: {why}")
    if not as_json and plan.rewinds:
        data_table(_REWINDS, [node_rewind.to_json() for node_rewind in plan.rewinds])
    for node_rewind in plan.rewinds:
        if node_rewind.gone:
            lost = Loss(
                f"no run can read {counted(len(node_rewind.gone), 'file')} again whose rows leave the table",
                node_rewind.gone,
            )
            note(f"{node_rewind.key}: {lost}. Put back what is gone, or undo the rewind before the next run")
    if dry_run or not plan.rewinds:
        if as_json:
            data_json([node_rewind.to_json() for node_rewind in plan.rewinds])
        return
    require_consent(yes)
    applied = rewinds.apply_rewind(project, state, plan)
    if as_json:
        data_json([{**node_rewind.to_json(), "table_version": version} for node_rewind, version in applied])
    for node_rewind, version in applied:
        note(
            f"{node_rewind.key} is at version {version}, with the rows and the HWM of version {node_rewind.to_version}."
        )
    if applied:
        others = " (and of the others one by one)" if len(applied) > 1 else ""
        note(f"To undo this: odi state rewind {key} --redo" + others)


def _at_batch(project: Project, key: NodeKey, number: int) -> Choice:
    if project.graph.node(key).stream is None:
        raise ConfigError(f"{key} is no stream, and has no batches", fix=f"give another point: {_POINTS}")
    return at_batch(Node.of(project, key), number)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        fix = "write it as 2013-01-31T05:00, in UTC or with an offset"
        raise ConfigError(f"{text!r} is not a time", fix=fix) from error
    return in_utc(moment)


def _list(project: Project, key: NodeKey, as_json: bool) -> None:
    table = TableHandle.open(project.target(key))
    require_written_by_itself(Node.of(project, key), table)
    if not table.exists:
        note(f"{key} has no table at {table.location.uri}, so there is no version to go back to.")
        note(f"Rebuild it: odi run {key.pipeline} --node {key.node} --full-refresh; or put it back from a copy.")
    version_facts = [(version, _shown_facts(version)) for version in versions(table)]
    if as_json:
        data_json(
            [
                {
                    "version": version.number,
                    "made_at": version.made_at.isoformat(),
                    "operation": version.operation,
                    **{name: fact.get(name) for name in ("run_id", "mode", "rows_written", "increment", "hwm")},
                }
                for version, fact in version_facts
            ]
        )
        return
    data_table(_VERSIONS, version_facts)


def _shown_facts(version: Version) -> dict[str, Any]:
    """What the commit of a version says of itself, as far as it is shown."""
    if version.stamp is None:
        return {}
    facts = CommitFacts.of(version.stamp)
    shown = {name: getattr(facts, name) for name in ("run_id", "mode", "rows_written", "increment")}
    if facts.stream is not None:
        shown["increment"] = f"batch {facts.stream.batch}"
    return {**shown, "hwm": facts.hwm.to_json() if facts.hwm else None}


def _undone(run_ids: list[str | None]) -> str:
    runs = list(dict.fromkeys(map(short_id, run_ids)))
    return f"{len(run_ids)} of run{'s' if len(runs) > 1 else ''} {', '.join(runs)}" if run_ids else ""
