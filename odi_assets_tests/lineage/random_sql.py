"""Random queries over small tables, in the SQL that SQLite and Spark have in common.

What SQLite says changes in the result when one value of a table is changed must be in the lineage of the query. Names
are used again on purpose: columns of several tables, aliases that shadow columns and tables, names of WITH that shadow
tables.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field

TABLES = {"t": ("a", "b", "c"), "u": ("a", "d", "e"), "v": ("b", "f", "a")}
ROWS = 5
Tables = dict[str, list[list[int | None]]]


@dataclass
class RandomQuery:
    """Makes queries, always the same of a seed."""

    seed: int
    names: int = 0
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def text(self) -> str:
        """A query, with WITH or without."""
        clauses = []
        for _ in range(self.random.choice([0, 0, 1, 2])):
            sql, columns = self.query(2)
            name = self.random.choice([self.fresh("w"), self.random.choice(list(TABLES))])
            if clauses or f" {name} AS " in sql:
                # In SQLite a name of WITH counts in the queries before it too.
                name = self.fresh("w")
            clauses.append(f"{name} AS ({sql})")
            self.named[name] = columns
        sql, _ = self.query(3)
        return f"WITH {', '.join(clauses)} {sql}" if clauses else sql

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def query(self, depth: int) -> tuple[str, tuple[str, ...]]:
        kind = self.random.random()
        if depth > 0 and kind < 0.2:
            return self.united(depth)
        if kind < 0.45:
            return self.grouped(depth)
        return self.plain(depth)

    def united(self, depth: int) -> tuple[str, tuple[str, ...]]:
        (left, columns), (right, others) = self.query(depth - 1), self.query(depth - 1)
        width = min(len(columns), len(others))
        word = self.random.choice(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        sides = [f"SELECT {', '.join(own[:width])} FROM ({sql}) AS {self.fresh('s')}"
                 for sql, own in ((left, columns), (right, others))]  # fmt: skip
        return f"{sides[0]} {word} {sides[1]}", columns[:width]

    def plain(self, depth: int) -> tuple[str, tuple[str, ...]]:
        source, scope, star = self.source(depth)
        items: dict[str, str] = {}
        if self.random.random() < 0.25 and star is not None:
            columns, shown = star, "*"
        else:
            for _ in range(self.random.randint(1, 4)):
                items[self.alias()] = self.value(scope, depth, windows=True)
            columns, shown = tuple(items), ", ".join(f"{sql} AS {name}" for name, sql in items.items())
        distinct = "DISTINCT " if self.random.random() < 0.15 else ""
        sql = f"SELECT {distinct}{shown} FROM {source}{self.where(scope, depth)}"
        if self.random.random() < 0.12:
            places = ", ".join(str(place + 1) for place in range(len(columns)))
            sql = f"SELECT * FROM ({sql} ORDER BY {places} LIMIT {self.random.randint(1, 4)}) AS {self.fresh('s')}"
        return sql, columns

    def grouped(self, depth: int) -> tuple[str, tuple[str, ...]]:
        source, scope, _ = self.source(depth)
        keys = [self.random.choice(scope) for _ in range(self.random.randint(0, 2))]
        keys = list(dict.fromkeys(keys))
        items: dict[str, str] = {}
        for key in keys:
            if self.random.random() < 0.7:
                items[self.alias()] = key
        for _ in range(self.random.randint(1, 2)):
            items[self.alias()] = self.aggregate(scope, depth)
        sql = f"SELECT {', '.join(f'{one} AS {name}' for name, one in items.items())} FROM {source}"
        sql += self.where(scope, depth) + (f" GROUP BY {', '.join(keys)}" if keys else "")
        if keys and self.random.random() < 0.3:
            sql += f" HAVING {self.aggregate(scope, depth)} > {self.random.randint(0, 3)}"
        return sql, tuple(items)

    def alias(self) -> str:
        """A name that may be the one of a column."""
        return self.random.choice(["a", "b", "c", "d", "e", "f", "x", "y", "z"])

    def source(self, depth: int) -> tuple[str, list[str], tuple[str, ...] | None]:
        """A FROM, the columns that it has, and those of its ``*``, unless two have one name."""
        item, alias, columns = self.relation(depth)
        scope = [f"{alias}.{one}" for one in columns]
        star: tuple[str, ...] | None = columns
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            other, name, own = self.relation(depth - 1)
            # SQLite refuses some of RIGHT and FULL behind another join.
            kinds = ["RIGHT JOIN", "FULL JOIN"] if len(scope) == len(columns) else []
            kind = self.random.choice(["JOIN", "LEFT JOIN", "CROSS JOIN", "USING", *kinds])
            shared = [one for one in own if star is not None and one in star]
            if kind == "USING" and shared and star is not None and len(shared) == 1:
                item += f" JOIN {other} USING ({shared[0]})"
                star = None
            else:
                kind = "JOIN" if kind == "USING" else kind
                on = f"{self.random.choice(scope)} = {name}.{self.random.choice(own)}"
                item += f" {kind} {other}" + ("" if kind == "CROSS JOIN" else f" ON {on}")
                star = (*star, *own) if star is not None and not set(own) & set(star) else None
            scope += [f"{name}.{one}" for one in own]
        names = [one.rpartition(".")[2] for one in scope]
        # A name that one table alone has may stand without it.
        bare = [names.count(name) == 1 and self.random.random() < 0.5 for name in names]
        return item, [name if is_bare else one for one, name, is_bare in zip(scope, names, bare, strict=True)], star

    def relation(self, depth: int) -> tuple[str, str, tuple[str, ...]]:
        if depth > 0 and self.random.random() < 0.4:
            sql, columns = self.query(depth - 1)
            alias = self.fresh("s")
            return f"({sql}) AS {alias}", alias, columns
        name, columns = self.table()
        alias = self.fresh("r")
        return f"{name} AS {alias}", alias, columns

    def table(self) -> tuple[str, tuple[str, ...]]:
        """A table, or a query that WITH has named."""
        known = {**TABLES, **self.named}
        name = self.random.choice(list(known))
        return name, known[name]

    def value(self, scope: list[str], depth: int, *, windows: bool = False) -> str:
        one, other = self.random.choice(scope), self.random.choice(scope)
        kind = self.random.randint(0, 11 if windows else 7)
        if kind <= 3:
            return one
        if kind == 4:
            return f"{one} + {other} * {self.random.randint(1, 3)}"
        if kind == 5:
            return f"CASE WHEN {self.condition(scope, 0)} THEN {one} ELSE {other} END"
        if kind == 6:
            return self.random.choice([f"COALESCE({one}, {other})", f"NULLIF({one}, {other})"])
        if kind == 7:
            return self.scalar(scope) if depth > 0 else str(self.random.randint(0, 3))
        call = self.random.choice(["SUM({})", "COUNT({})", "MIN({})", "RANK()", "DENSE_RANK()"]).format(one)
        order = f"ORDER BY {other}" if "RANK" in call or self.random.random() < 0.4 else ""
        part = f"PARTITION BY {self.random.choice(scope)}" if self.random.random() < 0.7 else ""
        return f"{call} OVER ({part} {order})"

    def scalar(self, scope: list[str]) -> str:
        """A subquery, which may refer to what is around it."""
        name, columns = self.table()
        own = [f"q.{one}" for one in columns]
        where = f" WHERE {self.random.choice(own)} = {self.random.choice(scope)}" if self.random.random() < 0.7 else ""
        word = self.random.choice(["MAX", "SUM", "COUNT"])
        return f"(SELECT {word}({self.random.choice(own)}) FROM {name} AS q{where})"

    def aggregate(self, scope: list[str], depth: int) -> str:
        kind = self.random.randint(0, 3)
        if kind == 0:
            return "COUNT(*)"
        if kind == 1:
            return f"SUM(CASE WHEN {self.condition(scope, 0)} THEN {self.random.choice(scope)} END)"
        word = self.random.choice(["SUM", "MIN", "MAX", "COUNT"])
        return f"{word}({self.value(scope, 0 * depth)})"

    def where(self, scope: list[str], depth: int) -> str:
        return f" WHERE {self.condition(scope, depth)}" if self.random.random() < 0.45 else ""

    def condition(self, scope: list[str], depth: int) -> str:
        one, other = self.random.choice(scope), self.random.choice(scope)
        kind = self.random.randint(0, 6 if depth > 0 else 3)
        if kind <= 1:
            return f"{one} {self.random.choice(['<', '>', '=', '<>'])} {other}"
        if kind == 2:
            return f"{one} IS NOT NULL"
        if kind == 3:
            return f"({one} > {self.random.randint(0, 2)} OR {other} = {self.random.randint(0, 2)})"
        name, columns = self.table()
        own = self.random.choice(columns)
        if kind == 4:
            return f"{one} IN (SELECT q.{own} FROM {name} AS q)"
        where = f"q.{own} = {one} AND q.{self.random.choice(columns)} > {self.random.randint(0, 1)}"
        return f"{self.random.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {name} AS q WHERE {where})"


def random_tables(seed: int) -> Tables:
    """Rows of the tables: few values, so that joins and groups meet."""
    made = random.Random(seed)
    return {
        name: [[made.choice([0, 1, 2, 3, None]) for _ in columns] for _ in range(ROWS)]
        for name, columns in TABLES.items()
    }


def result_columns(sql: str, tables: Tables) -> list[Counter[object]]:
    """By column of the result, its values, in no order."""
    with sqlite3.connect(":memory:") as connection:
        for name, rows in tables.items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(TABLES[name])})")
            marks = ", ".join("?" for _ in TABLES[name])
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        cursor = connection.execute(sql)
        found: list[Counter[object]] = [Counter() for _ in cursor.description]
        for row in cursor:
            for place, value in enumerate(row):
                found[place][value] += 1
    connection.close()
    return found


def changes(sql: str, tables: Tables) -> dict[tuple[str, str], set[int]]:
    """By column of a table, the places of the columns of the result that change when one of its values does."""
    before = result_columns(sql, tables)
    found: dict[tuple[str, str], set[int]] = {}
    for name, rows in tables.items():
        for row in rows:
            for place, column in enumerate(TABLES[name]):
                kept = row[place]
                row[place] = 7 if kept is None else None if kept == 3 else kept + 1
                after = result_columns(sql, tables)
                row[place] = kept
                found.setdefault((name, column), set()).update(
                    at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other
                )
    return found
