"""What the columns of a node's table are made of: columns of other nodes' tables, and of what sources deliver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import NodeConfig
from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.lineage.made import NONE, Made, NotFollowed, Origin, Origins, Rows
from odi_assets.lineage.query_rows import query_rows
from odi_assets.sources.marks import READ

How = Literal["value", "condition"]
"""``value`` where its value goes in, ``condition`` where it decides: filter, join, group, order, CASE."""
_DATABASE = "(database)"
"""The view of a node that applies a change log, of which the database's table is the origin."""
_ROWS = "rows"


def _looked_up(node: str) -> str:
    """The view of a node's table in which a check looks values up."""
    return f"(references {node})"


class MadeOf(NamedTuple):
    """A column that another one is made of.

    Attributes:
        owner: the node in whose table it is, or the source that delivers it, as ``odi ls`` names it.
        view: what the node calls that.
    """

    owner: NodeKey | str
    view: str
    column: str
    how: How


@dataclass(frozen=True)
class NodeLineage:
    """What the columns of a node's table are made of.

    Attributes:
        columns: the columns of its table, and those that its next run adds; None if they are not known.
        rows: what it writes; None if that is not known.
        owners: by view that it reads, whose that is.
        unknown: why it is not known what its columns are made of.
        fix: what the reader can do about that; empty if a run is what helps, or nothing does.
    """

    key: NodeKey
    columns: tuple[str, ...] | None
    rows: Rows | None
    owners: Mapping[str, NodeKey | str]
    unknown: str = ""
    fix: str = ""

    def made_of(self, column: str) -> list[MadeOf]:
        """What a column is made of: first what goes in, then what decides.

        Raises:
            NotFollowed: that is not known.
        """
        if self.rows is None:
            raise NotFollowed(self.unknown)
        made = self.rows.column(column)
        if made is None and column == FAILED_CHECKS and column not in (self.columns or ()):
            # Its quarantine has it: it is made of what decides which rows go there.
            made = Made()
        if made is None:
            raise NotFollowed(f"its rows have no `{column}`: what is stored in it is of an earlier definition")
        return [*self._listed(made.values, "value"), *self._listed(made.conditions | self.rows.decided, "condition")]

    def _listed(self, origins: Origins, how: How) -> Iterator[MadeOf]:
        order = {view: index for index, view in enumerate(self.owners)}
        for view, column in sorted(origins, key=lambda origin: (order[origin.view], origin.column)):
            yield MadeOf(self.owners[view], view, column, how)


def stored_rows(rows: Rows, node: NodeConfig, columns: Mapping[str, tuple[str, ...] | None]) -> Rows:
    """What a node stores of its rows: its streams, its write mode and its quarantine leave rows out.

    Args:
        rows: what its transform gives.
        columns: of the views that it reads.

    Raises:
        NotFollowed: what leaves rows out cannot be read.
    """
    decided = rows.decided
    if node.stream is not None:
        for view, stream_input in node.stream.inputs.items():
            if stream_input.where:
                decided |= _of_condition(stream_input.where, view, columns.get(view))
            if stream_input.watermark is not None:
                decided |= {Origin(view, stream_input.watermark.column)}
    for column in filter(None, (node.write.delete_when, node.write.only_if_newer)):
        decided |= (rows.column(column) or Made()).all
    if node.quarantine:
        for check in node.all_checks:
            if check.by_row and check.blocks:
                decided |= _of_check(rows, check.columns, check.config.expression)
                reference = check.config.references
                decided |= (
                    {Origin(_looked_up(reference.node), reference.key or reference.column)}
                    if reference is not None
                    else NONE
                )
    stored = tuple(entry for entry in rows.columns if entry[0].casefold() != (node.write.delete_when or "").casefold())
    return Rows(stored, decided, rows.unlisted)


def _of_condition(condition: str, view: str, columns: tuple[str, ...] | None) -> Origins:
    return query_rows(f"SELECT 1 AS one FROM `{view}` WHERE {condition}", ((view, columns),)).decided


def _of_check(rows: Rows, columns: tuple[str, ...], expression: str | None) -> Origins:
    names = [*columns]
    if expression is not None:
        listed = tuple(name for name, _ in rows.columns) if rows.unlisted is None else None
        names += [column for _, column in _of_condition(expression, _ROWS, listed)]
    return NONE.union(*((rows.column(name) or Made()).all for name in names))


def same_rows(view: str, columns: tuple[str, ...]) -> Rows:
    """The rows of a view as they are."""
    return Rows(tuple((name, Made(frozenset({Origin(view, name)}))) for name in columns))


def applied_rows(columns: tuple[str, ...], keys: tuple[str, ...], view: str) -> Rows:
    """The rows of a node that applies a change log, over the log and over the table of the database.

    Args:
        keys: of the table, as far as they are known.
        view: what the node calls the log.
    """
    values = {Origin(view, name) for name in ("before", "after", "columns", "shape")}
    decided = {Origin(view, name) for name in ("n", "table", "op", "key", "unchanged")}
    made_columns = tuple((name, Made(frozenset({*values, Origin(_DATABASE, name)}))) for name in columns)
    return Rows(made_columns, frozenset({*decided, *(Origin(_DATABASE, key) for key in keys)}))


def owners_of(
    node: NodeConfig,
    upstream: Mapping[str, NodeKey],
    writers: Mapping[tuple[str, ...], NodeKey],
    database: str,
    looked_up: Mapping[str, NodeKey],
) -> dict[str, NodeKey | str]:
    """By view of a node, whose it is.

    Args:
        upstream: by view, the nodes of its inputs.
        writers: by the place of a ``read``, the node that writes the table which it reads by its path.
        database: the table of the database that it applies the log of; empty for another node.
        looked_up: by the name that a check of a quarantine gives it, the node in whose table it looks values up.
    """
    owners: dict[str, NodeKey | str] = {}
    for at, read in node.reads.items():
        view = at[1] if len(at) > 1 else READ
        owners[view] = writers.get(at) or f"{read.connection}:{read.shown}"
    owners |= upstream
    owners |= {_looked_up(name): key for name, key in looked_up.items()}
    return {**owners, _DATABASE: database} if database else owners
