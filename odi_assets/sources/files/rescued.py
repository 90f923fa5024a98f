"""What of a file does not fit the columns that the project file names, kept as JSON in a column of its own.

An object with the columns that are not named, under their names; with values of another type, likewise (Parquet); and
with the text of a record that does not parse, or has a value of another type, as ``_corrupt_record`` (CSV and JSON,
with Spark's mode PERMISSIVE). NULL where everything fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from odi_assets.delta.types import plain_type
from odi_assets.errors import SourceError
from odi_assets.sources.files.deliveries import SPLIT, as_read, checked_columns, empty_option, reading_of
from odi_assets.sources.files.folders import column_name, filled_from_folders
from odi_assets.sources.files.groups import FileGroup, csv_columns, read_as_is
from odi_assets.sources.files.parquet.columns import conversion, holds_parts
from odi_assets.sources.files.parquet.texts import stopping_texts
from odi_assets.sources.files.settings import FileFormat
from odi_assets.spark.lazy import F, T, spark_errors
from odi_assets.tables.columns import EXACT_TIMES, quoted
from odi_assets.tables.schema import as_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from odi_assets.sources.files.snapshot import FilesSnapshot
    from odi_assets.sources.files.values import Reading

_RECORD = "__odi_record"
_HALF = r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
"""One half of a character that is two in JSON's ``\\u`` alone; Spark makes a question mark of it."""

_PARTS = ("struct", "array", "map")


def rescued_rows(spark: SparkSession, files: FilesSnapshot, group: FileGroup, column: str) -> DataFrame:
    """The rows of files of one shape, with ``column`` behind the columns that the project file names.

    Raises:
        SourceError: a file cannot be read with its columns.
    """
    wanted = files.schema
    if files.format == FileFormat.PARQUET and wanted is not None:
        return _parquet_rows(spark, files, group, wanted, column)
    find = _of_csv if files.format == FileFormat.CSV else _of_json
    is_split = group.way == SPLIT and wanted is not None
    own, whole = (wanted, ()) if is_split and wanted is not None else find(spark, files, group, wanted)
    typed = as_read(files, own, group.way) if files.strict else own
    columns = T.StructType([*typed, T.StructField(_RECORD, T.StringType())])
    if group.way == SPLIT:
        rows = _by_line(spark, files, group, columns)
    else:
        rows = files.load(
            spark,
            group.paths,
            columns,
            mode="PERMISSIVE",
            columnNameOfCorruptRecord=_RECORD,
            enforceSchema="true",
            # Else only values of columns that a query needs are parsed, and what does not fit the others goes unseen.
            columnPruning="false",
            **empty_option(group.way),
        )
    wanted = wanted or _with_folders(own, group)
    checked = checked_columns(files, own, group.way) if files.strict else {}
    wanted_names = {field.name for field in wanted}
    values = {name: F.when(~check.misfits, check.value) for name, check in checked.items()}
    left = [values.get(name, F.col(quoted(name))).alias(name) for name in own.names if name not in wanted_names]
    left += [
        F.when(check.misfits, F.col(quoted(name))).alias(name)
        for name, check in checked.items()
        if name in wanted_names
    ]
    for name in whole:
        values[name], misfit = _of_variant(name, wanted[name].dataType, reading_of(files, group.way))
        left.append(misfit)
    return _with_rescued(rows, group, wanted, column, values, left)


def _of_csv(
    spark: SparkSession, files: FilesSnapshot, group: FileGroup, wanted: StructType | None
) -> tuple[StructType, Sequence[str]]:
    """The columns of CSV files, in their order: of the types that are wanted; others are text."""
    schema = files.load(spark, group.paths[:1]).schema
    if wanted is None:
        return T.StructType(list(schema)), ()
    if not files.has_header:
        own = csv_columns(spark, files, group, wanted.names)
        return T.StructType([wanted[name] for name in own]), ()
    by_name = {field.name.lower(): field for field in wanted}
    return T.StructType([by_name.get(name.lower(), T.StructField(name, T.StringType())) for name in schema.names]), ()


def _of_json(
    spark: SparkSession, files: FilesSnapshot, group: FileGroup, wanted: StructType | None
) -> tuple[StructType, Sequence[str]]:
    """The keys of JSON files, and which of those that are wanted have more within them than is wanted.

    Raises:
        SourceError: two keys differ by capitals only.
    """
    try:
        all_keys = files.load(spark, group.paths, mode="PERMISSIVE", columnNameOfCorruptRecord=_RECORD).schema
    except spark_errors.PySparkValueError as error:
        raise SourceError(
            f"{files.label}: the columns of {group} cannot be found out: {error}",
            fix="land it with values that are nested less deeply; nothing was loaded",
            path=group.paths[0],
        ) from error
    fields = [field for field in all_keys if field.name != _RECORD]
    if wanted is None:
        return T.StructType(fields), ()
    by_name = {field.name.lower(): field.name for field in wanted}
    clash = next((field.name for field in fields if by_name.get(field.name.lower(), field.name) != field.name), None)
    if clash is not None:
        raise SourceError(
            f"{files.label}: among {group} are records with `{clash}`, and `read.schema` has "
            f"`{by_name[clash.lower()]}`; names know no capitals, and keys of JSON do",
            fix="write the column in `read.schema` as the files do; nothing was loaded",
            path=group.paths[0],
            column=clash,
        )
    types = {field.name: field.dataType for field in fields}
    whole = [field.name for field in wanted if _has_more(types.get(field.name), field.dataType)]
    named = [T.StructField(field.name, T.VariantType()) if field.name in whole else field for field in wanted]
    return T.StructType(
        [*named, *(T.StructField(name, T.VariantType()) for name in types if name not in wanted.names)]
    ), whole


def _has_more(own: DataType | None, wanted: DataType) -> bool:
    """Whether values as they were found have keys that the wanted type lacks."""
    if isinstance(own, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _has_more(own.elementType, wanted.elementType)
    if isinstance(own, T.StructType) and isinstance(wanted, T.MapType):
        return any(_has_more(field.dataType, wanted.valueType) for field in own)
    if not isinstance(own, T.StructType) or not isinstance(wanted, T.StructType):
        return False
    return any(
        field.name not in wanted.names or _has_more(field.dataType, wanted[field.name].dataType) for field in own
    )


def _by_line(spark: SparkSession, files: FilesSnapshot, group: FileGroup, columns: StructType) -> DataFrame:
    """The rows of JSON lines of which Spark would read some in part only: those are kept as they are.

    So are, beside their values, lines with keys that ``columns`` lack, also within values that have parts.
    """
    lines = files.lines(spark, group.paths).where(F.trim("value") != "")
    text = F.col("value")
    is_one = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    has_keys_once = F.try_parse_json(text).isNotNull() & F.startswith(F.ltrim(text), F.lit("{"))
    is_whole = F.coalesce(is_one & has_keys_once & ~text.rlike(_HALF), F.lit(False))
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _RECORD}
    rows = lines.select(text, F.from_json(F.when(is_whole, text), columns, how).alias("row"))
    named = T.StructType([field for field in columns if field.name != _RECORD])
    parsed = F.try_parse_json(text)
    # A line that is too large for a variant is kept whole.
    fits = is_whole & parsed.isNotNull() & _has_named_keys_alone(parsed, named)
    record = F.when(fits, F.col("row")[_RECORD]).otherwise(text).alias(_RECORD)
    return rows.select(*[F.col("row")[name].alias(name) for name in columns.names[:-1]], record)


def _has_named_keys_alone(value: Column, kind: DataType) -> Column:
    """Whether a variant has no key that its type lacks, within its parts neither."""
    if isinstance(kind, T.ArrayType):
        parts: Column = F.try_variant_get(value, "$", "array<variant>")
        return _each_has_named_keys_alone(parts, kind.elementType)
    of_keys = F.try_variant_get(value, "$", "map<string, variant>")
    if isinstance(kind, T.MapType):
        return _each_has_named_keys_alone(F.map_values(of_keys), kind.valueType)
    if not isinstance(kind, T.StructType):
        return F.lit(True)
    names = F.array(*map(F.lit, kind.names)).cast("array<string>")
    own = F.coalesce(F.size(F.array_except(F.map_keys(of_keys), names)) == 0, F.lit(True))
    nested = [field for field in kind if field.dataType.typeName() in _PARTS]
    within = (_has_named_keys_alone(F.try_element_at(of_keys, F.lit(field.name)), field.dataType) for field in nested)
    return reduce(and_, within, own)


def _each_has_named_keys_alone(parts: Column, kind: DataType) -> Column:
    if kind.typeName() not in _PARTS:
        return F.lit(True)
    return F.coalesce(F.forall(parts, lambda part: _has_named_keys_alone(part, kind)), F.lit(True))


def _of_variant(name: str, kind: DataType, reading: Reading) -> tuple[Column, Column]:
    """A value of a type with parts, and all of what the record has there where some of it did not fit."""
    text = F.to_json(F.col(quoted(name)))
    value = F.from_json(text, F.lit(reading.as_text(kind).simpleString()))
    if (check := reading.checked(value, kind)) is not None:
        value = F.when(~check.misfits, check.value)
    same = F.to_json(F.parse_json(F.to_json(value))).eqNullSafe(text)
    return value, F.when(~same, F.col(quoted(name))).alias(name)


def _parquet_rows(
    spark: SparkSession, files: FilesSnapshot, group: FileGroup, wanted: StructType, column: str
) -> DataFrame:
    rows = read_as_is(spark, files, group.paths, takes_bytes=True)
    by_name = {field.name.lower(): field for field in wanted}
    values, left = {}, []
    own_types = T.StructType([own for own in rows.schema if own.dataType.typeName() != "string"])
    stopping = stopping_texts(rows, own_types) if files.strict else {}
    for own in rows.schema:
        value, field = F.col(quoted(own.name)), by_name.get(own.name.lower())
        is_text = files.strict and own.dataType.typeName() == "string"
        value = stopping.get(own.name, value)
        if field is not None and _is_same(own.dataType, field.dataType):
            fitting = as_type(value, own.dataType, field.dataType)
            is_utf_8 = F.is_valid_utf8(value)
            values[field.name] = F.when(is_utf_8, fitting) if is_text else fitting
            if is_text:
                left.append(F.when(~is_utf_8, F.base64(value.cast("binary"))).alias(own.name))
            continue
        if field is not None and own.dataType.typeName() in _PARTS and holds_parts(own.dataType, field.dataType):
            values[field.name] = as_type(value, own.dataType, field.dataType)
            continue
        if field is not None and (converted := conversion(own.dataType, field)) is not None:
            values[field.name] = F.when(~converted.misfits, converted.value)
            left.append(F.when(converted.misfits, value).alias(own.name))
            continue
        if is_text:
            value = F.when(F.is_valid_utf8(value), value).otherwise(F.base64(value.cast("binary")))
        value = value.alias(own.name)
        left.append(value)
        if field is not None:
            values[field.name] = F.lit(None).cast(field.dataType)
    return _with_rescued(rows, group, wanted, column, values, left)


def _is_same(own: DataType, wanted: DataType) -> bool:
    return bool(plain_type(own.jsonValue()) == plain_type(wanted.jsonValue()))


def _with_folders(own: StructType, group: FileGroup) -> StructType:
    names = {name.lower() for name in own.names}
    more = [name for name in map(column_name, group.keys) if name.lower() not in names]
    return T.StructType(
        [*(field for field in own if field.name != _RECORD), *(T.StructField(name, T.StringType()) for name in more)]
    )


def _with_rescued(
    rows: DataFrame,
    group: FileGroup,
    wanted: StructType,
    column: str,
    values: Mapping[str, Column],
    left: Sequence[Column],
) -> DataFrame:
    """The wanted columns of ``rows``, and ``left`` as JSON.

    Args:
        values: of columns that are not taken as they are.
    """
    record = [F.col(_RECORD).alias("_corrupt_record")] if _RECORD in rows.columns else []
    parts = [*left, *record]
    text = F.to_json(F.struct(*parts), EXACT_TIMES) if parts else F.lit(None).cast("string")
    kept = F.when(text != "{}", text).alias(column)
    return filled_from_folders(rows, group.keys, wanted, values, [kept])
