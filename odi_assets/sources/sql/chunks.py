"""How a table is cut into chunks: ranges of its key with about as many rows, each row in exactly one of them.

As OLake cuts them: whole numbers evenly, other keys where a walk along their index comes past every so many rows, and
tables of PostgreSQL by their pages, with `ctid`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from odi_assets.config.models import CTID, ChunksConfig
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.sql.dialects import INT
from odi_assets.sources.sql.keys import KeyColumn, Keys, PostgresKeys, keys_of
from odi_assets.sources.sql.marks import Chunk, Chunks
from odi_assets.sources.sql.statements import Relation

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
"""The rows of a small query."""

MOST_CHUNKS = 10_000
"""Every commit of a snapshot carries the chunks that are left, so there are not more than this."""
LEAST_ROWS = 25_000
"""A part of a chunk that is read by itself has about so many rows at least; a connection for fewer does not pay."""
_SPARSE = 20
"""Even chunks may be so many times as long as they would be without gaps between the numbers."""
_SAMPLE_PAGES = 8


@dataclass(frozen=True)
class Cutter:
    """Cuts one table.

    Attributes:
        table: its name in the project file; None for a query.
        types: its columns, and their types where they are known.
    """

    relation: Relation
    table: str | None
    config: ChunksConfig
    types: Mapping[str, TypeName | None]
    ask: Ask

    def chunks(self) -> Chunks | None:
        """The chunks of the table; None if it has no rows.

        Raises:
            IncrementError: it has no such column, or no key to cut by.
            SourceError: the database does not answer.
        """
        if not self.ask(f"SELECT 1 AS odi_row FROM {self.relation.sql} odi LIMIT 1"):
            return None
        primary = self.primary_key()
        by = self.config.by or primary or self._default()
        if by == (CTID,) and CTID not in self.types:
            return self._by_pages()
        keys = key_columns(self.relation, by, self.types)
        cuts = self._even_cuts(keys[0]) if by == primary and len(by) == 1 and keys[0].kind == INT else None
        bounds = self._walk(keys, self.config.rows) if cuts is None else [(str(cut),) for cut in cuts]
        return _between(by, bounds)

    def pieces(self, by: tuple[str, ...], chunk: Chunk, count: int) -> list[Chunk]:
        """At most ``count`` parts of a chunk, each of its rows in exactly one of them.

        Args:
            by: the key columns that the chunk is a range of.
        """
        if by == (CTID,) and CTID not in self.types:
            cuts: list[tuple[str, ...]] = [(_place(page),) for page in self._page_cuts(chunk, count)]
        else:
            keys = key_columns(self.relation, by, self.types)
            if len(keys) == 1 and keys[0].kind == INT:
                cuts = [(str(cut),) for cut in self._number_cuts(keys[0], chunk, count)]
            else:
                cuts = self._walk(keys, -(-self.config.rows // count), chunk)[: count - 1]
        return [Chunk(low, high) for low, high in pairwise([chunk.low, *cuts, chunk.high])]

    def _page_cuts(self, chunk: Chunk, count: int) -> Sequence[int]:
        first = 0 if chunk.low is None else _page(chunk.low[0])
        last = _page(chunk.high[0]) if chunk.high else storage_of(self.relation, str(self.table), self.ask)[1]
        step = max(1, -(-(last - first) // count))
        return range(first + step, last, step)

    def _number_cuts(self, key: KeyColumn, chunk: Chunk, count: int) -> Sequence[int]:
        if chunk.low and chunk.high:
            low, high = int(chunk.low[0]), int(chunk.high[0]) - 1
        else:
            inside = f"FROM {self.relation.sql} odi WHERE {self._keys.within(chunk, [key])}"
            least, greatest = (f"SELECT {end}({key.sql}) {inside}" for end in ("MIN", "MAX"))
            found = self.ask(f"SELECT ({least}) AS a, ({greatest}) AS b")[0]
            if found[0] is None:
                return ()
            low, high = int(found[0]), int(found[1])
        step = max(1, -(-(high - low + 1) // count))
        return range(low + step, high + 1, step)

    @property
    def _keys(self) -> Keys:
        return keys_of(self.relation.dialect)

    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, in its order; none if it has none, or is a query."""
        if self.table is None:
            return ()
        return tuple(str(row[0]) for row in self.ask(self._keys.primary_key(self.table)))

    def _default(self) -> tuple[str, ...]:
        if self.table is not None and isinstance(self._keys, PostgresKeys):
            return (CTID,)
        raise IncrementError(
            f"{self.relation.label} has no primary key, so nothing says how to cut its snapshot into chunks",
            fix="name columns that it is cut by in `incremental.snapshot.by`; an index of them makes it fast",
            label=self.relation.label,
        )

    def _even_cuts(self, key: KeyColumn) -> Sequence[int] | None:
        """Cuts at equal distances; None if there are too many, because the numbers are too sparse."""
        sql, source = key.sql, self.relation.sql
        # Each by itself: MySQL finds both at the ends of its index.
        least, greatest = (f"SELECT {end}({sql}) FROM {source} odi" for end in ("MIN", "MAX"))
        low, high = (int(value) for value in self.ask(f"SELECT ({least}) AS a, ({greatest}) AS b")[0])
        found = self.ask(self._keys.estimate(str(self.table)))
        rows = int(found[0][0] or 0) if found else 0
        gaps = (high - low + 1) / rows if rows > 0 else 1
        step = int(self.config.rows * min(max(gaps, 1), _SPARSE))
        return range(low + step, high + 1, step) if (high - low) // step < MOST_CHUNKS else None

    def _walk(self, keys: Sequence[KeyColumn], rows: int, chunk: Chunk | None = None) -> list[tuple[str, ...]]:
        """Cuts with so many rows between them, in the whole table or in a chunk of it."""
        shown = ", ".join(f"{self._keys.text(key)} AS odi_key_{number}" for number, key in enumerate(keys))
        order = ", ".join(key.sql for key in keys)
        filled = " AND ".join(f"{key.sql} IS NOT NULL" for key in keys)
        if chunk is not None:
            filled += f" AND ({self._keys.within(chunk, keys)})"
        cuts: list[tuple[str, ...]] = []
        while True:
            above = f" AND {self._keys.above(keys, cuts[-1])}" if cuts else ""
            # The last cut is the first row of its chunk.
            skipped = rows - 1 if cuts else rows
            where = f"FROM {self.relation.sql} odi WHERE {filled}{above}"
            found = self.ask(f"SELECT {shown} {where} ORDER BY {order} LIMIT 1 OFFSET {skipped}")
            if not found:
                return cuts
            cut = tuple(str(text) for text in found[0])
            if cuts and cut == cuts[-1]:
                # Written out, it is rounded: what is above it has itself in it. The rest is one chunk.
                return cuts
            cuts.append(cut)
            if len(cuts) >= MOST_CHUNKS:
                raise IncrementError(
                    f"{self.relation.label} has more than {MOST_CHUNKS:,} chunks of {rows:,} rows",
                    fix="raise `incremental.snapshot.rows`: every commit carries the chunks that are left",
                    label=self.relation.label,
                )

    def _by_pages(self) -> Chunks:
        storage, pages = storage_of(self.relation, str(self.table), self.ask)
        row = self.ask(self._keys.estimate(str(self.table)))[0]
        rows, counted = int(row[0] or 0), int(row[1] or 0)
        if rows <= 0 or counted <= 0:
            where = f"{CTID} < {self._keys.constant(_place(_SAMPLE_PAGES), None)}"
            rows = int(self.ask(f"SELECT COUNT(*) AS n FROM {self.relation.sql} odi WHERE {where}")[0][0])
            counted = min(_SAMPLE_PAGES, max(pages, 1))
        step = max(1, self.config.rows * counted // max(rows, 1), -(-pages // MOST_CHUNKS))
        cuts = [(_place(page),) for page in range(step, pages, step)]
        return Chunks((CTID,), _between((CTID,), cuts).left, len(cuts) + 1, storage)


def key_columns(relation: Relation, by: Sequence[str], types: Mapping[str, TypeName | None]) -> list[KeyColumn]:
    """The columns that chunks are ranges of.

    Raises:
        IncrementError: there is no such column.
    """
    keys = keys_of(relation.dialect)
    for name in by:
        if name not in types and not (name == CTID and isinstance(keys, PostgresKeys)):
            raise IncrementError(
                f"{relation.label} has no column `{name}` to cut it by; it has {', '.join(types)}",
                fix="correct `incremental.snapshot.by`; if the table was changed in the middle of its snapshot, read it"
                " anew with odi run --full-refresh",
                column=name,
            )
    kinds = {name: kind_of(kind) if isinstance(kind, str) else None for name, kind in types.items()}
    return [keys.column(name, kinds.get(name)) for name in by]


def storage_of(relation: Relation, table: str, ask: Ask) -> tuple[str, int]:
    """What names the rows of a table as they are stored, and how many pages they are on.

    Raises:
        IncrementError: it has no pages of its own: it is a view, or a table of another server.
    """
    keys = keys_of(relation.dialect)
    if not isinstance(keys, PostgresKeys):
        raise AssertionError("only PostgreSQL has ctid")
    found = ask(keys.storage(table))
    if not found or found[0][0] is None:
        raise IncrementError(
            f"{relation.label} has no pages to cut it by: it is no table of this server",
            fix="name columns that it is cut by in `incremental.snapshot.by`",
            label=relation.label,
        )
    return str(found[0][0]), int(found[0][1])


def _between(by: Sequence[str], cuts: Sequence[tuple[str, ...]]) -> Chunks:
    chunks = tuple(Chunk(low, high) for low, high in pairwise([None, *cuts, None]))
    return Chunks(tuple(by), chunks, len(chunks))


def _place(page: int) -> str:
    return f"({page},0)"


def _page(place: str) -> int:
    return int(place.strip("()").partition(",")[0])
