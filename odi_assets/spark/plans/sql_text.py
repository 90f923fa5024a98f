"""SQL of Spark's plans, as people write it."""

from __future__ import annotations

import re

from sqlglot import exp

from odi_assets.util.spark_sql import parsed


def readable_sql(sql: str) -> str:
    """A condition as people write it; as it is where it cannot be parsed.

    ``(NOT (status = 'test'))`` becomes ``status <> 'test'``, and ``(t >= (u + INTERVAL '-05' MINUTE))`` becomes
    ``t >= u - INTERVAL '5' MINUTE``.
    """
    # Suffixes of literals tell their type: 5L, 0.00BD.
    plain = re.sub(r"(?<![\w'])(\d+(?:\.\d+)?)(?:BD|[LSYDF])\b", r"\1", sql)
    expression = parsed(plain)
    if expression is None:
        return sql
    text = (
        expression.transform(_without_parentheses).transform(_simpler).sql(dialect="spark", normalize_functions=False)
    )
    return re.sub(r"^NOT (.+) IS NULL$", r"\1 IS NOT NULL", text)


def _without_parentheses(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Paren):
        inner = node.unnest()
        if not isinstance(node.parent, exp.Expr) or not isinstance(inner, exp.Binary):
            return inner
        if isinstance(node.parent, exp.Predicate) and isinstance(inner, exp.Add | exp.Sub):
            return inner
    return node


def _simpler(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Not):
        inner = node.this.unnest()
        if isinstance(inner, exp.EQ):
            return exp.NEQ(this=inner.this, expression=inner.expression)
    if isinstance(node, exp.Add) and isinstance(node.expression, exp.Interval) and _amount(node.expression) < 0:
        return exp.Sub(this=node.this, expression=_interval(node.expression))
    if isinstance(node, exp.Interval):
        return _interval(node)
    return node


def _amount(interval: exp.Interval) -> float:
    text = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else 0.0


def _interval(interval: exp.Interval) -> exp.Interval:
    amount = _amount(interval)
    if not amount:
        return interval
    return exp.Interval(this=exp.Literal.string(f"{abs(amount):g}"), unit=interval.args.get("unit"))
