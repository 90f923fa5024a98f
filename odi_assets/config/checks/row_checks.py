"""Checks of rows that cannot be made: columns that are not there, conditions and queries that Spark cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odi_assets.config.checks.sql import find_mistake
from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.compared_values import TIMES, Exact, exact, is_reversed, sql_type
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about, closest
from odi_assets.config.known_columns import KnownColumns, columns_written
from odi_assets.config.models.checks import FAILED_CHECKS, CheckConfig
from odi_assets.util.lazy import exp
from odi_assets.util.spark_sql import parsed


def wrong_checks(project: ProjectView) -> Iterator[Mistake]:
    """Find checks that no run could make."""
    for node in project.nodes:
        if not node.config.checks:
            continue
        columns = columns_written(node.config, project.root)
        if node.config.quarantine is not None and columns is not None and columns.has(FAILED_CHECKS):
            text = f"needs a column `{FAILED_CHECKS}` of odi's own, and the node's rows have one: rename it"
            yield Mistake(text, at=(*node.path, "quarantine"))
        for index, check in enumerate(node.config.checks):
            at = (*node.path, "checks", index)
            yield from _of_sql(check, at)
            if columns is not None:
                yield from _of_columns(check, columns, at)
                yield from _of_bounds(check, columns, at)
            yield from _of_reference(project, node, check, at)


def _of_sql(check: CheckConfig, at: Path) -> Iterator[Mistake]:
    if check.sql is not None and (mistake := find_mistake(check.sql)) is not None:
        yield replace(mistake, at=(*at, "sql"))
    if check.expression is not None:
        at = (*at, "expression")
        where = f"SELECT * FROM df WHERE ({check.expression}\n)"
        mistake = find_mistake(where) or find_mistake(f"SELECT {check.expression}\nFROM df")
        if mistake is not None:
            text = f"is no condition in Spark SQL: {mistake.message.replace('the query', 'it')}"
            yield Mistake(text, plain="is no condition in Spark SQL", at=at)
        elif (why := _no_condition(check.expression)) is not None:
            yield Mistake(f"is no condition: {why}", at=at)


def _no_condition(expression: str) -> str | None:
    """Why an expression is no condition of a row, as far as its words alone tell."""
    tree = parsed(f"SELECT {expression}\n")
    if not isinstance(tree, exp.Select) or not tree.expressions:
        return None
    if len(tree.expressions) > 1 or isinstance(tree.expressions[0], exp.Tuple):
        return "it is several expressions; join them with AND, or make a check of each"
    if any(value for key, value in tree.args.items() if key != "expressions"):
        return "it goes on with a clause of a query; write a query as `sql`"
    top = tree.expressions[0]
    if isinstance(top, exp.Alias):
        return f"it gives a name, `{top.alias}`: leave the name out"
    more_rows = (exp.Window, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
    if len(list(tree.find_all(exp.Select))) == 1 and tree.find(*more_rows) is not None:
        return "it looks at more rows than one; write a query as `sql`"
    literal = isinstance(top.unnest(), exp.Literal | exp.Neg | exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod)
    return "it is neither true nor false: compare it with a value" if literal else None


def _of_columns(check: CheckConfig, columns: KnownColumns, at: Path) -> Iterator[Mistake]:
    for kind in ("not_null", "unique"):
        for name in getattr(check, kind) or ():
            yield from _missing(name, columns, (*at, kind))
    for kind in ("accepted_values", "range", "references", "freshness"):
        settings = getattr(check, kind)
        if settings is not None:
            yield from _missing(settings.column, columns, (*at, kind, "column"))
    if check.freshness is not None:
        kind = columns.kind(check.freshness.column) or "timestamp"
        if kind not in TIMES:
            text = f"is {kind}, and freshness is measured by a date or a time"
            yield about(check.freshness.column, text, at=(*at, "freshness", "column"))
    if check.expression is not None:
        at = (*at, "expression")
        for name in _names_in(check.expression):
            yield from _missing(name, columns, at)
        kind = columns.kind(check.expression.strip().strip("`")) or "boolean"
        if kind != "boolean":
            yield Mistake(f"is no condition: the column is {sql_type(kind)}; compare it with a value", at=at)


def _of_bounds(check: CheckConfig, columns: KnownColumns, at: Path) -> Iterator[Mistake]:
    """Values of checks that no value of the column could be compared with."""
    settings = check.range or check.accepted_values
    kind = None if settings is None else columns.kind(settings.column)
    if settings is None or kind is None:
        return
    bounds: dict[str | int, Exact] = {}
    at = (*at, "range") if check.range is not None else (*at, "accepted_values", "values")
    for key, value in check.compared:
        try:
            bounds[key] = exact(value, kind, ordered=check.range is not None)
        except ValueError as error:
            what = f"cannot be compared with `{settings.column}`, which is {sql_type(kind)}: {error}"
            yield about(value, what, at=(*at, key))
    if check.range is not None and is_reversed(bounds.get("min"), bounds.get("max")):
        yield about(check.range.max, f"is less than `min`, which is {check.range.min}", at=(*at, "max"))


def _names_in(expression: str) -> list[str]:
    """The columns of a condition; none where it is not certain that a name is a column."""
    tree = parsed(f"SELECT {expression}\n")
    if not isinstance(tree, exp.Select) or tree.find(exp.Lambda, exp.Subquery) is not None:
        return []
    return [column.name for column in tree.find_all(exp.Column) if len(column.parts) == 1 and not column.is_star]


def _of_reference(project: ProjectView, node: NodeView, check: CheckConfig, at: Path) -> Iterator[Mistake]:
    if check.references is None:
        return
    other = project.find(node, check.references.node)
    columns = columns_written(other.config, project.root) if other is not None else None
    if other is None or columns is None or other.config.apply is not None:
        return
    if check.references.key is not None:
        yield from _missing(check.references.key, columns, (*at, "references", "key"), f"`{other.shown}`")
    elif not columns.has(check.references.column):
        text = f"is no column of `{other.shown}`: say with `key` which column it is looked up in"
        yield about(check.references.column, text, at=(*at, "references", "column"))


def _missing(name: str, columns: KnownColumns, at: Path, whose: str = "the node's rows") -> Iterator[Mistake]:
    if name and not columns.has(name):
        listed = ", ".join(columns.names)
        yield about(name, f"is no column of {whose}: {listed}", at=at, suggestion=closest(name, columns.names))
