"""Texts of the project file as values of a cursor's type."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

INTEGERS = frozenset({"byte", "short", "integer", "long"})
"""Types of whole numbers, by the names that Delta's log and Spark's JSON schemas share."""


def cursor_value(text: str, kind: str) -> Any:
    """``text`` as a value of the type ``kind``. A time without a zone is UTC, if the type has one.

    Raises:
        ValueError: the text is no value of that type.

    Example:
        >>> cursor_value("2024-01-31", "date")
        datetime.date(2024, 1, 31)
    """
    if kind == "string":
        return text
    if kind in INTEGERS:
        return int(text)
    if kind in {"float", "double"}:
        return float(text)
    if kind.startswith("decimal"):
        try:
            return Decimal(text)
        except InvalidOperation as error:
            raise ValueError(f"{text!r} is no number") from error
    if kind == "binary":
        return base64.b64decode(text, validate=True)
    return _moment(text, kind)


def _moment(text: str, kind: str) -> date:
    moment = datetime.fromisoformat(text)
    if kind == "date":
        if moment.time() != datetime.min.time():
            raise ValueError("a date has no time")
        return moment.date()
    if kind == "timestamp_ntz":
        if moment.tzinfo is not None:
            raise ValueError("this column has no zone")
        return moment
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("in UTC it is outside the years 1 to 9999") from error
