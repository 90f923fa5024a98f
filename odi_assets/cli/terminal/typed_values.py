"""Typed values as somebody types them: what ``odi state get`` prints, ``odi state set`` reads back with its type."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from odi_assets.errors import ConfigError, StateError
from odi_assets.state.values import decode, encode
from odi_assets.state.values.typed_text import OF_JSON, looks_typed

_ALIASES = {"string": "str", "timestamp": "datetime", "json": ""}


def from_text(text: str, kind: str | None, present: Any) -> Any:
    """The value that ``text`` means.

    Args:
        text: JSON, the typed form of :func:`to_text`, or, where the type is known, plain text: ``2013-01-31``.
        kind: the name of the type, if it was given.
        present: the value that is to be replaced. Its type counts where ``text`` brings none and JSON has none for it.

    Raises:
        ConfigError: ``text`` is not a value of that type, or its type is not known.
    """
    _require_single_keys(text)
    if kind is not None:
        return _of_type(text, _ALIASES.get(kind, kind))
    try:
        value = json.loads(text)
    except ValueError:
        value = text
        plain = True
    else:
        plain = False
    if looks_typed(value):
        named = value["type"]
        return _decoded(json.dumps(value["value"]), named if isinstance(named, str) else json.dumps(named))
    present_kind = encode(present)[1]
    if isinstance(value, str) and present is not None and present_kind not in OF_JSON:
        return _of_type(text, present_kind.partition("[")[0] if present_kind.startswith("datetime") else present_kind)
    if plain:
        raise ConfigError(
            f"{text!r} is not JSON, so its type is not known",
            fix="name it: --type str, date, datetime, decimal, …; or give JSON, where text stands in quotes",
        )
    return value


def _require_single_keys(text: str) -> None:
    """Raises ConfigError if an object of a JSON text names a key twice: one of the two values would be lost."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members_by_name = dict(pairs)
        twice = next((name for name, count in Counter(name for name, _ in pairs).items() if count > 1), None)
        if twice is not None:
            raise ConfigError(f"the key `{twice}` is given more than once in {text}", fix="keep the right one")
        return members_by_name

    try:
        json.loads(text, object_pairs_hook=members)
    except (ValueError, RecursionError):
        # It is no JSON, which is said where that matters.
        return


def _of_type(text: str, kind: str) -> Any:
    if not kind:
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{text!r} is not JSON: {error}") from error
    try:
        is_json_text = isinstance(json.loads(text), str)
    except ValueError:
        is_json_text = False
    if kind == "str" and not is_json_text:
        return text
    try:
        return decode(text, kind)
    except StateError:
        # Not JSON of this type; the text itself may be: 2013-01-31, 12.50.
        return _decoded(json.dumps(text), kind)


def _decoded(text: str, kind: str) -> Any:
    try:
        return decode(text, kind)
    except StateError as error:
        raise ConfigError(
            f"{text} is not a value of type {kind}",
            fix="types are null, bool, int, float, str, decimal, date, datetime, time, timedelta, bytes, uuid, list "
            "and dict",
        ) from error
