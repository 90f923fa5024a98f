"""What Dagster shows of a materialization's columns: which columns of which assets go into each of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.lineage.made import NotFollowed, Rows
from odi_assets.lineage.node_lineage import How, MadeOf, NodeLineage
from odi_assets.lineage.plan_rows import frame_rows
from odi_assets.lineage.project_lineage import ProjectLineage
from odi_assets.lineage.query_rows import query_rows
from odi_assets.nodes.execution.materialize import Computed, NodeRows
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult
from odi_assets.orchestration.naming import DagsterNames, source_keys
from odi_assets.sources.marks import READ

LINEAGE, SHOWN, NOT_KNOWN = "dagster/column_lineage", "columns_made_of", "column_lineage_not_known"
_HOW: tuple[How, How] = ("value", "condition")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunLineage:
    """The lineage of the rows of one run.

    Attributes:
        transform_rows: what the node's transform gave; None for one that has none, or whose rows commit themselves.
        unknown: why that is not known.
        shown: somebody will see it: an instance in memory is gone with the run.
    """

    project: Project
    key: NodeKey
    transform_rows: Rows | None
    unknown: str = ""
    shown: bool = True

    @classmethod
    def of(cls, project: Project, key: NodeKey, work: Computed | NodeResult, *, shown: bool = True) -> RunLineage:
        """Look at rows that are not committed yet: their session is closed afterwards."""
        if not shown:
            return cls(project, key, None, shown=False)
        try:
            return cls(project, key, _given(project, key, work) if isinstance(work, NodeRows) else None)
        except NotFollowed as unknown:
            return cls(project, key, None, str(unknown))
        except Exception as error:  # noqa: BLE001  a run must not fail because its plan cannot be looked at
            _log.warning("%s: what its columns are made of cannot be looked at: %s", key, error)
            return cls(project, key, None, "its plan cannot be looked at; the log says why")

    def metadata(self, result: NodeResult) -> dict[str, Any]:
        """By column of the table, the columns whose values go into it; or in words why that is not known.

        Dagster cannot tell those that decide from the others, and its open-source UI draws no columns: a table for
        people has both.
        """
        if not self.shown:
            return {}
        if self.unknown:
            return {NOT_KNOWN: self.unknown}
        stored = tuple(name for name, _ in result.columns)
        try:
            node = ProjectLineage(self.project).of_run(self.key, self.transform_rows, stored)
            deps = {name: list(self._deps(node, name)) for name in stored}
            return {LINEAGE: dg.TableColumnLineage(deps), SHOWN: dg.MetadataValue.md(_as_text(node, stored))}
        except NotFollowed as unknown:
            return {NOT_KNOWN: str(unknown)}
        except OdiError as error:
            _log.warning("%s: what its columns are made of cannot be looked at: %s", self.key, error)
            return {NOT_KNOWN: error.message}
        except Exception as error:  # noqa: BLE001  the rows are committed: their step must not fail any more
            _log.warning("%s: what its columns are made of cannot be looked at: %s", self.key, error)
            return {NOT_KNOWN: "it cannot be looked at; the log says why"}

    def _deps(self, node: NodeLineage, column: str) -> Iterator[dg.TableColumnDep]:
        try:
            made = node.made_of(column)
        except NotFollowed:
            # The table has it of an earlier definition.
            return
        for made_of in made:
            if made_of.how == "value":
                for key in self._assets(made_of):
                    yield dg.TableColumnDep(key, made_of.column)

    def _assets(self, made: MadeOf) -> list[dg.AssetKey]:
        """The assets that a column is of; none for one that is not directly upstream."""
        if isinstance(made.owner, NodeKey):
            return [DagsterNames.of(self.project).asset(made.owner)]
        reads = self.project.graph.node(self.key).reads
        read = reads.get(("read",) if made.view == READ else ("inputs", made.view, "read"))
        return [] if read is None else list(source_keys(self.project, read))


def _as_text(node: NodeLineage, columns: Iterable[str]) -> str:
    """A table in Markdown: what goes into each column, and what decides about it; below, what decides about all."""
    lines, of_all = ["| column | value of | decided by |", "|---|---|---|"], ""
    shared = () if node.rows is None else sorted(node.rows.decided)
    if shared:
        of_all = (
            f"\n\nAll are decided by {', '.join(f'`{node.owners[origin.view]}.{origin.column}`' for origin in shared)}."
        )
    for column in columns:
        try:
            made = node.made_of(column)
        except NotFollowed as unknown:
            lines.append(f"| {column} | {unknown} | |")
            continue
        own = [made_of for made_of in made if made_of.how == "value" or (made_of.view, made_of.column) not in shared]
        cells = {
            how: ", ".join(f"`{made_of.owner}.{made_of.column}`" for made_of in own if made_of.how == how)
            for how in _HOW
        }
        lines.append(f"| {column} | {' | '.join(cells.values())} |")
    return "\n".join(lines) + of_all


def _given(project: Project, key: NodeKey, rows: NodeRows) -> Rows | None:
    if rows.transformed is None:
        return None
    transform = project.graph.node(key).transform
    if transform is not None and transform.function is None:
        views = tuple((name, tuple(frame.columns)) for name, frame in rows.inputs.items())
        try:
            return query_rows(transform.sql_text(project.root), views)
        except NotFollowed:
            if not hasattr(rows.transformed, "_jdf"):
                raise
    return frame_rows(rows.transformed, rows.inputs)
