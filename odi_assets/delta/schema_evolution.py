"""What a table's schema becomes when rows with other columns arrive. Delta's JSON types only, no Spark.

Names of columns know no capitals, as in Delta and Spark. A type never changes: files that are there would no longer
fit it. Rows of a narrower type are cast to the table's, where no value is lost by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odi_assets.config.models import SchemaPolicy
from odi_assets.delta.table import TableHandle
from odi_assets.delta.types import (
    cast_type,
    common_type,
    ddl_name,
    ddl_type,
    fits_without_loss,
    holding_type,
    plain_type,
    type_name,
)
from odi_assets.errors import TableError

REBUILD = "rebuild the table with the new type: odi run --full-refresh"
"""The way on where a column has another type than its table has, as messages have it."""

TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark notes in a column's metadata that its type is CHAR or VARCHAR; Delta has STRING alone."""

UNDECIDED = "odi_assets.undecided"
"""Metadata of a column that came with a frame without rows, and without a type. As long as the table has no file, the
next rows give it theirs."""


def plan_schema(handle: TableHandle, rows_json: str, policy: SchemaPolicy) -> tuple[str, list[str], list[str]]:
    """How rows of the schema ``rows_json`` go into the table.

    Returns:
        The table's schema after the commit, the columns it gains or gives a type (nested ones as ``a.b``), and the
        columns of the rows that are left out.

    Raises:
        TableError: ``policy`` is ``fail`` and a column is new, missing or of another type; or, under any policy, a
            type that does not fit the table's without loss, or a missing column that may not be NULL.
    """
    merge = _Merge(handle.location.uri, policy, UNDECIDED in handle.schema_json and not handle.live_files)
    table = json.loads(handle.schema_json)
    merged = merge.struct("", table, json.loads(rows_json))
    return json.dumps(merged) if merge.added else handle.schema_json, merge.added, merge.ignored


def replaced_schema(handle: TableHandle, rows_json: str) -> str:
    """The schema of rows that replace a table and its columns.

    A column that stays keeps what the table demands of its values, whatever type it has now: NOT NULL, and what its
    metadata say.

    Raises:
        TableError: the rows lack a column that may not be NULL in the table.
    """
    merge = _Merge(handle.location.uri, "evolve")
    return json.dumps(merge.replaced("", json.loads(handle.schema_json), json.loads(rows_json)))


class _Merge:
    def __init__(self, uri: str, policy: SchemaPolicy, decides: bool = False) -> None:
        self.uri = uri
        self.policy = policy
        self.decides = decides
        # The column that is being merged, its type in the table and in the rows.
        self.column: tuple[str, Any, Any] = ("", None, None)
        self.added: list[str] = []
        self.ignored: list[str] = []

    def struct(self, path: str, table: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
        row_fields = {item["name"].lower(): item for item in rows["fields"]}
        fields = []
        for item in table["fields"]:
            row_field = row_fields.pop(item["name"].lower(), None)
            if row_field is None:
                self._missing(path, item)
                fields.append(item)
            elif self.decides and not path and UNDECIDED in (item.get("metadata") or {}):
                fields.append(self._decided(item, row_field["type"]))
            else:
                if not path:
                    self.column = (item["name"], item["type"], row_field["type"])
                fields.append({**item, "type": self.kind(_join(path, item["name"]), item["type"], row_field["type"])})
        new = [item for item in row_fields.values() if self._accepts(_join(path, item["name"]))]
        return {**table, "fields": [*fields, *new]}

    def _decided(self, item: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
        if plain_type(item["type"]) == plain_type(kind):
            return item
        self.added.append(item["name"])
        metadata = {key: value for key, value in item["metadata"].items() if key != UNDECIDED}
        return {**item, "type": kind, "metadata": metadata}

    def kind(self, path: str, table: Any, rows: Any) -> Any:
        """The table's type with what ``rows`` adds to it; never another type."""
        if plain_type(table) == plain_type(rows):
            return table
        shape = table["type"] if isinstance(table, dict) else None
        if shape is None or not isinstance(rows, dict) or rows["type"] != shape:
            if shape is None and self.policy != "fail" and fits_without_loss(rows, table):
                return table
            raise self._other_type(path, table, rows)
        if shape == "struct":
            return self.struct(path, table, rows)
        if shape == "array":
            return {**table, "elementType": self.kind(f"{path}.element", table["elementType"], rows["elementType"])}
        return {
            **table,
            "keyType": self.kind(f"{path}.key", table["keyType"], rows["keyType"]),
            "valueType": self.kind(f"{path}.value", table["valueType"], rows["valueType"]),
        }

    def replaced(self, path: str, table: Any, rows: Any) -> Any:
        """The type of the rows, with the NOT NULLs and the metadata of the table's."""
        if not isinstance(table, dict) or not isinstance(rows, dict) or table["type"] != rows["type"]:
            return rows
        inner = {
            part: self.replaced(f"{path}.{part}", table[part], rows[part])
            for part in ("elementType", "keyType", "valueType")
            if part in rows
        }
        demanded = {part: table[part] for part in ("containsNull", "valueContainsNull") if part in rows}
        if "fields" not in rows:
            return {**rows, **inner, **demanded}
        before = {item["name"].lower(): item for item in table["fields"]}
        fields = [self._replaced_field(path, before.pop(item["name"].lower(), None), item) for item in rows["fields"]]
        for item in before.values():
            self._missing(path, item)
        return {**rows, "fields": fields}

    def _replaced_field(self, path: str, table: Mapping[str, Any] | None, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        if table is None:
            return rows
        kind = self.replaced(_join(path, rows["name"]), table["type"], rows["type"])
        metadata = table.get("metadata", {})
        if plain_type(kind) != plain_type(table["type"]):
            metadata = {key: value for key, value in metadata.items() if key != TEXT_TYPE}
        return {**rows, "type": kind, "nullable": table["nullable"], "metadata": metadata}

    def _accepts(self, name: str) -> bool:
        if self.policy == "fail":
            raise TableError(
                f"the table at {self.uri} has no column `{name}`",
                fix="drop the column in the transform, set `write.schema: evolve` (it joins the table) or `ignore` "
                "(it is left out), or rebuild the table with its new schema: odi run --full-refresh",
                uri=self.uri,
                column=name,
            )
        (self.added if self.policy == "evolve" else self.ignored).append(name)
        return self.policy == "evolve"

    def _missing(self, path: str, item: Mapping[str, Any]) -> None:
        name = _join(path, item["name"])
        if not item.get("nullable", True):
            raise TableError(
                f"the rows for {self.uri} have no column `{name}`, which may not be NULL in the table",
                fix="select the column in the transform",
                uri=self.uri,
                column=name,
            )
        if self.policy == "fail":
            raise TableError(
                f"the rows for {self.uri} have no column `{name}`, which the table has",
                fix=f"select it in the transform (CAST(NULL AS {type_name(item['type']).upper()}) AS {item['name']} "
                "if it is gone for good), or set `write.schema: evolve`, which fills it with NULL",
                uri=self.uri,
                column=name,
            )

    def _other_type(self, path: str, table: Any, rows: Any) -> TableError:
        table_type, rows_type = type_name(table), type_name(rows)
        name, whole, of_rows = self.column
        kept = cast_type(whole, of_rows)
        ways = []
        if kept is not None:
            note = "" if fits_without_loss(rows, table) else " (a value that does not fit stops the run then)"
            ways.append(f"cast it in the transform{note}: CAST({ddl_name(name)} AS {ddl_type(kept)})")
            if self.policy == "fail" and fits_without_loss(rows, table):
                ways[0] += ", or set `write.schema: evolve`, which does so"
        both = holding_type(whole, of_rows)
        return TableError(
            f"column `{path}` of the table at {self.uri} is {table_type}; the rows to write have {rows_type}",
            fix="; or ".join([*ways, REBUILD]),
            uri=self.uri,
            column=path,
            table_type=table_type,
            rows_type=rows_type,
            policy=self.policy,
            both=None if both is None else f"{ddl_name(name)} {ddl_type(both)}",
            unites=common_type(whole, of_rows) is not None,
        )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
