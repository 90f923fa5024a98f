"""Rows of a bounded run that are upserted replace no stored row that is newer than they are, or may be, and bring none
back that was deleted.

A range or a partition is read by itself. The newest row of a key may lie elsewhere: it was loaded later, from another
partition or beyond the range.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odi_assets.config.compared_columns import ViewColumn, source_column
from odi_assets.config.models import FilesIncrement, WriteMode
from odi_assets.errors import TableError
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.sources.cursor.columns import cursor_column, window_condition
from odi_assets.sources.cursor_reads import CursorWindow
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Replacing = Callable[["DataFrame", "DataFrame | None"], None]
"""Looks at rows, and at the stored rows that they are about to replace; None for these if there are none."""

_SHOWN = 3
_ORDER = "name in `write.only_if_newer` the column that says which row is newer"


def newer_rows_guard(plan: NodePlan) -> Replacing | None:
    """What raises TableError if the rows of a bounded run replace a newer one; None for other runs."""
    if not plan.request.is_bounded or plan.write.mode is not WriteMode.UPSERT:
        return None
    write = plan.node.config.write
    looks: list[Callable[[DataFrame], None]] = []
    if write.only_if_newer is None:
        if plan.write.within is not None:
            looks.append(_Elsewhere(plan).require_none)
        ranges = (read for read in plan.reads if isinstance(read, CursorWindow) and read.range_of is not None)
        looks += [_Beyond(plan, read).require_none for read in ranges]

    def look(rows: DataFrame, stored: DataFrame | None) -> None:
        if write.delete_when is not None:
            _require_not_deleted(plan, write.delete_when, rows, stored)
        if stored is not None:
            for require_none in looks:
                require_none(stored)

    return look


def _require_not_deleted(plan: NodePlan, marker: str, rows: DataFrame, stored: DataFrame | None) -> None:
    added = rows.where(~F.coalesce(F.col(quoted(marker)), F.lit(False))).alias("t")
    if stored is not None:
        added = added.join(stored.select(*map(quoted, plan.keys)).alias("b"), same_keys(plan.keys), "left_anti")
    shown = _shown(added, plan.keys, ())
    if shown:
        raise _refused(
            plan,
            f"has rows whose keys the table does not have ({_text(shown, plan.keys, ())}): a row with `{marker}` that "
            "is not in it may have deleted them",
            [],
        )


@dataclass(frozen=True)
class _Elsewhere:
    """Rows in partitions that the run is not of."""

    plan: NodePlan

    def require_none(self, stored: DataFrame) -> None:
        node, within = self.plan.node, self.plan.write.within
        assert within is not None
        outside = stored.where(~F.coalesce(within.condition(stored), F.lit(False)))
        columns = tuple(within.box.columns) if within.box is not None else (within.column,)
        shown = _shown(outside, self.plan.keys, columns)
        if not shown:
            return
        read = node.config.read
        files_decide = read is not None and isinstance(read.incremental, FilesIncrement) and not node.config.transform
        raise _refused(
            self.plan,
            f"has rows whose keys the table has in other partitions ({_text(shown, self.plan.keys, columns)}): nothing "
            "says which row is newer",
            [*([self._together(outside, columns)] if files_decide else []), _ORDER],
        )

    def _together(self, outside: DataFrame, columns: tuple[str, ...]) -> str:
        """How the run takes in all partitions in which rows of its keys lie."""
        if self.plan.request.bounds is not None:
            return "run these partitions in the same run: of files, the newest counts"
        (column,) = columns
        others = outside.select(F.col(quoted(column)).cast("string")).distinct().collect()
        values = dict.fromkeys([*self.plan.request.partitions, *sorted(row[0] for row in others if row[0] is not None)])
        named = " --partition ".join(map(shlex.quote, values))
        command = f"odi run {self.plan.node.command} --partition {named}"
        return f"run these partitions in the same run ({command}): of files, the newest counts"


@dataclass(frozen=True)
class _Beyond:
    """Rows whose cursor lies beyond the range."""

    plan: NodePlan
    read: CursorWindow

    def require_none(self, stored: DataFrame) -> None:
        window = self.read.window
        if not all(name in stored.columns and self._is_kept(name) for name in window.columns):
            # Nothing in the table says how old its rows are.
            return
        below = replace(window, lower=None)
        beyond = stored.where(cursor_column(stored, window).isNotNull() & ~window_condition(stored, below))
        shown = _shown(beyond, self.plan.keys, window.columns)
        if shown:
            raise _refused(
                self.plan,
                "has rows whose keys the table has with a later cursor "
                f"({_text(shown, self.plan.keys, window.columns)}): older rows would replace newer ones",
                [_ORDER],
            )

    def _is_kept(self, name: str) -> bool:
        """Whether a column of the table may be the source's own. What a function makes of it, nobody knows."""
        node, transform = self.plan.node, self.plan.node.config.transform
        if transform is not None and transform.function is not None:
            return True
        own = ViewColumn(self.read.name.casefold(), name.lower())
        return source_column(node.config, name, node.project.root) == own


def _shown(rows: DataFrame, keys: tuple[str, ...], columns: tuple[str, ...]) -> list[tuple[str | None, ...]]:
    texts = [F.col(quoted(name)).cast("string") for name in (*keys, *columns)]
    return [tuple(row) for row in rows.select(*texts).limit(_SHOWN).collect()]


def _text(rows: list[tuple[str | None, ...]], keys: tuple[str, ...], columns: tuple[str, ...]) -> str:
    return "; ".join(
        ", ".join(f"{name}={value}" for name, value in zip((*keys, *columns), row, strict=True)) for row in rows
    )


def _refused(plan: NodePlan, what: str, ways: list[str]) -> TableError:
    node = plan.node
    ways = [*ways, f"load all of it: odi run {node.command} --full-refresh"]
    return TableError(
        f"{node}: the run {plan.request.part} {what}",
        fix=f"{'; or '.join(ways)}; nothing was committed",
        node=str(node),
    )
