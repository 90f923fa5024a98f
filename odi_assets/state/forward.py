"""A high-water mark never moves back by itself: only a reset may do that."""

from __future__ import annotations

from typing import Any

from odi_assets.errors import StateError
from odi_assets.state import values
from odi_assets.state.records import HwmEntry

_UNORDERED = frozenset({"null", "bool", "dict"})


def check_forward(before: HwmEntry | None, value: Any) -> None:
    """Refuse a value that lies before the key's present one, or that is of another type and so cannot be compared.

    Values without an order (dicts, booleans, lists of unlike things, NaN) are accepted, and so is anything after None.
    A value that Odibi wrote without a type is read as the new value's type where its text allows it.

    Raises:
        StateError: fields key, current, value.
    """
    if before is None or before.value is None:
        return
    current = before.value
    if not _same_type(current, value) and before.value_type is None:
        current = _read_as(current, value)
    if not _same_type(current, value):
        raise _refused(
            before,
            value,
            f"its value {_shown(before.value)} is a {_name(before)} and the new value {_shown(value)} is a "
            f"{values.encode(value).type}: the two cannot be compared",
        )
    if _lies_before(value, current):
        raise _refused(before, value, f"the new value {_shown(value)} lies before its present value {_shown(current)}")


def _same_type(current: Any, value: Any) -> bool:
    kind, other = values.encode(current).type, values.encode(value).type
    if kind == other:
        return True
    if {type(current), type(value)} <= {list, tuple} or {type(current), type(value)} == {dict}:
        return type(current) is type(value)
    # Two datetimes with zones compare as instants, whatever the zones; a naive one compares with neither.
    return kind.partition("[")[0] == other.partition("[")[0] and ("[" in kind) == ("[" in other)


def _lies_before(value: Any, current: Any) -> bool:
    if values.encode(current).type in _UNORDERED or isinstance(current, dict):
        return False
    try:
        return bool(value < current)
    except (TypeError, ArithmeticError):
        return False


def _read_as(current: Any, value: Any) -> Any:
    kind = values.encode(value).type
    try:
        return values.from_json(current, kind)
    except StateError:
        return current


def _refused(before: HwmEntry, value: Any, why: str) -> StateError:
    return StateError(
        f"the high-water mark `{before.key}` stays where it is: {why}",
        fix=f"if it is meant to move there, reset it: reset_hwm({before.key!r}, …), or `odi state reset {before.key}`",
        key=before.key,
        current=before.value,
        value=value,
    )


def _name(entry: HwmEntry) -> str:
    return entry.value_type or f"{values.encode(entry.value).type} (written by Odibi, without a type)"


def _shown(value: Any) -> str:
    text = values.encode(value).json
    return text if len(text) <= 80 else f"{text[:80]}…"
