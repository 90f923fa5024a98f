"""How the columns of a database come over: as they are stored, or not at all.

JDBC drivers hand over dates and times by the zone of the JVM they run in, and calendars of long ago; Spark rounds
numbers with more digits than its types have, and fills text of fixed length with spaces. So such columns are asked for
as text that says them exactly, and read from there; a value that Spark's type does not hold is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.sql.dialects import Dialect, Standard
from odi_assets.sources.sql.errors import VALUE

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
    """

    name: str
    type: TypeName
    sql: str
    comes_as_text: bool = False

    def restored(self) -> Column:
        """The column with its own type, and without what the database and the driver noted of it."""
        from pyspark.sql import functions as F

        from odi_assets.tables.columns import quoted

        kind = _spark_type(self.type)
        if not self.comes_as_text:
            # A cast, even to the same type, leaves behind the notes of the driver, which Delta would keep.
            return F.expr(f"CAST({quoted(self.name)} AS {kind.simpleString()}) AS {quoted(self.name)}")
        column = F.col(quoted(self.name))
        # An instant is asked for in UTC; nothing that the session is set to may change it.
        text = F.concat(column, F.lit("Z")) if self.type == "timestamp" else column
        begin, end = VALUE.split("{}")
        before, after = f"{begin}column `{self.name}` holds ", f", which is no {self.type}{end}"
        error = F.raise_error(F.concat(F.lit(before), column, F.lit(after))).cast(kind)
        value = F.coalesce(text.try_cast(kind), F.when(column.isNotNull(), error))
        if self._lost_digits:
            value = F.when(column.rlike(self._lost_digits), error).otherwise(value)
        return value.alias(self.name)

    @property
    def _lost_digits(self) -> str | None:
        """What a number looks like that has more digits after the point than its type."""
        found = re.fullmatch(r"decimal\(\d+,(\d+)\)", self.type) if isinstance(self.type, str) else None
        return rf"\.\d{{{found[1]}}}\d*[1-9]" if found else None


def sql_column(field: StructField, dialect: Dialect) -> SqlColumn:
    """How a column is asked for.

    Args:
        field: as Spark's JDBC reader sees it.
    """
    name, found = dialect.quoted(field.name), field.dataType.jsonValue()
    asked = _type_of_text(field, found)
    if asked is None or isinstance(dialect, Standard):
        is_bits = found == "binary" and field.metadata.get("jdbcClientType", "").upper() == "BIT"
        sql = dialect.number(name) if is_bits else name
        return SqlColumn(field.name, "decimal(20,0)" if sql != name else found, sql)
    kind = kind_of(found) if isinstance(found, str) and asked == found else None
    return SqlColumn(field.name, asked, dialect.text(name, kind), comes_as_text=True)


def _type_of_text(field: StructField, found: TypeName) -> TypeName | None:
    """The type of a column that is asked for as text; None for one that comes as it is."""
    if field.metadata.get("logical_time_type"):
        return "string"
    if isinstance(found, dict):
        return "string" if found.get("type") == "array" and found.get("elementType") in _TIMES else None
    if found in _TIMES:
        return found
    if found == "string":
        return found if str(field.metadata.get(_CHAR_TYPE, "")).startswith("char(") else None
    if found.startswith("decimal"):
        # Where the scales differ, Spark made one up, or took one away: it would round.
        return None if field.metadata.get("scale") == _scale(field) else found
    return None


def _scale(field: StructField) -> int:
    from pyspark.sql.types import DecimalType

    return field.dataType.scale if isinstance(field.dataType, DecimalType) else 0


def _spark_type(name: TypeName) -> Any:
    from pyspark.sql.types import _parse_datatype_json_value

    return _parse_datatype_json_value(name)
