"""How a table is cut into chunks: ranges of its key with about as many rows, each row in exactly one of them.

A range of numbers with few gaps is cut evenly. Other keys are cut by a walk along their index, each time it has passed
a fixed number of rows. Tables of PostgreSQL are cut by their pages, with `ctid`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from odi_assets.config.models import CTID, ChunksConfig
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.digits import digits_of
from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.sql.dialects import INT
from odi_assets.sources.sql.keys import BIT, KeyColumn, Keys, PostgresKeys, keys_of, order_of
from odi_assets.sources.sql.marks import Chunks, TableChunk
from odi_assets.sources.sql.statements import Ask, Relation

MOST_CHUNKS = 10_000
"""Every commit of a snapshot carries the chunks that are left, so there are not more than this."""
LEAST_ROWS = 25_000
"""The least number of rows, about, in a part of a chunk that is read by itself: fewer do not pay for a connection."""
STRIDE = 100_000
"""The most rows that one query of a walk passes, so that each query ends in time."""
_SAMPLE_PAGES = 1_000
_TRIED, _DENSE = 1_000, 0.6
"""How many numbers are looked for in a range, and which share of them has to be there. If only half of all numbers are
there, one sample in ten billion reaches this share."""


@dataclass(frozen=True)
class Cutter:
    """Cuts one relation.

    Attributes:
        types: its columns, and their types as Spark reads them.
    """

    relation: Relation
    config: ChunksConfig
    types: Mapping[str, TypeName | None]
    ask: Ask

    def chunks(self) -> Chunks | None:
        """The chunks of the relation; None if it has no rows.

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
        keys = self._columns(by)
        even = self._even_cuts(keys[0]) if by == primary and len(keys) == 1 and keys[0].kind == INT else None
        cuts = self._walk(keys, self.config.rows) if even is None else [(str(cut),) for cut in even]
        return replace(_between(by, cuts), order=tuple(key.order for key in keys))

    def pieces(self, by: tuple[str, ...], chunk: TableChunk, count: int) -> list[TableChunk]:
        """At most ``count`` parts of a chunk, each of its rows in exactly one of them.

        Args:
            by: the key columns that the chunk is a range of.
        """
        if by == (CTID,) and CTID not in self.types:
            cuts: list[tuple[str, ...]] = [(_place(page),) for page in self._page_cuts(chunk, count)]
        else:
            keys = self._columns(by)
            if len(keys) == 1 and keys[0].kind == INT:
                cuts = [(str(cut),) for cut in self._number_cuts(keys[0], chunk, count)]
            else:
                cuts = self._walk(keys, -(-self.config.rows // count), chunk)[: count - 1]
        return [TableChunk(low, high) for low, high in pairwise([chunk.low, *cuts, chunk.high])]

    def _page_cuts(self, chunk: TableChunk, count: int) -> Sequence[int]:
        first = 0 if chunk.low is None else _page(chunk.low[0])
        last = _page(chunk.high[0]) if chunk.high else storage_of(self.relation, self.ask)[1]
        step = max(1, -(-(last - first) // count))
        return range(first + step, last, step)

    def _number_cuts(self, key: KeyColumn, chunk: TableChunk, count: int) -> Sequence[int]:
        if chunk.low and chunk.high:
            low, high = int(chunk.low[0]), int(chunk.high[0]) - 1
        else:
            inside = f"FROM {self.relation.sql} odi WHERE {self._keys.within(chunk, [key])}"
            least, greatest = (f"SELECT {end}({key.sql}) {inside}" for end in ("MIN", "MAX"))
            row = self.ask(f"SELECT ({least}) AS a, ({greatest}) AS b")[0]
            if row[0] is None:
                return ()
            low, high = int(row[0]), int(row[1])
        step = max(1, -(-(high - low + 1) // count))
        return range(low + step, high + 1, step)

    @property
    def _keys(self) -> Keys:
        return keys_of(self.relation.dialect)

    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, in its order; none if it has none, or is a query."""
        if self.relation.table is None:
            return ()
        return tuple(str(row[0]) for row in self.ask(self._keys.primary_key(self.relation.table)))

    def _default(self) -> tuple[str, ...]:
        if self.relation.table is not None and isinstance(self._keys, PostgresKeys):
            return (CTID,)
        raise IncrementError(
            f"{self.relation.label} has no primary key, so nothing says how to cut its snapshot into chunks",
            fix="name columns that it is cut by in `incremental.snapshot.by`; an index of them makes it fast",
            label=self.relation.label,
        )

    def _columns(self, by: Sequence[str]) -> list[KeyColumn]:
        return key_columns(self.relation, by, self.types, self.ask)

    def _even_cuts(self, key: KeyColumn) -> Sequence[int] | None:
        """Cuts of a unique number at equal distances; None if there are too many gaps between the numbers."""
        # Each by itself: MySQL finds both at the ends of its index.
        least, greatest = (f"SELECT {end}({key.sql}) FROM {self.relation.sql} odi" for end in ("MIN", "MAX"))
        low, high = (int(value) for value in self.ask(f"SELECT ({least}) AS a, ({greatest}) AS b")[0])
        cuts = range(low + self.config.rows, high + 1, self.config.rows)
        if len(cuts) >= MOST_CHUNKS:
            return None
        return cuts if len(cuts) < 2 or self._is_dense(key, low, high) else None

    def _is_dense(self, key: KeyColumn, low: int, high: int) -> bool:
        """Whether most numbers of a range are there, so that even chunks of it are no more than half empty."""
        chance = random.Random(f"{low} {high}")
        tried = {chance.randint(low, high) for _ in range(_TRIED)}
        listed = ", ".join(map(str, tried))
        (row,) = self.ask(f"SELECT COUNT(*) AS n FROM {self.relation.sql} odi WHERE {key.sql} IN ({listed})")
        return int(row[0]) >= _DENSE * len(tried)

    def _walk(self, keys: Sequence[KeyColumn], rows: int, chunk: TableChunk | None = None) -> list[tuple[str, ...]]:
        """Cuts with ``rows`` rows between them, in the whole relation or in a chunk of it."""
        cuts: list[tuple[str, ...]] = []
        bound, passed = None, 0
        while True:
            further = min(rows - passed, STRIDE)
            next_bound = self._ahead(keys, bound, further, chunk)
            if next_bound is None or next_bound == bound:
                # If the same is found again, it is rounded where it is written out. The rest is one chunk.
                return cuts
            bound, passed = next_bound, (passed + further) % rows
            if passed == 0:
                cuts.append(bound)
            if len(cuts) >= MOST_CHUNKS:
                raise IncrementError(
                    f"{self.relation.label} has more than {MOST_CHUNKS:,} chunks of {rows:,} rows",
                    fix="raise `incremental.snapshot.rows`: every commit carries the chunks that are left",
                    label=self.relation.label,
                )

    def _ahead(
        self, keys: Sequence[KeyColumn], bound: tuple[str, ...] | None, rows: int, chunk: TableChunk | None
    ) -> tuple[str, ...] | None:
        """The key that is ``rows`` rows after ``bound``, or after the first row; None if there are no more."""
        shown = ", ".join(f"{self._keys.text(key)} AS odi_key_{number}" for number, key in enumerate(keys))
        where = [self._keys.filled(keys)]
        if chunk is not None:
            where.append(f"({self._keys.within(chunk, keys)})")
        if bound is not None:
            where.append(self._keys.above(keys, bound))
        answer = self.ask(
            f"SELECT {shown} FROM {self.relation.sql} odi WHERE {' AND '.join(where)} "
            # The row at ``bound`` is one of those that are gone past.
            f"ORDER BY {', '.join(key.sql for key in keys)} LIMIT 1 OFFSET {rows if bound is None else rows - 1}"
        )
        return tuple(str(text) for text in answer[0]) if answer else None

    def _by_pages(self) -> Chunks:
        """Chunks of as many pages each. How many rows a page has is taken from a sample of all of them: what the server
        knows may be old, or nothing."""
        storage, pages, all_pages = storage_of(self.relation, self.ask)
        share = min(100.0, 100 * _SAMPLE_PAGES / max(all_pages, 1))
        query = f"SELECT COUNT(*) AS n FROM {self.relation.sql} odi TABLESAMPLE SYSTEM ({share!r})"
        rows = int(int(self.ask(query)[0][0]) * 100 / share)
        count = min(max(1, -(-rows // self.config.rows)), MOST_CHUNKS)
        step = max(1, -(-pages // count))
        cuts = [(_place(page),) for page in range(step, pages, step)]
        return Chunks((CTID,), _between((CTID,), cuts).left, len(cuts) + 1, storage)


def key_columns(
    relation: Relation, by: Sequence[str], types: Mapping[str, TypeName | None], ask: Ask
) -> list[KeyColumn]:
    """The columns that chunks are ranges of: the same for who cuts a relation and for who reads its chunks.

    Args:
        types: the columns of the relation, and their types as Spark reads them.

    Raises:
        IncrementError: there is no such column, or the database has no order for it.
        SourceError: the database does not answer.
    """
    keys = keys_of(relation.dialect)
    for name in by:
        if name not in types and not (name == CTID and isinstance(keys, PostgresKeys)):
            raise IncrementError(
                f"{relation.label} has no column `{name}` to cut it by; it has {', '.join(types)}",
                fix="correct `incremental.snapshot.by`; if the table was changed in the middle of its snapshot, read it"
                " again with odi run --full-refresh",
                column=name,
            )
    kinds = {name: BIT if kind == BIT else kind_of(kind) for name, kind in types.items() if isinstance(kind, str)}
    declarations = _declared(relation, by, ask)
    declared = {} if relation.table is None else {name: kind for name, (kind, *_) in declarations.items()}
    orders = _orders(declarations, by, types)
    return [
        replace(keys.column(name, kinds.get(name), declared.get(name)), order=order)
        for name, order in zip(by, orders, strict=True)
    ]


def key_orders(
    relation: Relation, by: Sequence[str], types: Mapping[str, TypeName | None], ask: Ask
) -> tuple[str, ...]:
    """What puts the values of each of the key columns in order; empty for one that is not there."""
    return _orders(_declared(relation, by, ask), by, types)


_Declared = Mapping[str, tuple[str, str, str]]
"""By column, its type without and with its length, and what else puts its values in order."""


def _orders(declarations: _Declared, by: Sequence[str], types: Mapping[str, TypeName | None]) -> tuple[str, ...]:
    return tuple(order_of(*declarations.get(name, ("", "", "")), digits_of(types.get(name))[0]) for name in by)


def _declared(relation: Relation, by: Sequence[str], ask: Ask) -> _Declared:
    """What is known of each column; of a query, of the columns ``by`` alone."""
    keys = keys_of(relation.dialect)
    query = keys.columns_of_query(relation.sql, by) if relation.table is None else keys.columns(relation.table)
    return {str(name): (str(kind), str(length), str(ordering)) for name, kind, length, ordering in ask(query)}


def storage_of(relation: Relation, ask: Ask) -> tuple[str, int, int]:
    """What names the rows of a table as they are stored, and how many pages its longest part and all of its parts have.

    Raises:
        IncrementError: it has no pages of its own: it is a view, or a table of another server.
    """
    keys = keys_of(relation.dialect)
    if not isinstance(keys, PostgresKeys):
        raise AssertionError("only PostgreSQL has ctid")
    rows = ask(keys.storage(str(relation.table)))
    if not rows or rows[0][0] is None:
        raise IncrementError(
            f"{relation.label} has no pages to cut it by: it is no table of this server",
            fix="name columns that it is cut by in `incremental.snapshot.by`",
            label=relation.label,
        )
    return str(rows[0][0]), int(rows[0][1]), int(rows[0][2])


def _between(by: Sequence[str], cuts: Sequence[tuple[str, ...]]) -> Chunks:
    chunks = tuple(TableChunk(low, high) for low, high in pairwise([None, *cuts, None]))
    return Chunks(tuple(by), chunks, len(chunks))


def _place(page: int) -> str:
    return f"({page},0)"


def _page(ctid: str) -> int:
    return int(ctid.strip("()").partition(",")[0])
