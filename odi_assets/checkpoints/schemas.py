"""The schemas of state stores, as their files say them.

Layout (Spark 3.0 to 4.2), in the form that Java's ``DataOutputStream`` writes: the version as text, then the schemas of
key and value as JSON; since version 2 each in pieces, whose number comes first; since version 3 for each state
variable.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odi_assets.checkpoints.inspect import Operator
from odi_assets.checkpoints.log_files import torn
from odi_assets.errors import CheckpointError

_NEWEST_VERSION = 3
_EVENT_TIME = "spark.watermarkDelayMs"
"""In a column's metadata: it is the event time of its stream, with this watermark delay."""


@dataclass(frozen=True)
class StateSchema:
    """The columns of a store, or of a variable in it, as Spark's JSON describes a struct."""

    key: Mapping[str, Any]
    value: Mapping[str, Any]


def read_schemas(operator: Operator) -> dict[str, StateSchema]:
    """The schemas of an operator by store, or by state variable where a store holds several.

    Raises:
        CheckpointError: a schema file is torn or of a later Spark.
    """
    schemas: dict[str, StateSchema] = {}
    for store in operator.stores:
        if store.schema_file is not None:
            for name, schema in _read_file(store.schema_file).items():
                schemas[name or store.name] = schema
    return schemas


def type_names(struct_type: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and type of each column, in Spark's short form: ``[("id", "int"), …]``."""
    return [(field["name"], _type_name(field["type"])) for field in struct_type["fields"]]


def event_time_column(schema: StateSchema) -> str | None:
    """The column that carries the watermark, such as ``value.ordered`` or ``key.window.end``; None if there is none."""
    for part, field in _fields(schema):
        if _EVENT_TIME in field.get("metadata", {}):
            path = f"{part}.`{field['name']}`"
            return f"{path}.end" if isinstance(field["type"], dict) else path
    return None


def event_time_delay(schema: StateSchema) -> int | None:
    """The watermark delay of that column, in milliseconds, when the state was begun; None if there is no such
    column."""
    delays = (field.get("metadata", {}).get(_EVENT_TIME) for _, field in _fields(schema))
    return next((delay for delay in delays if delay is not None), None)


def _fields(schema: StateSchema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part, columns in (("value", schema.value), ("key", schema.key)):
        for field in columns["fields"]:
            yield part, field


def _type_name(kind: Any) -> str:
    if isinstance(kind, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "struct":
        return f"struct<{', '.join(f'{name}: {of}' for name, of in type_names(kind))}>"
    if kind["type"] == "array":
        return f"array<{_type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_name(kind['keyType'])}, {_type_name(kind['valueType'])}>"
    return str(kind["type"])


def _read_file(file: Path) -> dict[str, StateSchema]:
    reader = _JavaData(file)
    try:
        version = reader.text()
        if version not in ("v1", "v2", "v3"):
            raise CheckpointError(
                f"{file} has version {version}; this package reads versions 1 to {_NEWEST_VERSION}.",
                fix="upgrade odi_assets, or read the checkpoint with the Spark that wrote it",
                path=str(file),
            )
        if version == "v1":
            return {"": StateSchema(json.loads(reader.text()), json.loads(reader.text()))}
        if version == "v2":
            return {"": StateSchema(json.loads(reader.pieces()), json.loads(reader.pieces()))}
        return dict(_read_variable(reader) for _ in range(reader.number(">i")))
    except (struct.error, ValueError) as error:
        raise torn(file, f"it is no schema of a state store ({error})") from error


def _read_variable(reader: _JavaData) -> tuple[str, StateSchema]:
    name = reader.text()
    reader.number(">h")
    key = json.loads(reader.pieces())
    reader.number(">h")
    value = json.loads(reader.pieces())
    # How the key is encoded, and the schema of a map's own keys.
    reader.pieces()
    reader.pieces()
    return name, StateSchema(key, value)


class _JavaData:
    """Reads what Java's ``DataOutputStream`` wrote."""

    def __init__(self, file: Path) -> None:
        self._bytes = file.read_bytes()
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        length = self.number(">H")
        start, self._at = self._at, self._at + length
        if self._at > len(self._bytes):
            raise ValueError(f"it ends after {len(self._bytes)} bytes")
        return self._bytes[start : self._at].decode("utf-8")

    def pieces(self) -> str:
        return "".join(self.text() for _ in range(self.number(">i")))
