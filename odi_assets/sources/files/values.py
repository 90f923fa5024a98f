"""Values of text files, read as text where Spark's parsers change what they do not understand.

Spark rounds a number to the scale of a DECIMAL, cuts times to microseconds, takes ``12:30`` for today at 12:30 and
``2024-01-01 23:00`` for a DATE. So columns of these types are read as text, and made what they are to be here: a value
that its type holds as it is written, or one that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from odi_assets.spark.lazy import F, T

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_BLANK = r"[ \t]*"
_DAY = r"[+-]?\d{4,6}-\d{1,2}-\d{1,2}"
_MIDNIGHT = r"(?:[T ]0?0:0?0(?::0?0(?:\.0*)?)?Z?)?"
_TIME = r"[T ]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d{0,6}0*)?)?"
_MOMENT = rf"^{_BLANK}{_DAY}(?:{_TIME}(?:[^0-9.:\x00-\x1f][^\x00-\x1f]*)?)?$"
_NANOSECONDS = r"\.\d{6}\d*[1-9]"
_WITHIN = rf"^{_BLANK}[^\x00-\x20](?:.*[^\x00-\x20])?{_BLANK}$"
_NUMBER = rf"^{_BLANK}[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:nan|inf|infinity)){_BLANK}$"
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""

_NEAREST = ("double", "float")
_FORMATS: Mapping[str, str] = {
    "date": "dateformat",
    "timestamp": "timestampformat",
    "timestamp_ntz": "timestampntzformat",
}
_OF_SPARK_ALONE = {"locale", "timezone"}
_INFINITIES = {"nanvalue", "positiveinf", "negativeinf"}


class Checked(NamedTuple):
    """A value as its type has it, NULL where it does not fit; and whether it does not fit."""

    value: Column
    misfits: Column


class Reading(NamedTuple):
    """How values of text are read.

    Attributes:
        options: of Spark's reader, by their names in small letters.
        is_json: values are JSON's: a number is one already, and as a TIMESTAMP counts seconds since 1970.
        empty: the text that a CSV reader gives for ``""``; None if that is not known.
        keeps: what does not fit is kept as it is written: a DOUBLE beyond all others is not infinity.
    """

    options: Mapping[str, str]
    is_json: bool = False
    empty: str | None = None
    keeps: bool = False

    def as_text(self, kind: DataType) -> DataType:
        """The type that Spark is to read a column as."""
        if isinstance(kind, T.StructType):
            return T.StructType([T.StructField(field.name, self.as_text(field.dataType)) for field in kind])
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self.as_text(kind.elementType))
        if isinstance(kind, T.MapType):
            return T.MapType(kind.keyType, self.as_text(kind.valueType))
        if isinstance(kind, T.ByteType) and self.is_json:
            # Of 128 to 255 Spark makes negative numbers.
            return T.ShortType()
        return T.StringType() if self.empty is not None or self._is_lenient(kind) else kind

    def _is_lenient(self, kind: DataType) -> bool:
        name = kind.typeName()
        if name in _NEAREST:
            return (self.keeps or not self.is_json) and not _INFINITIES & self.options.keys()
        return (name == "decimal" or name in _FORMATS) and not _OF_SPARK_ALONE & self.options.keys()

    def checked(self, column: Column, kind: DataType) -> Checked | None:
        """A column that was read as :meth:`as_text` says; None if it is what it is to be."""
        if isinstance(kind, T.StructType):
            parts = {field.name: self.checked(column[field.name], field.dataType) for field in kind}
            if not any(parts.values()):
                return None
            fields = [(column[name] if part is None else part.value).alias(name) for name, part in parts.items()]
            wrong = [part.misfits for part in parts.values() if part is not None]
            return Checked(F.when(column.isNotNull(), F.struct(*fields)), _any(wrong))
        if isinstance(kind, T.ArrayType | T.MapType):
            inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
            if self.checked(column, inner) is None:
                return None
            values = column if isinstance(kind, T.ArrayType) else F.map_values(column)
            misfits = F.coalesce(F.exists(values, lambda part: self._part(part, inner).misfits), F.lit(False))
            if isinstance(kind, T.ArrayType):
                return Checked(F.transform(column, lambda part: self._part(part, inner).value), misfits)
            return Checked(F.transform_values(column, lambda _, part: self._part(part, inner).value), misfits)
        return self._scalar(column, kind)

    def _part(self, column: Column, kind: DataType) -> Checked:
        checked = self.checked(column, kind)
        assert checked is not None
        return checked

    def _scalar(self, column: Column, kind: DataType) -> Checked | None:
        name = kind.typeName()
        text = column
        if name == "byte" and self.is_json:
            value = column.try_cast(kind)
            return Checked(value, column.isNotNull() & value.isNull())
        if self.empty is not None:
            if name == "string":
                return Checked(F.when(text == self.empty, F.lit("")).otherwise(text), F.lit(False))
            text = F.nullif(text, F.lit(self.empty))
        if self._is_lenient(kind):
            value, fits = self._lenient(text, kind)
        elif name in _NEAREST:
            value = text if self.empty is None else text.try_cast(kind)
            return Checked(value, F.coalesce(value.isin(float("inf"), float("-inf")), text.isNotNull()))
        elif self.empty is None:
            return None
        else:
            value, fits = text.try_cast(kind), _is_tight(text)
            if name == "boolean":
                fits = F.lower(text).isin("true", "false")
        return Checked(F.when(fits, value), text.isNotNull() & ~F.coalesce(fits & value.isNotNull(), F.lit(False)))

    def _lenient(self, text: Column, kind: DataType) -> tuple[Column, Column]:
        if isinstance(kind, T.DecimalType):
            return _decimal(text, kind)
        name = kind.typeName()
        if name in _NEAREST:
            value, last = text.try_cast(kind), F.substring(text, -1, 1)
            # Java has numbers like `1d` and `0x1p3`, too.
            is_decimal = ~F.contains(text, F.lit("p")) & ~F.contains(text, F.lit("P"))
            is_plain = (text > "!") & last.between("0", "9") & is_decimal
            is_finite = (F.abs(value) != float("inf")) | F.lower(text).contains("inf")
            return value, is_finite & (is_plain | text.rlike(_NUMBER))
        pattern = self.options.get(_FORMATS[name])
        if pattern is not None:
            return F.try_to_timestamp(text, F.lit(pattern)).cast(kind), ~text.rlike(_NANOSECONDS)
        value = text.try_cast(kind)
        dashes = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-") & (F.substring(text, -1, 1) > " ")
        size = F.octet_length(text)
        if name == "date":
            return value, ((size == 10) & dashes) | text.rlike(f"^{_BLANK}{_DAY}{_MIDNIGHT}{_BLANK}$")
        colons = (F.substring(text, 14, 1) == ":") & (F.substring(text, 17, 1) == ":")
        if name == "timestamp_ntz":
            # A cast would leave out the zone of a text.
            return value, ((size == 19) & dashes & colons) | text.rlike(f"^{_BLANK}{_DAY}(?:{_TIME})?{_BLANK}$")
        fits = (size.between(19, 26) & dashes & colons) | text.rlike(
            f"^{_BLANK}{_DAY}(?:{_TIME}(?:[^0-9.:\x00-\x1f][^\x00-\x1f]*)?)?$"
        )
        if not self.is_json:
            return value, fits
        seconds = F.when(text.rlike(r"^-?\d{9,12}$"), text.try_cast("bigint"))
        is_moment = F.coalesce(F.abs(seconds) <= _LAST_SECOND, F.lit(False))
        return F.coalesce(F.when(fits, value), F.when(is_moment, F.timestamp_seconds(seconds))), fits | is_moment


def _decimal(text: Column, kind: DataType) -> tuple[Column, Column]:
    """A number, and whether no digit is lost."""
    assert isinstance(kind, T.DecimalType)
    point = F.instr(text, ".")
    is_short = (point == 0) | (F.octet_length(text) - point <= kind.scale)
    has_exponent = F.contains(text, F.lit("e")) | F.contains(text, F.lit("E"))
    form = rf"^{_BLANK}[+-]?(\d*)\.?(\d*)[eE]([+-]?\d{{1,9}}){_BLANK}$"
    whole, fraction, exponent = (F.regexp_extract(text, form, number) for number in (1, 2, 3))
    digits = F.concat(whole, fraction)
    needed = F.rtrim(digits, F.lit("0"))
    scale = F.length(fraction) - exponent.try_cast("int") - (F.length(digits) - F.length(needed))
    is_exact = (F.ltrim(needed, F.lit("0")) == "") | (scale <= kind.scale)
    zeros = text.rlike(rf"^[^.]*\.\d{{0,{kind.scale}}}0*{_BLANK}$")
    return text.try_cast(kind), _is_tight(text) & F.when(has_exponent, is_exact).otherwise(is_short | zeros)


def _is_tight(text: Column) -> Column:
    """Whether nothing but blanks stands around a value: Spark takes all control characters for blanks."""
    return ((text > "!") & (F.substring(text, -1, 1) > " ")) | text.rlike(_WITHIN)


def _any(columns: list[Column]) -> Column:
    condition = columns[0]
    for column in columns[1:]:
        condition = condition | column
    return condition
