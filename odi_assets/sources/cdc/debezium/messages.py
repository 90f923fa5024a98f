"""Messages with envelopes of Debezium, taken apart: as Kafka has them, or as sinks and kcat write them to files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.sources.cdc.debezium.columns import Raw

_JSON = json.JSONDecoder(parse_float=Raw, parse_constant=Raw)
_OLD_KEY = "__debezium.oldkey"


class RefusedMessage(Exception):
    """What is wrong with a message, behind the words that name it, and what to do."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.fix = fix


@dataclass(frozen=True)
class EnvelopeMessage:
    """A message, taken apart.

    Attributes:
        value: the envelope.
        fields: the schemas of the row's columns; None without a schema.
        key: of the row.
        old_key: that the row had before, if the message says so.
    """

    value: Mapping[str, Any]
    fields: list[Mapping[str, Any]] | None
    key: Mapping[str, Any] | None
    old_key: Mapping[str, Any] | None

    @classmethod
    def of(cls, text: bytes, key: bytes | None, headers: Iterable[Any]) -> EnvelopeMessage | None:
        value, beside = _loaded(text), _key(key)
        if isinstance(value, dict) and "op" not in value:
            # A message with its key beside it, as kcat and sinks write it.
            name = next((member for member in ("value", "payload") if member in value and "schema" not in value), None)
            if name is not None:
                beside, headers = _key(value.get("key")), value.get("headers") or ()
                value = _loaded(value[name])
        schema = value.get("schema") if isinstance(value, dict) and "payload" in value else None
        value = _payload(value)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise RefusedMessage("is no object of JSON", "land one envelope a line; an array of envelopes is none")
        old = next((header for name, header in _pairs(headers) if name == _OLD_KEY), None)
        return cls(value, _fields(schema), _row(_payload(beside)), _row(_payload(_key(old))))


def _pairs(headers: Any) -> list[tuple[Any, Any]]:
    """Headers as pairs: of an object, of pairs, of objects with a `key` and a `value` or with one member, or of names
    and values by turns, as kcat writes them."""
    if isinstance(headers, dict):
        return [*headers.items()]
    if not isinstance(headers, list | tuple):
        return []
    if not any(isinstance(part, dict | list | tuple) for part in headers):
        return [*zip(headers[::2], headers[1::2], strict=False)]
    pairs: list[tuple[Any, Any]] = []
    for header in headers:
        if isinstance(header, dict):
            pairs += [(header["key"], header["value"])] if {"key", "value"} <= header.keys() else header.items()
        elif isinstance(header, list | tuple) and len(header) == 2:
            pairs.append((header[0], header[1]))
    return pairs


def _key(text: Any) -> Any:
    """A key, loaded; None for one that another converter wrote: `keys` of the node names its columns."""
    try:
        return _loaded(text)
    except RefusedMessage:
        return None


def _row(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _payload(value: Any) -> Any:
    return value["payload"] if isinstance(value, dict) and {"schema", "payload"} <= value.keys() else value


def _fields(schema: Any) -> list[Mapping[str, Any]] | None:
    """The schemas of the columns, of the schema of an envelope."""
    if not isinstance(schema, dict):
        return None
    parts = schema.get("fields") or ()
    rows = (part for part in parts if isinstance(part, dict) and part.get("field") in ("after", "before"))
    return next((row["fields"] for row in rows if isinstance(row.get("fields"), list)), None)


def _loaded(text: Any) -> Any:
    """JSON in text or bytes; what is neither is loaded already."""
    if not isinstance(text, str | bytes):
        return text
    try:
        return _JSON.decode(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except ValueError as error:
        raise RefusedMessage(
            f"is no JSON: {error}",
            "land one envelope a line, as Kafka's JsonConverter writes it; `incremental: {mode: files, settle: 1m}` "
            "leaves files alone that are still written",
        ) from error
