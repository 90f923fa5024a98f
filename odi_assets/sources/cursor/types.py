"""The types that a cursor column may have, and which values in state belong to each.

Types go by the names that Delta's log and Spark's JSON schemas share: ``long``, ``decimal(20,0)``, ``timestamp`` …
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

from odi_assets.config.cursor_values import INTEGERS, cursor_value
from odi_assets.config.models import StatefulIncrement
from odi_assets.errors import IncrementError, NoCursorColumnError
from odi_assets.sources.cursor.digits import Sized, digits_of, digits_text, loses_digits, rounded
from odi_assets.state.text_order import parse_date

TypeName = Any
"""A type as Delta and Spark write it in JSON: text for simple types, a dict for nested ones."""

_EXACT = Context(prec=80)
"""More digits than any DECIMAL has: Python's default rounds to 28."""
_KINDS = {
    **dict.fromkeys(INTEGERS, "int"),
    "float": "float",
    "double": "float",
    "string": "str",
    "binary": "bytes",
    "date": "date",
    "timestamp": "datetime with a zone",
    "timestamp_ntz": "datetime without a zone",
}


def cursor_type(increment: StatefulIncrement, columns: dict[str, TypeName], label: str) -> str:
    """The type of the increment's cursor: the type of its column, or ``timestamp`` for dates written as text.

    Raises:
        IncrementError: there is no such column, its type has no order, or it does not fit ``date_format`` or the
            fallback column.
    """
    type_names = {}
    for column in filter(None, (increment.column, increment.fallback_column)):
        if column not in columns:
            raise NoCursorColumnError(
                f"{label} has no column `{column}`; it has {', '.join(columns)}",
                fix="correct `incremental.column` in the project file; if the column was renamed, odi state adopt "
                "NODE goes on with the mark then",
                column=column,
            )
        type_names[column] = _usable(increment, column, columns[column], label)
    kinds = {kind_of(name) for name in type_names.values()}
    if len(kinds) > 1:
        shown = " and ".join(f"`{column}` is {name}" for column, name in type_names.items())
        raise IncrementError(
            f"{label}: {shown}, and a cursor and its fallback have to be of one type",
            fix="choose a `fallback_column` of the type of `column`",
            column=increment.column,
        )
    name = type_names[increment.column]
    if increment.date_format is not None or increment.fallback_column in (None, increment.column):
        return name
    return Sized(name, [digits for each in type_names.values() for digits in digits_of(each)])


def _usable(increment: StatefulIncrement, column: str, name: TypeName, label: str) -> str:
    if increment.date_format is not None:
        if name != "string":
            raise IncrementError(
                f"`date_format` is for dates written as text, and `{column}` of {label} is {_shown(name)}",
                fix="leave `date_format` out"
                if column == increment.column
                else "choose a `fallback_column` of dates written as text, or leave it out",
                column=column,
            )
        return "timestamp"
    if not isinstance(name, str) or kind_of(name) is None:
        raise IncrementError(
            f"`{column}` of {label} is {_shown(name)}, and no cursor: it does not put rows in an order",
            fix="choose a column of numbers, text, bytes, dates or times",
            column=column,
        )
    return name


def kind_of(name: str) -> str | None:
    """The name in state of a type's values; None if the type cannot be a cursor."""
    return "decimal" if name.startswith("decimal") else _KINDS.get(name)


def kind_of_value(value: Any) -> str:
    """The name in state of a value's type."""
    if isinstance(value, datetime):
        return "datetime with a zone" if value.tzinfo else "datetime without a zone"
    if isinstance(value, Decimal):
        return "decimal"
    return "NULL" if value is None else type(value).__name__


def fitting(
    hwm: Any,
    name: str,
    increment: StatefulIncrement,
    label: str,
    *,
    typed: bool = True,
    digits: Sequence[int | None] | None = None,
) -> Any:
    """The HWM as a value of the cursor's type.

    Args:
        typed: False for an HWM that another tool stored without a type: its text is read as the cursor's type.
        digits: how much of its values the cursor kept when the HWM was set (see :func:`digits_of`); None if not known.

    Raises:
        IncrementError: it is of another type, or the values of the cursor were rounded or cut off since. Its field
            ``hwm`` is the value of the cursor's type that means the same; None if there is none.
    """
    if hwm is None:
        return None
    wanted = kind_of(name)
    _require_not_rounded(hwm, name, digits or (), increment, label)
    if increment.date_format is not None and isinstance(hwm, str):
        return _dated(hwm, increment, label)
    if not typed and wanted != kind_of_value(hwm) and isinstance(hwm, str | int | float):
        return parse(str(hwm), name, increment, label)
    if wanted != kind_of_value(hwm):
        same = _of_kind(hwm, str(wanted))
        zone = ", and its times are UTC," if "zone" in kind_of_value(hwm) else ","
        way = "" if same is None else f"{zone} set the HWM to the same value of the new type (odi state set); or"
        raise IncrementError(
            f"the cursor `{increment.column}` of {label} is {name} now ({wanted}), "
            f"and its HWM {hwm!r} is {kind_of_value(hwm)}",
            fix=f"if the column was changed on purpose{way or ','} load everything again with odi run --full-refresh",
            column=increment.column,
            hwm=same,
        )
    return hwm


def _require_not_rounded(
    hwm: Any, name: str, digits: Sequence[int | None], increment: StatefulIncrement, label: str
) -> None:
    was, kind = kind_of_value(hwm), str(kind_of(name))
    columns = (increment.column, increment.fallback_column)
    for column, before, kept in zip(columns, digits, digits_of(name), strict=False):
        if before is None or not loses_digits(was, before, kind, kept):
            continue
        same = rounded(hwm, kind, kept or 0)
        how = "cut it off" if kind == "str" else "rounded half up"
        raise IncrementError(
            f"the cursor `{column}` of {label} keeps less of its values than when its HWM {hwm} was set: "
            f"{digits_text(kind, kept or 0)} now, {digits_text(was, before)} then. They were rounded or cut off, so "
            "the HWM does not say any more which rows are loaded",
            fix="load everything again with odi run --full-refresh; or count all rows up to what the newest loaded row "
            f"has now as loaded, which is {same} if the database {how} (odi state set); or put the column back, values "
            "included",
            column=column,
            hwm=same,
        )


def kept_of(types: Mapping[str, TypeName | None], names: Collection[str]) -> dict[str, Any]:
    """By column, the kind of its values, and how much of them it keeps; None if that is not known. JSON-ready.

    Args:
        names: of the columns, in lower case.
    """
    found = {name: kind for name, kind in types.items() if name.casefold() in names and isinstance(kind, str)}
    return {name: [kind_of(kind), digits_of(kind)[0]] for name, kind in found.items()}


def require_kept(then: Mapping[str, Any], now: Mapping[str, Any], label: str, *, of_files: bool = False) -> None:
    """Raises IncrementError if values that rows are known by are other ones now than when rows were loaded: they were
    rounded or cut off, or texts that are made of them look otherwise.

    Args:
        then, now: as :func:`kept_of` gives them, and behind that how texts of a column's values look, if any are made.
        of_files: each file has types of its own.
    """
    again = "load everything again with odi run --full-refresh"
    for name, (was, before, *look_then) in then.items():
        kind, kept, *look = now.get(name, (None, None))
        if before is not None and kind is not None and loses_digits(was, before, kind, kept):
            text = f"by `{name}`, which keeps less of its values than when they were loaded: "
            text += f"{digits_text(kind, kept or 0)} now, {digits_text(was, before)} then"
            way = f"{again}; or put the column back, values included"
        elif look and look_then and look != look_then:
            text = (
                f"by what is made of `{name}`, which was {look_then[0]} when they were loaded and is {look[0]} now, so "
            )
            text += "a text of the same value may be another one"
            way = f"{again}; or put the type of the column back"
            if of_files:
                way = (
                    f"name the columns in `read.schema`, `{name}` with a type that holds the values of all files, and "
                )
                way += f"{again}; or land the files with the type of before"
        else:
            continue
        raise IncrementError(
            f"rows of {label} are known {text}. A row that is read again would be taken for another one",
            fix=way,
            column=name,
        )


def _of_kind(value: Any, kind: str) -> Any:
    """The value of another type that stands for the same place in the order of rows; None if there is none."""
    if isinstance(value, date) and kind.startswith("datetime"):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        if kind == "datetime with a zone":
            return moment.replace(tzinfo=UTC)
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    makes = {"int": int, "float": float, "decimal": Decimal}.get(kind)
    if makes is None or not isinstance(value, int | float | Decimal):
        return None
    made = makes(value)
    return made if made == value else None


def _dated(text: str, increment: StatefulIncrement, label: str) -> datetime:
    """An HWM as Odibi keeps it for a column of dates as text, or as somebody set it by hand."""
    try:
        return parse_date(text, increment.date_format or "iso")
    except ValueError as error:
        raise IncrementError(
            f"the HWM {text!r} of the cursor `{increment.column}` of {label} is not written as its `date_format` "
            f"`{increment.date_format}` says",
            fix="set the HWM to a time (odi state set … --type datetime), or load everything again with odi run "
            "--full-refresh",
            column=increment.column,
        ) from error


def parse(text: str, name: str, increment: StatefulIncrement, label: str) -> Any:
    """A text of the project file as a value of the type ``name``. A time without a zone is UTC, if the type has one.

    Raises:
        IncrementError: the text is no value of that type.
    """
    try:
        return cursor_value(text, name)
    except ValueError as error:
        raise IncrementError(
            f"{text!r} is no value of the cursor `{increment.column}` of {label}, which is {name}",
            fix=f"write a {kind_of(name)}, as in {_EXAMPLES.get(str(kind_of(name)), '1000')}",
            column=increment.column,
        ) from error


_EXAMPLES = {
    "date": "2024-01-31",
    "datetime with a zone": "2024-01-31T05:00:00Z",
    "datetime without a zone": "2024-01-31T05:00:00",
    "bytes": "AAAAAAAAB9E= (base64)",
    "float": "1.5",
    "decimal": "1.5",
}


def less_lag(value: Any, lag: timedelta | int | float | Decimal | None) -> Any:
    """``value`` minus the lag; None if that is before all values. From dates, whole days are subtracted.

    Raises:
        TypeError: the lag cannot be subtracted from a cursor of this type.
    """
    if value is None or not lag:
        return value
    try:
        if isinstance(lag, timedelta):
            if isinstance(value, date) and not isinstance(value, datetime):
                return value - timedelta(days=math.ceil(lag / timedelta(days=1)))
            return value - lag
        if isinstance(value, int):
            return value - math.ceil(lag)
        return value - float(lag) if isinstance(value, float) else _EXACT.subtract(value, Decimal(str(lag)))
    except OverflowError:
        return None


def _shown(name: TypeName) -> str:
    return name if isinstance(name, str) else str(name.get("type", name))
