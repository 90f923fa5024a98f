"""``odi state adopt``: take a table and its HWM over, where a definition changed and the rows are the same."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import data_json, note, stdout_kept_for_data
from odi_assets.errors import OdiError
from odi_assets.nodes.recovery.adopt import Adoption, apply_adoption, plan_adoption
from odi_assets.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.config.graph import NodeKey

NodesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE…", help="PIPELINE.NODE, or NODE if one pipeline has it; or a pipeline: all its nodes."
    ),
]


def adopt(
    settings: Settings,
    nodes: NodesArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a table whose node, project or source was renamed or is followed in another way: its rows are the
    same."""
    project = settings.project()
    state = project.open_state()
    pipelines = {pipeline.pipeline for pipeline in project.config.pipelines}
    named = (project.pipeline_nodes(name) if name in pipelines else [project.node_named(name)] for name in nodes)
    keys = list(chain.from_iterable(named))
    with stdout_kept_for_data(), ExitStack() as opened:

        @cache
        def spark() -> SparkSession:
            quiet_libraries()
            handle = open_session(project.config.spark, app_name="odi state adopt")
            opened.callback(handle.stop)
            return handle.spark

        try:
            planned = {key: plan_adoption(project, state, key, spark) for key in dict.fromkeys(keys)}
        except OdiError:
            if len(keys) > 1:
                note(f"None of the {len(keys)} nodes was adopted. Name those that can be, without the one below.")
            raise
    adoptions = {key: adoption for key, adoption in planned.items() if adoption is not None}
    if as_json:
        data_json([adoption.to_json() for adoption in adoptions.values()])
    for key, adoption in planned.items():
        _show(key, adoption)
    if not adoptions or dry_run:
        return
    is_read_again = any(map(_reads_all_again, adoptions.values()))
    text = "The rows of these tables count as rows of the nodes as they are defined now"
    note(f"{text}." if is_read_again else f"{text}; none of them is read again.")
    require_consent(yes)
    for key, adoption in adoptions.items():
        apply_adoption(state, adoption)
        note(f"{key}: adopted.")


def _show(key: NodeKey, adoption: Adoption | None) -> None:
    if adoption is None:
        note(f"{key}: nothing to adopt: its table, its HWM and its sources are its own.")
        return
    note(f"{key}: {'; '.join(adoption.changes)}.")
    note(f"  Its HWM: {adoption.hwm_before or 'none'} → {adoption.hwm_after or 'none'}.")
    if _reads_all_again(adoption):
        mode = adoption.node.config.write.mode
        effect = "adds no row twice" if mode.traits.takes_rows_again else "adds all of their rows again"
        note(f"  Its next run reads its sources whole, and `{mode}` {effect}.")


def _reads_all_again(adoption: Adoption) -> bool:
    return adoption.node.kind.keeps_hwm and adoption.hwm_after is None
