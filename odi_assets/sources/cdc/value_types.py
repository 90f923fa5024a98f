"""The types that texts of a change log have in Spark: exact, or text as the database writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_MOST_DIGITS = 38


@dataclass(frozen=True)
class ValueTypes:
    """How values of one kind of database are read from their texts.

    Attributes:
        spark_type: Spark's type for a type of the database.
        true, false: the texts of booleans.
        zone: what an instant lacks to say its zone.
    """

    spark_type: Callable[[str], str]
    true: str
    false: str
    zone: str


def _postgres_type(kind: str) -> str:
    if kind in _OF_POSTGRES:
        return _OF_POSTGRES[kind]
    # timestamp(3) without time zone
    bare = re.sub(r"\(\d+\)", "", kind)
    if bare in _OF_POSTGRES and not kind.startswith("numeric"):
        return _OF_POSTGRES[bare]
    numeric = re.fullmatch(r"numeric(?:\((\d+),(-?\d+)\))?", kind)
    return _decimal(int(numeric[1] or 38), int(numeric[2] or 18)) if numeric is not None else "STRING"


def _mariadb_type(kind: str) -> str:
    bare = re.sub(r"\(.*?\)", "", kind)
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if decimal is not None:
        return _decimal(int(decimal[1]), int(decimal[2]))
    if kind == "bit(1)":
        return "BOOLEAN"
    return "BINARY" if bare.endswith("blob") else _OF_MARIADB.get(bare, "STRING")


def _decimal(precision: int, scale: int) -> str:
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"DECIMAL({precision},{scale})" if precision <= _MOST_DIGITS else "STRING"


_OF_POSTGRES: Mapping[str, str] = {
    "smallint": "SMALLINT",
    "integer": "INT",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "bytea": "BINARY",
    "timestamp without time zone": "TIMESTAMP_NTZ",
    "timestamp with time zone": "TIMESTAMP",
}
_OF_MARIADB: Mapping[str, str] = {
    "tinyint": "TINYINT",
    "tinyint unsigned": "SMALLINT",
    "smallint": "SMALLINT",
    "smallint unsigned": "INT",
    "mediumint": "INT",
    "mediumint unsigned": "INT",
    "int": "INT",
    "int unsigned": "BIGINT",
    "bigint": "BIGINT",
    "bigint unsigned": "DECIMAL(20,0)",
    "bit": "DECIMAL(20,0)",
    "year": "INT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP",
    "binary": "BINARY",
    "varbinary": "BINARY",
    "geometry": "BINARY",
}
POSTGRES = ValueTypes(_postgres_type, "t", "f", "")
MARIADB = ValueTypes(_mariadb_type, "1", "0", "+00:00")
