"""A high-water mark never moves back by itself: only a reset may do that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odi_assets.errors import StateError
from odi_assets.state.records import HwmEntry
from odi_assets.state.text_order import in_order
from odi_assets.state.values import encode, from_json

_UNORDERED = frozenset({"null", "bool", "dict"})


TextOrder = Callable[[str], str | None]
"""Returns for a key how its node declares the order of a text HWM (see ``text_order``); None if it does not."""


def undeclared(_key: str) -> None:
    """The order of text HWMs where no project declares one."""


def check_monotonic(before: HwmEntry | None, value: Any, kind: str, text_order: TextOrder = undeclared) -> None:
    """Refuse a value that lies before the key's present one, or that is of another type and so cannot be compared.

    Values without an order (dicts, booleans, lists of unlike things, NaN) are accepted, and so is anything after None.
    A value that Odibi wrote without a type is read as the new value's type where its text allows it. Two texts are
    compared as the dates or numbers that the key's node declares, or else as text.

    Args:
        before: the key's present revision; None if it is not set.
        value: the new value.
        kind: the name of its type, as it is stored.
        text_order: what the nodes of the project declare.

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
    if isinstance(value, str) and isinstance(current, str):
        _check_text(before, value, current, text_order(before.key))
    elif _lies_before(value, current, kind):
        raise _refused(before, value, f"the new value {_shown(value)} lies before its present value {_shown(current)}")


def _check_text(before: HwmEntry, value: str, current: str, declared: str | None) -> None:
    try:
        back = declared is not None and in_order(value, declared) < in_order(current, declared)
    except ValueError:
        declared = None
    if declared is None:
        back = value < current
    if not back:
        return
    order = f"as `{declared}`" if declared else "in text order"
    why = f"the new value {_shown(value)} lies before its present value {_shown(current)} {order}"
    hint = "if these are numbers or dates, reset it once to a number or a date instead of text, or give the increment "
    hint += "of the key's node a `date_format`; "
    raise _refused(before, value, why, "" if declared else hint)


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


def _refused(before: HwmEntry, value: Any, why: str, hint: str = "") -> StateError:
    return StateError(
        f"the high-water mark `{before.key}` stays where it is: {why}",
        fix=f"{hint}if it is meant to move there, reset it: reset_hwm({before.key!r}, …), "
        f"or `odi state reset {before.key}`",
        key=before.key,
        current=before.value,
        value=value,
    )


def _name(entry: HwmEntry, kind: str) -> str:
    return entry.value_type or f"{kind} (written by Odibi, without a type)"


def _shown(value: Any) -> str:
    text = encode(value).json
    return text if len(text) <= 80 else f"{text[:80]}…"
