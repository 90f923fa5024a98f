"""What text HWMs mean: dates and numbers that a node declares, which text alone would put in another order."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import ProjectConfig, StatefulIncrement
from odi_assets.config.models.increments import DateFormat

_DATES: dict[str, tuple[str, ...]] = {"oracle": ("%d-%b-%y", "%d-%b-%Y"), "us": ("%m/%d/%Y",), "eu": ("%d/%m/%Y",)}
_ISO = ("iso", "sql_server", "date", "timestamp", "timestamp_ntz", "timestamp_ltz")
_INTEGERS = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")
_DECIMALS = ("decimal", "dec", "numeric", "float", "real", "double")


def declared_order(config: ProjectConfig, key: str) -> str | None:
    """How the node whose HWM is ``key`` orders its cursor: the ``date_format`` of its increment, or else the type that
    ``schema`` gives the column, in small letters; None where nothing is declared, or no node has this key."""
    for pipeline in config.pipelines:
        for node in pipeline.nodes:
            if state_key(NodeKey(pipeline.pipeline, node.name), node) != key:
                continue
            for increment in node.increments.values():
                if isinstance(increment, StatefulIncrement):
                    schema = node.read.declared if node.read is not None else None
                    return increment.date_format or _column_type(schema or "", increment.column)
    return None


def _column_type(schema: str, column: str) -> str | None:
    match = re.search(rf"(?:^|,)\s*`?{re.escape(column)}`?\s*:?\s+(\w+)", schema, re.IGNORECASE)
    return match[1].lower() if match else None


def in_order(text: str, declared: str) -> Any:
    """``text`` as a value that has the declared order.

    Args:
        declared: what :func:`declared_order` gives.

    Raises:
        ValueError: it is no such value; or what is declared is text.
    """
    if declared in _INTEGERS:
        return int(text)
    if declared in _DECIMALS:
        try:
            return Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{text!r} is no number") from None
    if declared in _ISO:
        return _utc(datetime.fromisoformat(text.strip()))
    if declared in _DATES:
        return _date(text, declared)
    raise ValueError(f"{declared} has no order other than text order")


def parse_date(text: str, date_format: DateFormat) -> datetime:
    """A date, with or without a time, that is written in ``date_format``; in UTC, where the text names no zone.

    Raises:
        ValueError: it is not written so.
    """
    return _date(text, date_format) if date_format in _DATES else _utc(datetime.fromisoformat(text.strip()))


def _date(text: str, date_format: str) -> datetime:
    day, _, hours = text.strip().partition(" ")
    for pattern in _DATES[date_format]:
        try:
            parsed = datetime.strptime(day, pattern)
        except ValueError:
            continue
        if pattern.endswith("y") and parsed.year >= 2050:
            # RR: two-digit years from 50 on are of the last century (Oracle, "The RR Datetime Format Element").
            parsed = parsed.replace(year=parsed.year - 100)
        # Of an hour, one digit will do here, but not in ISO 8601.
        clock = time.fromisoformat(f"0{hours}" if hours[1:2] == ":" else hours) if hours else time()
        return _utc(datetime.combine(parsed, clock))
    raise ValueError(f"{text!r} is not written as `{date_format}` says")


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
