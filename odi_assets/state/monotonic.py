"""A high-water mark never moves back by itself: only a reset may do that."""

from __future__ import annotations

from typing import Any

from odi_assets.errors import StateError
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import encode, from_json

_UNORDERED = frozenset({"null", "bool", "dict"})


def check_monotonic(before: HwmEntry | None, value: Any, kind: str) -> None:
    """Refuse a value that lies before the key's present one, or that is of another type and so cannot be compared.

    Values without an order (dicts, booleans, lists of unlike things, NaN) are accepted, and so is anything after None.
    A value that Odibi wrote without a type is read as the new value's type where its text allows it.

    Args:
        before: the key's present revision; None if it is not set.
        value: the new value.
        kind: the name of its type, as it is stored.

    Raises:
        StateError: fields key, current, value.
    """
    if before is None or before.value is None:
        return
    current = before.value
    current_kind = before.value_type
    if current_kind is None:
        current = _read_as(current, kind)
        current_kind = encode(current).type
    if current_kind != kind and not _comparable(current, current_kind, value, kind):
        raise _refused(
            before,
            value,
            f"its value {_shown(before.value)} is a {_name(before, current_kind)} and the new value {_shown(value)} "
            f"is a {kind}: the two cannot be compared",
        )
    if _lies_before(value, current, kind):
        raise _refused(before, value, f"the new value {_shown(value)} lies before its present value {_shown(current)}")


def _comparable(current: Any, current_kind: str, value: Any, kind: str) -> bool:
    if isinstance(value, list | tuple | dict):
        # Their kinds also name the types of what they hold.
        return type(current) is type(value)
    # Two datetimes with zones compare as instants, whatever the zones; a naive one compares with neither.
    return current_kind.partition("[")[0] == kind.partition("[")[0] and ("[" in current_kind) == ("[" in kind)


def _lies_before(value: Any, current: Any, kind: str) -> bool:
    if kind in _UNORDERED or isinstance(value, dict):
        return False
    try:
        return bool(value < current)
    except (TypeError, ArithmeticError):
        return False


def _read_as(current: Any, kind: str) -> Any:
    try:
        return from_json(current, kind)
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


def _name(entry: HwmEntry, kind: str) -> str:
    return entry.value_type or f"{kind} (written by Odibi, without a type)"


def _shown(value: Any) -> str:
    text = encode(value).json
    return text if len(text) <= 80 else f"{text[:80]}…"
