"""What the columns of a query are made of, read from its text without Spark.

It knows what Spark's grammar has; at anything else it says that it does not follow, and never leaves a part out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from odi_assets.lineage.clauses import ALL, all_columns, grouped_by, ordered_by
from odi_assets.lineage.expressions import ExpressionReader, Scope, is_generator, windows_of_time
from odi_assets.lineage.made import NONE, NOTHING, Made, NotFollowed, Origins, Rows, Unlisted, Views
from odi_assets.util.lazy import exp
from odi_assets.util.spark_sql import parsed

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_OF_SELECT = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "windows", "distinct"}
    | {"order", "sort", "cluster", "distribute", "limit", "offset", "with_", "hint"}
)
_OF_SET = frozenset({"this", "expression", "distinct", "by_name", "with_", "order", "limit", "offset", "sort"})
_OF_SUBQUERY = frozenset({"this", "alias", "with_", "order", "sort", "limit", "offset", "sample"})
_OF_TABLE = frozenset({"this", "alias", "sample", "hints"})
_OF_JOIN = frozenset({"this", "side", "kind", "on", "using", "method", "hint"})
_HIDDEN = frozenset({"SEMI", "ANTI"})
_DEPTH = 60


@lru_cache(maxsize=4096)
def query_rows(sql: str, views: tuple[tuple[str, tuple[str, ...] | None], ...]) -> Rows:
    """What a query gives, over the columns of its views.

    Args:
        views: by name, their columns; None for one whose columns are not known.

    Raises:
        NotFollowed: it cannot be read from the text.

    Example:
        >>> query_rows("SELECT a AS c FROM t", (("t", None),)).columns
        (('c', Made(values=frozenset({Origin(view='t', column='a')}), conditions=frozenset())),)
    """
    query = parsed(sql)
    if query is None:
        raise NotFollowed("its SQL is not understood without Spark")
    try:
        return _Reader(Views(dict(views)), sql).rows(query, _Names({}), None)
    except RecursionError:
        raise NotFollowed("its SQL is nested too deeply") from None


class _Names:
    """The queries that WITH has named, each with the names that it sees itself; read when they are used."""

    def __init__(self, named: Mapping[str, tuple[Any, _Names]], depth: int = 0) -> None:
        self.named = named
        self.depth = depth
        self._rows: dict[str, Rows] = {}

    def with_named(self, query: Expr) -> _Names:
        """These names, and the names of the query's own WITH."""
        clause = query.args.get("with_")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise NotFollowed("it has a recursive WITH")
        inside = self
        for definition in clause.expressions:
            inside = _Names({**inside.named, definition.alias.casefold(): (definition, inside)}, inside.depth + 1)
        return inside

    def rows(self, name: str, reader: _Reader) -> Rows | None:
        """What a named query gives; None if there is none of that name."""
        folded = name.casefold()
        if folded not in self.named:
            return None
        if folded not in self._rows:
            definition, inside = self.named[folded]
            self._rows[folded] = reader.rows(definition.this, inside, None).renamed(_alias_columns(definition))
        return self._rows[folded]


class _Reader:
    """Reads one statement.

    Args:
        views: what it may read.
    """

    def __init__(self, views: Views, sql: str) -> None:
        self._views = views
        self._depth = 0
        self._names = _Names({})
        self._expressions = ExpressionReader(lambda query, scope: self.rows(query, self._names, scope), sql)

    def rows(self, query: Expr, names: _Names, outer: Scope | None) -> Rows:
        """What a query gives.

        Args:
            outer: the scope around a subquery, to which it may refer.
        """
        before, self._names = self._names, names.with_named(query)
        self._depth += 1
        try:
            if self._depth > _DEPTH:
                raise NotFollowed("its SQL is nested too deeply")
            if isinstance(query, exp.Select):
                return _Select(self, query, outer).rows()
            if isinstance(query, exp.SetOperation):
                return self._set(query, outer)
            if isinstance(query, exp.Subquery):
                _require(query, _OF_SUBQUERY)
                inner = self.rows(query.this, self._names, outer)
                return self._ordered(query, inner).renamed(_alias_columns(query))
            if isinstance(query, exp.Values):
                return self._values(query, outer)
            if isinstance(query, exp.Table):
                return self.table(query, Scope(outer))
            raise NotFollowed(f"it has {_word(query)}")
        finally:
            self._names = before
            self._depth -= 1

    @property
    def expressions(self) -> ExpressionReader:
        return self._expressions

    # -- queries of queries

    def _set(self, query: Any, outer: Scope | None) -> Rows:
        _require(query, _OF_SET)
        left, right = (self.rows(side, self._names, outer) for side in (query.this, query.expression))
        if left.unlisted is not None or right.unlisted is not None:
            raise NotFollowed("it puts rows together whose columns are not known")
        pairs = list(_by_name(left, right) if query.args.get("by_name") else _by_place(left, right))
        decided = left.decided | right.decided
        if isinstance(query, exp.Union):
            columns = tuple((name, Made.of([left_made, right_made])) for name, left_made, right_made in pairs)
        else:
            columns = tuple((name, left_made) for name, left_made, _ in pairs)
            decided |= NONE.union(*(made.all for _, made in right.columns))
        if not (isinstance(query, exp.Union) and query.args.get("distinct") is False):
            decided |= NONE.union(*(made.all for _, made in columns))
        return self._ordered(query, Rows(columns, decided))

    def _ordered(self, query: Any, rows: Rows) -> Rows:
        """``rows`` behind the ORDER BY of what is no SELECT."""
        scope = Scope(relations={"": rows})
        origins = ordered_by(query, rows, lambda node: self._expressions.made(node, scope))
        return replace(rows, decided=rows.decided | origins)

    def _values(self, query: Any, outer: Scope | None) -> Rows:
        names = _alias_columns(query)
        scope = Scope(outer)
        lines = [line.expressions if isinstance(line, exp.Tuple) else [line] for line in query.expressions]
        width = len(lines[0]) if lines else 0
        if names and len(names) != width:
            raise NotFollowed("the columns of its VALUES are not known")
        cells = [Made.of(self._expressions.made(line[index], scope) for line in lines) for index in range(width)]
        return Rows(tuple(zip(names or [f"col{index + 1}" for index in range(width)], cells, strict=True)))

    # -- what a FROM reads

    def table(self, item: Any, scope: Scope) -> Rows:
        """The rows of an item of a FROM."""
        if isinstance(item, exp.Lateral):
            return self._lateral(item, scope)
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table):
            raise NotFollowed("it has a join in brackets")
        if isinstance(item, exp.Query):
            # What a subquery of FROM sees of the FROM itself, LATERAL says.
            return self.rows(item, self._names, scope.outer)
        if isinstance(item, exp.Values):
            return self._values(item, scope)
        if not isinstance(item, exp.Table):
            raise NotFollowed(f"it reads {_word(item)}")
        if not isinstance(item.this, exp.Identifier):
            return self._function(item.this, _alias_columns(item), scope)
        rows = None
        if not item.db:
            rows = self._names.rows(item.name, self)
            if rows is None:
                rows = self._views.rows(item.name)
        if rows is None:
            raise NotFollowed(f"it reads `{item.sql(dialect='spark')}`, which is none of its inputs")
        _require(item, _OF_TABLE)
        return rows.renamed(_alias_columns(item))

    def _lateral(self, item: Any, scope: Scope) -> Rows:
        if isinstance(item.this, exp.Subquery):
            return self.rows(item.this, self._names, scope).renamed(_alias_columns(item))
        return self._function(item.this, _alias_columns(item), scope)

    def _function(self, call: Any, names: tuple[str, ...], scope: Scope) -> Rows:
        """The rows that a function makes: which there are, and what is in them, its arguments say."""
        made = self._expressions.made(call, scope)
        if not names and isinstance(call, exp.Anonymous) and str(call.this).casefold() == "range":
            names = ("id",)
        if not names:
            raise NotFollowed(f"the columns that {_word(call)} makes have no names: name them, as in `AS t(a, b)`")
        if not is_generator(call) and not (isinstance(call, exp.Anonymous) and str(call.this).casefold() == "range"):
            raise NotFollowed(f"it reads {_word(call)}")
        return Rows(tuple((name, made) for name in names), made.all)


class _Select:
    """Reads one SELECT."""

    def __init__(self, reader: _Reader, query: Any, outer: Scope | None) -> None:
        _require(query, _OF_SELECT)
        self._reader = reader
        self._query = query
        self._scope = Scope(outer)
        self._decided: Origins = NONE
        self._columns: list[tuple[str, Made]] = []
        self._places: list[tuple[Any, Made]] = []
        self._unlisted: Unlisted | None = None

    def rows(self) -> Rows:
        query = self._query
        self._read_from()
        self._read_windows()
        self._decide(query.args.get("where"))
        group = query.args.get("group")
        self._scope.grouped_time = self._time_of(group)
        for item in query.expressions:
            self._read_item(item)
        self._group(group)
        after = self._after()
        for key in ("having", "qualify"):
            clause = query.args.get(key)
            self._decided |= self._made(clause.this, after).all if clause is not None else NONE
        listed = Rows(tuple(self._columns), unlisted=self._unlisted)
        has_all = self._scope.lists(ALL)
        self._decided |= ordered_by(query, listed, lambda node: self._made(node, after), has_all=has_all)
        if query.args.get("distinct"):
            self._decided |= all_columns(listed, "DISTINCT")
        return replace(listed, decided=self._decided)

    def _made(self, node: Any, scope: Scope | None = None) -> Made:
        return self._reader.expressions.made(node, scope or self._scope)

    def _decide(self, clause: Any) -> None:
        if clause is not None:
            self._decided |= self._made(clause.this).all

    def _after(self) -> Scope:
        """The scope of what comes after the list of columns: it sees these first."""
        outputs: dict[str, Made] = {}
        for name, made in self._columns:
            outputs.setdefault(name.casefold(), made)
        return replace(self._scope, outputs=outputs)

    # -- FROM

    def _read_from(self) -> None:
        from_ = self._query.args.get("from_")
        if from_ is not None:
            name, rows = self._add(from_.this)
            self._show(name, rows)
        for join in self._query.args.get("joins") or ():
            self._join(join)
        for lateral in self._query.args.get("laterals") or ():
            name, rows = self._add(lateral)
            self._show(name, rows)

    def _add(self, item: Any) -> tuple[str, Rows]:
        rows = self._reader.table(item, self._scope)
        # Without a name of its own, its columns are there all the same.
        name = item.alias_or_name.casefold() or f"({len(self._scope.relations)})"
        if name in self._scope.relations:
            raise NotFollowed(f"it reads two tables under the name `{name}`")
        self._decided |= rows.decided
        return name, rows

    def _show(self, name: str, rows: Rows) -> None:
        self._scope.relations[name] = rows
        self._scope.star += list(rows.columns)
        if rows.unlisted is not None:
            self._scope.star.append(Rows((), unlisted=rows.unlisted))

    def _join(self, join: Any) -> None:
        _require(join, _OF_JOIN)
        scope, kind, side = (
            self._scope,
            str(join.args.get("kind") or "").upper(),
            str(join.args.get("side") or "").upper(),
        )
        name, rows = self._add(join.this)
        if str(join.args.get("method") or "").upper() not in ("", "NATURAL"):
            raise NotFollowed(f"it has a {join.args['method']} join")
        keys = [column.name for column in join.args.get("using") or ()]
        if join.args.get("method"):
            keys = self._shared(rows)
        merged = {self._spelled(key, rows, side): self._merged(key, rows, side) for key in keys}
        hidden, merged_before = kind in _HIDDEN, dict(scope.merged)
        before = (dict(scope.relations), list(scope.star))
        self._show(name, rows)
        if join.args.get("on") is not None:
            self._decided |= self._made(join.args["on"]).all
        if hidden:
            scope.relations, scope.star = before
            scope.merged = merged_before
        elif keys:
            folded = {key.casefold() for key in keys}
            rest = [entry for entry in scope.star if isinstance(entry, Rows) or entry[0].casefold() not in folded]
            if any(isinstance(entry, Rows) for entry in rest):
                rest = [_without(entry, folded) if isinstance(entry, Rows) else entry for entry in rest]
            scope.star = [*merged.items(), *rest]
            scope.merged |= {key.casefold(): made for key, made in merged.items()}

    def _shared(self, rows: Rows) -> list[str]:
        """The columns of a natural join."""
        if rows.unlisted is not None:
            raise NotFollowed("it has a natural join with a table whose columns are not known")
        own = {name.casefold() for name, _ in self._scope.everything()}
        return [name for name, _ in rows.columns if name.casefold() in own]

    def _spelled(self, key: str, rows: Rows, side: str) -> str:
        """The name that ``*`` gives to a column of USING: as the side has it of which all rows are there."""
        entries = [rows] if side == "RIGHT" else self._scope.star
        columns = (entry.columns if isinstance(entry, Rows) else [entry] for entry in entries)
        names = (name for group in columns for name, _ in group)
        return next((name for name in names if name.casefold() == key.casefold()), key)

    def _merged(self, key: str, rows: Rows, side: str) -> Made:
        left, right = self._scope.of_source(key), rows.column(key)
        if left is None or right is None:
            raise NotFollowed(f"`{key}` is not in both tables of a join")
        self._decided |= left.all | right.all
        return right if side == "RIGHT" else Made.of([left, right]) if side == "FULL" else left

    # -- WINDOW and GROUP BY

    def _read_windows(self) -> None:
        for window in self._query.args.get("windows") or ():
            self._scope.named_windows[window.name.casefold()] = self._reader.expressions.window(window, self._scope)

    def _time_of(self, group: Any) -> Made | None:
        nodes = [*self._query.expressions, *([group] if group is not None else [])]
        calls = list(windows_of_time(nodes))
        return Made.of(self._made(call) for call in calls) if calls else None

    def _group(self, group: Any) -> None:
        if group is None:
            return
        listed = Rows(tuple(self._columns), unlisted=self._unlisted)
        if group.args.get("all"):
            if self._unlisted is not None:
                all_columns(listed, "GROUP BY ALL")
            items = [made for item, made in self._places if item.find(exp.AggFunc) is None]
            self._decided |= NONE.union(*(made.all for made in items))
        # A name means a column of what is read, or else an expression of the list.
        self._decided |= grouped_by(group, listed, self._made)

    # -- the list of columns

    def _read_item(self, item: Any) -> None:
        inner = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
        if item.is_star and not isinstance(item, exp.Alias):
            self._read_star(item)
            return
        made = self._made(inner)
        self._places.append((inner, made))
        if is_generator(inner):
            self._decided |= made.all
            if inner is item:
                raise NotFollowed(f"the columns that {_word(inner)} makes have no names: name them with AS")
        elif inner.find(exp.Explode, exp.Posexplode, exp.Inline) is not None:
            raise NotFollowed("a function that makes several rows stands within an expression")
        names = [alias.name for alias in item.expressions] if isinstance(item, exp.Aliases) else [_name(item)]
        for name in names:
            self._columns.append((name, made))
            self._scope.aliases.setdefault(name.casefold(), made)

    def _read_star(self, item: Any) -> None:
        of = ".".join(part.name for part in item.parts[:-1]) if isinstance(item, exp.Column) else ""
        star = item.this if isinstance(item, exp.Column) else item
        if {key for key, value in star.args.items() if value} - {"except_", "replace"}:
            raise NotFollowed("its `*` renames columns")
        without = {column.name.casefold() for column in star.args.get("except_") or ()}
        replacements = {
            replacement.alias.casefold(): self._made(replacement.this) for replacement in star.args.get("replace") or ()
        }
        entries: list[tuple[str, Made] | Rows] = [self._scope.relation(of)] if of else self._scope.star
        for entry in entries:
            columns = [entry] if isinstance(entry, tuple) else entry.columns
            for name, made in columns:
                if name.casefold() not in without:
                    self._columns.append((name, replacements.get(name.casefold(), made)))
                    self._places.append((exp.column(name), made))
            if isinstance(entry, Rows) and entry.unlisted is not None:
                if self._unlisted is not None or replacements:
                    raise NotFollowed("its `*` stands for columns that are not known")
                self._unlisted = replace(entry.unlisted, without=entry.unlisted.without | without)


def _by_place(left: Rows, right: Rows) -> Iterator[tuple[str, Made, Made]]:
    if len(left.columns) != len(right.columns):
        raise NotFollowed("it puts rows together that have not as many columns")
    for (name, left_made), (_, right_made) in zip(left.columns, right.columns, strict=True):
        yield name, left_made, right_made


def _by_name(left: Rows, right: Rows) -> Iterator[tuple[str, Made, Made]]:
    for name, made in left.columns:
        yield name, made, right.column(name) or NOTHING
    for name, made in right.columns:
        if left.column(name) is None:
            yield name, NOTHING, made


def _without(rows: Rows, names: set[str]) -> Rows:
    assert rows.unlisted is not None
    return Rows((), unlisted=replace(rows.unlisted, without=rows.unlisted.without | names))


def _alias_columns(item: Any) -> tuple[str, ...]:
    alias = item.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()


def _name(item: Any) -> str:
    """The name that Spark gives to a column of a list."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column):
        return str(item.this.name)
    if isinstance(item, exp.Column):
        return str(item.name)
    if isinstance(item, exp.Dot):
        return str(item.expression.name)
    if isinstance(item, exp.Anonymous) and str(item.this).casefold() in ("window", "session_window"):
        return str(item.this).casefold()
    return str(item.sql(dialect="spark"))


def _require(node: Any, known: frozenset[str]) -> None:
    """Raises NotFollowed if a part of the syntax tree is not known here."""
    for key, value in node.args.items():
        if value and key not in known:
            raise NotFollowed(f"it has {key.strip('_').upper().replace('_', ' ')}")


def _word(node: Any) -> str:
    text = " ".join(str(node.sql(dialect="spark")).split())
    return f"`{text if len(text) <= 60 else text[:57] + '…'}`"
