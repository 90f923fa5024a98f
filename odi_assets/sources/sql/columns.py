"""How the columns of a database come over: as they are stored, or not at all.

JDBC drivers hand over dates and times by the zone of the JVM they run in, and calendars of long ago; Spark rounds
numbers with more digits than its types have, and fills text of fixed length with spaces. So such columns are asked for
as text that says them exactly, and read from there; a value that Spark's type does not hold is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odi_assets.sources.cursor.digits import MOST, Sized
from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.sql.dialects import Dialect, Mysql, Standard, Unordered
from odi_assets.sources.sql.errors import MOST_DIGITS, VALUE
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField

_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_TIMES = ("date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class SqlColumn:
    """A column of a database.

    Attributes:
        type: as Spark writes it in JSON.
        sql: what is asked for.
        comes_as_text: ``sql`` is a text that ``type`` is read from.
        refused: the condition of values that ``type`` does not hold, where the driver would not tell.
        declared: the type as the driver calls it; None if it calls it nothing.
        is_ordered: the database is known to order its values as state does.
        digits: how many digits after the point the database keeps, or characters of a text; None if that is not known.
    """

    name: str
    type: TypeName
    sql: str
    comes_as_text: bool = False
    refused: str | None = None
    declared: str | None = None
    is_ordered: bool = False
    digits: int | None = None

    @property
    def sized_type(self) -> TypeName:
        """The type of the column, which knows how much of its values the database keeps."""
        return sized(self.type, self.digits)

    @property
    def cursor_type(self) -> TypeName:
        """The type of the column as a cursor."""
        return self.sized_type if self.is_ordered else Unordered(self.declared or "of a type that Spark does not know")

    @property
    def cut_type(self) -> TypeName:
        """The type of the column as one that pieces are cut by: texts are compared as texts, whatever they are of."""
        return self.cursor_type if self.type == "binary" else self.type

    def asked(self, dialect: Dialect) -> list[str]:
        """What of a SELECT gives the column."""
        name = dialect.quoted(self.name)
        if self.refused is None:
            return [f"{self.sql} AS {name}"]
        other = f"CASE WHEN {self.refused} THEN {dialect.text(self.sql, None)} END"
        return [
            f"CASE WHEN NOT ({self.refused}) THEN {self.sql} END AS {name}",
            f"{other} AS {dialect.quoted(self._other)}",
        ]

    @property
    def as_asked(self) -> str | None:
        """The type of the column in Spark's DDL, where what is asked for does not tell it; None where it does."""
        return None if self.refused is None else f"{quoted(self.name)} {_spark_type(self.type).simpleString()}"

    @property
    def _other(self) -> str:
        """The column of values that are refused."""
        return f"{self.name} odi_refused"

    def restored(self) -> Column:
        """The column with its own type, and without what the database and the driver noted of it."""
        kind = _spark_type(self.type)
        # A cast, even to the same type, leaves behind the notes of the driver, which Delta would keep.
        same = F.expr(f"CAST({quoted(self.name)} AS {kind.simpleString()})")
        if self.refused is not None:
            other = F.col(quoted(self._other))
            return F.when(other.isNotNull(), self._error(other)).otherwise(same).alias(self.name)
        if not self.comes_as_text:
            return same.alias(self.name)
        column = F.col(quoted(self.name))
        # An instant is asked for in UTC; nothing that the session is set to may change it.
        text = F.concat(column, F.lit("Z")) if self.type == "timestamp" else column
        error = self._error(column)
        value = F.coalesce(text.try_cast(kind), F.when(column.isNotNull(), error))
        if self._lost_digits:
            value = F.when(column.rlike(self._lost_digits), error).otherwise(value)
        return value.alias(self.name)

    def _error(self, text: Column) -> Column:
        """The error of a value that the column's type does not hold."""
        kind = _spark_type(self.type)
        begin, end = VALUE.split("{}")
        before, after = f"{begin}column `{self.name}` holds ", f", which is no {kind.simpleString()}{end}"
        return F.raise_error(F.concat(F.lit(before), text, F.lit(after))).cast(kind)

    @property
    def _lost_digits(self) -> str | None:
        """What a number looks like that has more digits after the point than its type."""
        match = re.fullmatch(r"decimal\(\d+,(\d+)\)", self.type) if isinstance(self.type, str) else None
        return rf"\.\d{{{match[1]}}}\d*[1-9]" if match else None


def sized(name: TypeName, digits: int | None) -> TypeName:
    """The type ``name``, which knows how many digits after the point the database keeps, or characters of a text.

    Args:
        digits: None if nobody said that.
    """
    may_lose = isinstance(name, str) and name.startswith(("decimal", "timestamp", "string"))
    return Sized(name, [min(digits, MOST)]) if may_lose and digits is not None else name


def sql_column(field: StructField, dialect: Dialect, sql: str) -> SqlColumn:
    """How a column is asked for, and whether it can be a cursor.

    Args:
        field: as Spark's JDBC reader sees it.
        sql: the column in SQL, or what is asked for in its place.
    """
    # `BIGINT UNSIGNED`, `int identity`: what follows the first word changes no order.
    declared = (field.metadata.get("jdbcClientType") or field.dataType.simpleString()).lower().split()[0]
    if dialect.driver_class == Mysql.driver and declared == "char" and not field.metadata.get("isSigned", True):
        # The driver says no more of the addresses of MariaDB.
        declared = "inet"
    is_ordered = dialect.ordered is None or declared.partition("(")[0] in dialect.ordered
    asked = _asked_for(field, dialect, sql)
    return replace(asked, declared=declared, is_ordered=is_ordered, digits=_digits(field))


def _digits(field: StructField) -> int | None:
    scale, kind = field.metadata.get("scale"), field.dataType.simpleString()
    if kind == "string":
        length = re.search(r"\((\d+)\)", str(field.metadata.get(_CHAR_TYPE, "")))
        is_any = str(field.metadata.get("jdbcClientType")).lower() == "text"
        return int(length[1]) if length else MOST if is_any else None
    if scale is None or not kind.startswith("decimal"):
        return scale
    if scale > _SCALES // 2:
        return int(scale) - _SCALES
    return MOST if scale == 0 and kind == f"decimal({MOST_DIGITS},{_MADE_UP})" else int(scale)


def _asked_for(field: StructField, dialect: Dialect, sql: str) -> SqlColumn:
    """How a column is asked for.

    Args:
        field: as Spark's JDBC reader sees it.
        sql: the column in SQL, or what is asked for in its place.
    """
    type_name = field.dataType.jsonValue()
    if isinstance(dialect, Standard):
        return SqlColumn(field.name, type_name, sql)
    asked = _type_of_text(field, type_name)
    if asked is not None:
        kind = kind_of(type_name) if isinstance(type_name, str) and asked == type_name else None
        return SqlColumn(field.name, asked, dialect.text(sql, kind), comes_as_text=True)
    client_type = field.metadata.get("jdbcClientType", "").upper()
    if type_name == "binary" and client_type == "BIT":
        number = dialect.number(sql)
        return SqlColumn(field.name, type_name if number == sql else "decimal(20,0)", number)
    if isinstance(type_name, dict):
        return _array(field, type_name, dialect, sql)
    return SqlColumn(field.name, type_name, sql)


def unknown_column(name: str, dialect: Dialect, sql: str) -> SqlColumn:
    """How a column is asked for whose type Spark does not know: as the database writes its values."""
    return SqlColumn(name, "string", dialect.written(sql))


def _array(field: StructField, array_type: dict[str, Any], dialect: Dialect, sql: str) -> SqlColumn:
    """An array. The driver hands over none with other dimensions than the column is declared with, and the number of no
    first element; it rounds numbers, and makes a word of NULL among bits."""
    if field.metadata.get("pg_bit_array_type"):
        return SqlColumn(field.name, {**array_type, "elementType": "string"}, f"CAST({sql} AS text[])")
    depth, element = 0, array_type
    while isinstance(element, dict):
        depth, element = depth + 1, element["elementType"]
    return SqlColumn(field.name, array_type, sql, refused=dialect.no_plain_array(sql, depth, str(element)))


def _type_of_text(field: StructField, type_name: TypeName) -> TypeName | None:
    """The type of a column that is asked for as text; None for one that comes as it is."""
    if field.metadata.get("logical_time_type"):
        return "string"
    if isinstance(type_name, dict):
        return "string" if type_name.get("type") == "array" and type_name.get("elementType") in _TIMES else None
    if type_name in _TIMES:
        return type_name
    if type_name == "string":
        return type_name if str(field.metadata.get(_CHAR_TYPE, "")).startswith("char(") else None
    if type_name.startswith("decimal"):
        return _type_of_number(field, type_name)
    return None


_MADE_UP = 18
"""How many digits of a decimal are after the point where a database does not say."""
_SCALES = 2048
"""PostgreSQL's driver hands over negative scales modulo this."""


def _type_of_number(field: StructField, type_name: str) -> str | None:
    """The type of a number that is asked for as text, because it may have more digits than Spark's; None if it has
    not."""
    digits, kept = (int(number) for number in re.findall(r"\d+", type_name))
    scale = int(field.metadata.get("scale", kept))
    if scale > _SCALES // 2:
        return f"decimal({MOST_DIGITS},0)"
    if kept == scale:
        # With a scale of 0, one of more than 38 digits has the same type.
        return type_name if digits == MOST_DIGITS and scale == 0 else None
    # Where the scales differ, Spark made one up, or took one away: it would round.
    return f"decimal({MOST_DIGITS},{min(scale, _MADE_UP)})" if kept == 0 else type_name


def _spark_type(name: TypeName) -> Any:
    from pyspark.sql.types import _parse_datatype_json_value

    return _parse_datatype_json_value(name)
