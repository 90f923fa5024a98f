"""Cursors as Spark columns: windows over them, their upper bound, and rows that were loaded already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from odi_assets.config.models import DateFormat
from odi_assets.errors import IncrementError, NoCursorColumnError
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.marks import CursorMark
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted, row_text
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = 2**63
_FIRST_YEAR, _LAST_YEAR = 1, 9999
_TIMES = {"date", "timestamp", "timestamp_ntz"}
_HASH = "__odi_hash"
_NUMBER = "__odi_number"
_PLACE = "__odi_place"
_WIDEST = 60
"""As much of a text as a message shows."""

_TIME = "[ H:mm[:ss[.SSSSSSSSS]]]"
DATE_PATTERNS: Mapping[DateFormat, tuple[str, ...]] = {
    # Oracle's DD-MON-RR HH24:MI:SS.FF, as in Odibi; `parsed_date` corrects the century of RR.
    "oracle": (f"d-MMM-yy{_TIME}", f"d-MMM-yyyy{_TIME}"),
    # Style 120 of SQL Server's CONVERT, and 121, which has a fraction.
    "sql_server": (f"yyyy-MM-dd{_TIME}",),
    "us": (f"M/d/yyyy{_TIME}",),
    "eu": (f"d/M/yyyy{_TIME}",),
    "iso": ("yyyy-MM-dd['T'HH:mm[:ss[.SSSSSSSSS]][XXX]]",),
}
"""Spark's patterns of each format. The time may be left out, and so may its seconds and their fraction."""


def has_times(rows: DataFrame, column: str) -> bool:
    """Whether rows have the column, and it is a date or a time."""
    return any(field.name == column and field.dataType.simpleString() in _TIMES for field in rows.schema.fields)


def require_times(rows: DataFrame, column: str, label: str) -> None:
    """Raises IncrementError unless ``column`` is a date or a time, which a rolling window needs."""
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if column not in kinds:
        raise NoCursorColumnError(
            f"{label} has no column `{column}`; it has {', '.join(kinds)}",
            fix="correct `incremental.column` in the project file",
            column=column,
        )
    if kinds[column] not in _TIMES:
        raise IncrementError(
            f"`{column}` of {label} is {kinds[column]}, and a rolling window is one of dates or times",
            fix="choose a column of dates or times; dates written as text are followed by mode: stateful with a "
            "`date_format`",
            column=column,
        )


def window_condition(rows: DataFrame, window: Window) -> Column:
    """``lower < cursor <= upper``; rows without a cursor are in the window only if it says so."""
    cursor = cursor_column(rows, window)
    condition = cursor.isNotNull()
    if window.lower is not None:
        low = literal(_lower_of(rows, window))
        condition &= cursor >= low if window.lower_inclusive else cursor > low
    if window.upper is not None:
        upper = literal(window.upper)
        condition &= cursor <= upper if window.upper_inclusive else cursor < upper
    return condition | cursor.isNull() if window.nulls else condition


def _lower_of(rows: DataFrame, window: Window) -> Any:
    is_day = isinstance(rows.schema[window.column].dataType, T.DateType)
    # A rolling window begins at a time of day; in a column of dates, it includes that day.
    return window.lower.date() if is_day and isinstance(window.lower, datetime) else window.lower


def cursor_column(rows: DataFrame, window: Window) -> Column:
    """The cursor of a window: its column, or its fallback where that is NULL. NaN and infinity count as no cursor."""
    columns = [_position(rows, name, window.date_format) for name in (window.column, window.fallback) if name]
    return F.coalesce(*columns) if len(columns) > 1 else columns[0]


def _position(rows: DataFrame, name: str, date_format: DateFormat | None) -> Column:
    column = F.col(quoted(name))
    if date_format is not None:
        return parsed_date(column, date_format)
    if isinstance(rows.schema[name].dataType, T.DoubleType | T.FloatType):
        # Spark sorts NaN above all numbers: as an HWM, it would keep all later rows out. What is below all numbers
        # would be read by a first run alone.
        is_finite = ~F.isnan(column) & ~column.isin(float("inf"), float("-inf"))
        return F.when(is_finite, column)
    return column


def parsed_date(column: Column, date_format: DateFormat) -> Column:
    """A date written as text, as an instant; text without an offset is UTC. NULL where it does not parse."""
    trimmed = F.trim(column)
    parsed = [F.try_to_timestamp(trimmed, F.lit(pattern)) for pattern in DATE_PATTERNS[date_format]]
    if date_format == "oracle":
        # RR: two-digit years from 50 on are of the last century (Oracle, "The RR Datetime Format Element").
        last_century = parsed[0] - F.make_ym_interval(F.lit(100), F.lit(0))
        parsed[0] = F.when(F.year(parsed[0]) >= 2050, last_century).otherwise(parsed[0])
    return F.coalesce(*parsed)


def literal(value: Any) -> Column:
    """A value of the state layer as a constant, whatever the zone of this machine and of the session."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
    if isinstance(value, date):
        return F.lit(value.isoformat()).cast("date")
    if isinstance(value, int) and not -_LONG <= value < _LONG:
        return F.lit(Decimal(value))
    return F.lit(value)


def spark_bound(rows: DataFrame, window: Window, label: str, row_file: Column | None = None) -> Bound:
    """The upper bound of a window over ``rows``, in one pass. Rows above the window are counted.

    A TIMESTAMP is collected as microseconds in UTC, because Spark would convert it to this machine's zone.

    Args:
        row_file: the file that a row is in; None if that is not known.

    Raises:
        IncrementError: text of the cursor is no date of the window's format, or the bound is a time beyond Python's.
    """
    if window.date_format is not None:
        # Not within the aggregate: it has no order in which files would come.
        rows = rows.withColumn(_PLACE, F.lit(None).cast("string") if row_file is None else row_file)
    cursor = cursor_column(rows, window)
    above = cursor if window.lower is None else F.when(cursor >= literal(window.lower), cursor)
    if window.lower is not None and not window.lower_inclusive:
        above = F.when(cursor > literal(window.lower), cursor)
    beyond_window = F.lit(False) if window.upper is None else cursor > literal(window.upper)
    above = F.when(~beyond_window, above)
    kind = rows.select(cursor.alias("c")).schema["c"].dataType
    is_instant, greatest = isinstance(kind, T.TimestampType), F.max(above)
    is_time = isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType)
    beyond = ~F.year(greatest).between(_FIRST_YEAR, _LAST_YEAR) if is_time else F.lit(False)
    figures = rows.agg(
        F.when(~beyond, F.unix_micros(greatest) if is_instant else greatest).alias("upper"),
        F.when(beyond, greatest.cast("string")).alias("beyond"),
        F.count_if(cursor.isNull()).alias("nulls"),
        F.count_if(beyond_window).alias("ahead"),
        *_misfits(window),
    ).collect()[0]
    if window.date_format is not None and figures["misfits"]:
        count, example = int(figures["misfits"]), figures["example"]
        where = f" of {unquote(example['place'])}" if example["place"] else ""
        raise IncrementError(
            f"{counted(count, 'row')} of {label} {'has' if count == 1 else 'have'} text that is no date of the format "
            f"`{window.date_format}`: {example['text'][:_WIDEST]!r} in `{example['name']}`{where}",
            fix="correct `incremental.date_format`, or the source; a row that is not read would be lost",
            column=window.column,
            count=count,
        )
    if figures["beyond"] is not None:
        raise IncrementError(
            f"the greatest `{window.column}` of {label} is {figures['beyond']}, and no HWM holds a year like that",
            fix="correct it at the source, or choose another cursor: an HWM that means `never` would end the "
            "increments",
            column=window.column,
        )
    upper = figures["upper"]
    if is_instant and upper is not None:
        upper = _EPOCH + timedelta(microseconds=upper)
    upper = bytes(upper) if isinstance(upper, bytearray) else upper
    return Bound(upper, int(figures["nulls"]), int(figures["ahead"]))


def least(rows: DataFrame, column: str) -> Any:
    """The least value of a column, a TIMESTAMP as an instant in UTC; None if there is none, or some rows have none."""
    name = F.col(quoted(column))
    is_instant = isinstance(rows.schema[column].dataType, T.TimestampType)
    value = F.min(F.unix_micros(name) if is_instant else name)
    minimum = rows.agg(F.when(F.count_if(name.isNull()) == 0, value).alias("least")).collect()[0]["least"]
    return _EPOCH + timedelta(microseconds=minimum) if is_instant and minimum is not None else minimum


def _misfits(window: Window) -> list[Column]:
    """How many rows have text that is no date, and the least text of them: its column, and the file that it is in."""
    if window.date_format is None:
        return []
    examples = []
    for name in filter(None, (window.column, window.fallback)):
        column = F.col(quoted(name))
        wrong = column.isNotNull() & parsed_date(column, window.date_format).isNull()
        misfit = F.struct(column.alias("text"), F.lit(name).alias("name"), F.col(_PLACE).alias("place"))
        examples.append(F.when(wrong, misfit))
    example = F.coalesce(*examples)
    return [F.count_if(example.isNotNull()).alias("misfits"), F.min(example).alias("example")]


def counted_rows(rows: DataFrame, most: int, columns: Sequence[str] | None = None) -> dict[str, int] | None:
    """How many rows there are of each hash; None if there are more than ``most`` different ones.

    Args:
        columns: those that are hashed; None: all.
    """
    hashes = rows.select(_row_hash(columns or rows.columns).alias(_HASH))
    counts = hashes.groupBy(_HASH).agg(F.count(F.lit(1)).alias(_NUMBER)).limit(most + 1).collect()
    return None if len(counts) > most else {row[_HASH]: int(row[_NUMBER]) for row in counts}


def without_ties(rows: DataFrame, window: Window) -> DataFrame:
    """``rows`` without those at the lower bound that were loaded; of equal rows, only as many as were loaded."""
    if not window.ties or window.lower is None:
        return rows
    return _with_tied(rows, window, window.lower, window.ties, window.tied_by, loaded=False)


def without_later_ties(rows: DataFrame, window: Window, mark: CursorMark) -> DataFrame:
    """``rows`` without those at the upper bound, which is ``mark``, that it does not remember: they came later."""
    return _with_tied(rows, window, window.upper, mark.ties or {}, tuple(mark.tied_by or ()), loaded=True)


def _with_tied(
    rows: DataFrame,
    window: Window,
    value: Any,
    ties: Mapping[str, int],
    tied_by: tuple[str, ...] | None,
    *,
    loaded: bool,
) -> DataFrame:
    """``rows``, of those with the cursor ``value`` only the ones in ``ties``, or only the others."""
    from pyspark.sql import Window as Over

    known = rows.sparkSession.createDataFrame(list(ties.items()), f"{_HASH} STRING, known BIGINT")
    is_tied = cursor_column(rows, window).eqNullSafe(literal(value))
    at = rows.where(is_tied).withColumn(_HASH, _row_hash(tied_by or rows.columns))
    numbered = at.withColumn(_NUMBER, F.row_number().over(Over.partitionBy(_HASH).orderBy(_HASH)))
    is_known = F.col(_NUMBER) <= F.coalesce("known", F.lit(0))
    tied = numbered.join(F.broadcast(known), _HASH, "left").where(is_known if loaded else ~is_known)
    return rows.where(~is_tied).unionByName(tied.select(*[F.col(quoted(name)) for name in rows.columns]))


def without_cursor(rows: DataFrame, window: Window) -> DataFrame:
    """The texts of the rows that have no cursor."""
    return rows.where(cursor_column(rows, window).isNull()).select(row_text(rows.columns).alias("row"))


def _row_hash(columns: Sequence[str]) -> Column:
    """A hash of 128 bits of the text of a row. Spark's hash of the row itself ignores NULLs in nested values."""
    text = row_text(columns)
    return F.concat(F.hex(F.xxhash64(text)), F.hex(F.xxhash64(F.lit(1), text)))
