"""Parquet files read with the columns that the project file names: by the types that the files have.

Asked for a column that a file lacks, Spark returns NULLs. Asked for unsigned numbers or bytes as another type, Spark
reinterprets their bits. So files are read with their own types, and each value of another type is converted, exactly or
not at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.delta.types import fits_without_loss, plain_type, type_name
from odi_assets.errors import SourceError
from odi_assets.sources.files.deliveries import (
    Misfit,
    remote_options,
    renamed,
    require_standard,
    unnamed_part,
    value_or_stop,
)
from odi_assets.sources.files.folders import column_name, filled_from_folders
from odi_assets.sources.files.groups import FileGroup, read_as_is
from odi_assets.sources.files.look.parquet_times import int96_look
from odi_assets.sources.files.parquet.footer import footer_schema
from odi_assets.sources.files.parquet.nulls import has_nulls, readable
from odi_assets.sources.files.parquet.texts import stopping_texts
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted
from odi_assets.tables.schema import as_type

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from odi_assets.sources.files.snapshot import FilesSnapshot

_NUMBERS = ("byte", "short", "integer", "long", "decimal", "float", "double")
_WITH_TEXTS = (*_NUMBERS, "boolean", "date", "timestamp", "timestamp_ntz")
_BEYOND = {"integer": 2.0**31, "long": 2.0**63}
_EXACT = {("timestamp_ntz", "timestamp"), ("date", "timestamp"), ("string", "binary")}
"""Types, and others that a cast makes of them with nothing lost: the session's zone is UTC."""
_READ_AS_IS = {*_EXACT, ("binary", "string")} - {("date", "timestamp")}
"""Types, and others that Spark reads their values as."""

_NANOSECONDS = "nanoseconds"
_NULL = "void"
_SIMPLE = {"BOOLEAN": "boolean", "INT96": "timestamp", "FLOAT": "float", "DOUBLE": "double"}
_WHOLE = {"8True": "byte", "16True": "short", "32True": "int", "64True": "bigint"} | {
    "8False": "smallint",
    "16False": "int",
    "32False": "bigint",
    "64False": "decimal(20,0)",
}


def parquet_rows(spark: SparkSession, files: FilesSnapshot, group: FileGroup, wanted: StructType) -> DataFrame:
    """The columns that ``wanted`` names, of files of one shape.

    Raises:
        SourceError: they lack one and have others, or have one with a type whose values are none of the wanted type.
    """
    names, kinds = _columns(files, group.paths[0])
    own = {name.lower(): name for name in names}
    wanted_names = {name.lower() for name in wanted.names}
    if len(own) < len(names) and any(
        sum(name.lower() == wanted_name for name in names) > 1 for wanted_name in wanted_names
    ):
        return read_as_is(spark, files, group.paths)
    of_folders = {column_name(key).lower() for key in group.keys}
    missing = [name for name in wanted.names if name.lower() not in own.keys() | of_folders]
    more = [name for name in names if name.lower() not in wanted_names]
    if missing and more:
        raise renamed(files, group.paths[0], missing, more)
    stored, values = [], {}
    nested = [name for name in wanted.names if name.lower() in own and own[name.lower()] not in kinds]
    of_nested: dict[str, DataType] = {}
    if nested:
        as_is = read_as_is(spark, files, group.paths[:1]).schema
        _require_parts(files, group, as_is, wanted, nested)
        of_nested = {field.name.lower(): field.dataType for field in as_is if has_nulls(field.dataType)}
    for field in wanted:
        kind = kinds.get(own.get(field.name.lower(), ""))
        if kind == _NULL:
            values[field.name] = F.lit(None).cast(field.dataType)
            continue
        if kind is None and field.name.lower() in of_nested:
            open_type = of_nested[field.name.lower()]
            stored.append(T.StructField(field.name, readable(open_type)))
            values[field.name] = as_type(F.col(quoted(field.name)), open_type, field.dataType)
            continue
        nanoseconds = kind == _NANOSECONDS
        if nanoseconds and field.dataType.typeName() not in ("timestamp", "timestamp_ntz", "long"):
            raise _other_type(files, group, field.name, T.TimestampType(), field.dataType)
        own_type = _spark_type("bigint" if nanoseconds else kind) if kind is not None else field.dataType
        stored.append(T.StructField(field.name, own_type))
        if nanoseconds and field.dataType.typeName() in ("timestamp", "timestamp_ntz"):
            values[field.name] = value_or_stop(field, _of_nanoseconds(field))
        elif plain_type(own_type.jsonValue()) != plain_type(field.dataType.jsonValue()):
            values[field.name] = _converted(files, group, own_type, field)
    rows = files.load(spark, group.paths, T.StructType(stored))
    of_texts = T.StructType([field for field in stored if field.name not in values])
    values = stopping_texts(rows, of_texts) | values
    return filled_from_folders(rows, group.keys, wanted, values) if group.keys or values else rows


def require_whole_microseconds(
    spark: SparkSession, files: FilesSnapshot, group: FileGroup, wanted: Collection[str] | None
) -> None:
    """Raises SourceError if times of INT96 have parts of a microsecond, in columns of ``wanted``, in small letters."""
    schema = footer_schema(files, group.paths[0])
    leaves = [schema.column(number) for number in range(len(schema))]
    times = [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and leaf.max_repetition_level == 0]
    names = [name for name in times if "." not in name and (wanted is None or name.lower() in wanted)]
    if names:
        require_standard(spark, files, group.paths, int96_look(remote_options(files), names))


def require_own_types(files: FilesSnapshot, group: FileGroup, wanted: StructType) -> None:
    """Raises SourceError if files have a column with a type of which Spark, asked for the type in ``wanted``, does not
    give the values as they are: where :func:`parquet_rows` converts them, Spark stops, or reinterprets their bits."""
    names, kinds = _columns(files, group.paths[0])
    own = {name.lower(): name for name in names}
    for field in wanted:
        kind = kinds.get(own.get(field.name.lower(), ""))
        if kind in (None, _NULL):
            continue
        own_type, is_long = (
            _spark_type("bigint" if kind == _NANOSECONDS else str(kind)),
            field.dataType.typeName() == "long",
        )
        pair = own_type.typeName(), field.dataType.typeName()
        same = fits_without_loss(own_type.jsonValue(), field.dataType.jsonValue()) or pair in _READ_AS_IS
        if not (is_long if kind == _NANOSECONDS else same or own_type == field.dataType):
            raise _other_type(files, group, field.name, own_type, field.dataType)


def _columns(files: FilesSnapshot, path: str) -> tuple[list[str], dict[str, str]]:
    """The columns of a file, and the types in Spark's words of those that are plain values."""
    schema = footer_schema(files, path)
    leaves = [schema.column(number) for number in range(len(schema))]
    plain = {leaf.path: _type_of(leaf) for leaf in leaves if leaf.max_repetition_level == 0}
    names = list(schema.to_arrow_schema().names)
    return names, {name: kind for name in names if (kind := plain.get(name)) is not None}


def _type_of(leaf: pq.ColumnSchema) -> str | None:
    """The type that a column of Parquet is to Spark; None: let Spark say."""
    logical: dict[str, Any] = json.loads(leaf.logical_type.to_json())
    kind, physical = logical["Type"], leaf.physical_type
    if kind == "Decimal":
        return f"decimal({leaf.precision},{leaf.scale})"
    if kind == "Int":
        return _WHOLE.get(f"{logical['bitWidth']}{logical['isSigned']}")
    if kind == "Timestamp":
        nanoseconds = logical["timeUnit"] == "nanoseconds"
        return _NANOSECONDS if nanoseconds else "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
    if kind in ("String", "Enum", "JSON"):
        return "string"
    if kind == "Date":
        return "date"
    if kind == "Null":
        return _NULL
    if kind not in ("None", "BSON"):
        return None
    return {**_SIMPLE, "INT32": "int", "INT64": "bigint", "BYTE_ARRAY": "binary"}.get(physical)


def _spark_type(kind: str) -> DataType:
    from pyspark.sql.types import _parse_datatype_json_value

    return _parse_datatype_json_value({"int": "integer", "bigint": "long", "smallint": "short"}.get(kind, kind))


def _of_nanoseconds(field: StructField) -> Misfit:
    own = F.col(quoted(field.name))
    moment = F.timestamp_micros(F.expr(f"{quoted(field.name)} div 1000"))
    return Misfit(moment.cast(field.dataType), own % 1_000 != 0, "has parts of a microsecond, and so")


def _converted(files: FilesSnapshot, group: FileGroup, own: DataType, field: StructField) -> Column:
    """Values of one type converted to the wanted one.

    Raises:
        SourceError: no value of the one type is one of the other.
    """
    converted = conversion(own, field)
    if converted is None:
        raise _other_type(files, group, field.name, own, field.dataType)
    return value_or_stop(field, converted)


def conversion(own: DataType, field: StructField) -> Misfit | None:
    """Values of the column ``field`` as its type, made of values of type ``own``, and which of them do not fit.

    None: no value of the one type is one of the other.
    """
    column, left, right = F.col(quoted(field.name)), own.typeName(), field.dataType.typeName()
    if fits_without_loss(own.jsonValue(), field.dataType.jsonValue()) or (left, right) in _EXACT:
        return Misfit(column.cast(field.dataType), F.lit(False))
    if left in _NUMBERS and right in _NUMBERS:
        value = column.try_cast(field.dataType)
        same = value.try_cast(own) == column
        if left in ("float", "double") and right in _BEYOND:
            # A cast takes the number beside the last one for that one.
            same = same & (column < F.lit(_BEYOND[right]))
        return Misfit(value, ~F.coalesce(same, F.lit(False)))
    if right == "string" and left in _WITH_TEXTS:
        return Misfit(column.cast("string"), F.lit(False))
    if (left, right) == ("binary", "string"):
        return Misfit(column.cast("string"), ~F.is_valid_utf8(column.cast("string")))
    return None


def holds_parts(own: DataType, wanted: DataType) -> bool:
    """Whether a type with parts holds each value of another one: it names all of their parts, with types that hold
    them."""
    return own.typeName() == wanted.typeName() and _misfit_within(own, wanted, "") is None


def _require_parts(
    files: FilesSnapshot, group: FileGroup, own: StructType, wanted: StructType, names: Sequence[str]
) -> None:
    """Raises SourceError if columns with parts have some that ``wanted`` does not name, or that it cannot hold: Spark
    leaves out the one, and reinterprets the other."""
    of_file = {field.name.lower(): field.dataType for field in own}
    for name in names:
        misfit = _misfit_within(of_file[name.lower()], wanted[name].dataType, name)
        if misfit is not None:
            part, kind, other = misfit
            missing = unnamed_part(files, group.paths[0], part)
            raise missing if other is None else _other_type(files, group, part, kind, other)


def _misfit_within(own: DataType, wanted: DataType, name: str) -> tuple[str, DataType, DataType | None] | None:
    """The first part of a type that the wanted one has not, or has with a type that does not hold it."""
    if isinstance(own, T.StructType) and isinstance(wanted, T.StructType):
        by_name = {field.name.lower(): field.dataType for field in wanted}
        pairs = [(field.dataType, by_name.get(field.name.lower()), f"{name}.{field.name}") for field in own]
    elif isinstance(own, T.ArrayType) and isinstance(wanted, T.ArrayType):
        pairs = [(own.elementType, wanted.elementType, name)]
    elif isinstance(own, T.MapType) and isinstance(wanted, T.MapType):
        pairs = [(own.keyType, wanted.keyType, name), (own.valueType, wanted.valueType, f"{name}.*")]
    else:
        left, right = own.jsonValue(), wanted.jsonValue()
        return None if plain_type(left) == plain_type(right) or fits_without_loss(left, right) else (name, own, wanted)
    for kind, other, part in pairs:
        misfit = (part, kind, None) if other is None else _misfit_within(kind, other, part)
        if misfit is not None:
            return misfit
    return None


def _other_type(files: FilesSnapshot, group: FileGroup, name: str, own: DataType, wanted: DataType) -> SourceError:
    kinds = type_name(own.jsonValue()), type_name(wanted.jsonValue())
    return SourceError(
        f"{files.label}: column `{name}` is {kinds[0]} in {group}, and {kinds[1]} in `read.schema`, which does "
        "not hold its values",
        fix=f"make it {kinds[0]} in `read.schema`; or set `read.rescued: COLUMN`, which keeps what does not fit; "
        "nothing was loaded",
        path=group.paths[0],
        column=name,
    )
