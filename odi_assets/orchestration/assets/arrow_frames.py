"""Frames of pandas, polars and pyarrow as Arrow tables, and back: what went in comes back, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from odi_assets.errors import TableError
from odi_assets.tables.undecided import marked
from odi_assets.util.lazy import pa, pl

if TYPE_CHECKING:
    import pandas as pd


_HELD_AS_THEY_ARE = ("string", "bytes", "boolean", "integer", "floating", "empty")
"""Kinds of Python's objects, as pandas infers them, whose values Arrow takes over or refuses."""


def arrow_of(frame: Any, name: str) -> pa.Table:
    """A frame of pandas, pyarrow or polars as an Arrow table.

    Raises:
        TableError: it is none, or Arrow does not hold what is in it.
    """
    try:
        rows = _arrow_of(frame, name)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise TableError(
            f"asset {name} returned a frame that Arrow cannot hold: {' '.join(map(str, error.args))}",
            fix="give each column values of one type, for example frame.astype({'n': 'string'})",
            asset=name,
        ) from error
    if not rows.column_names:
        raise _refused(name, "has no columns", "return the columns that the table is to have, with or without rows")
    _require_own_names(rows.column_names, name)
    return rows


def _require_own_names(columns: Iterable[str], name: str) -> None:
    spelled: dict[str, str] = {}
    for column in columns:
        other = spelled.get(column.lower())
        if other is not None:
            what = f"`{column}` twice" if other == column else f"`{other}` and `{column}`; names know no capitals"
            raise _refused(name, f"has two columns: {what}", "rename one of them: each column needs a name of its own")
        spelled[column.lower()] = column


def _arrow_of(frame: Any, name: str) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatchReader):
        return frame.read_all()
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if package_of(frame) == "pandas" and hasattr(frame, "columns"):
        return _of_pandas(frame, name)
    if package_of(frame) == "polars" and hasattr(frame, "lazy"):
        return _of_polars(frame, name)
    if hasattr(frame, "__arrow_c_stream__") and package_of(frame) not in ("pandas", "polars"):
        return pa.table(frame)
    raise TableError(
        f"asset {name} returned {type(frame).__name__}, which is no frame",
        fix="return a DataFrame of Spark, pandas or polars, or an Arrow table",
    )


def _of_pandas(frame: pd.DataFrame, name: str) -> pa.Table:
    """The columns, and the levels of the index that have names, as columns before them.

    The numbers of an index without a name are positions of rows, and are left out.
    """
    odd = [label for label in frame.columns if not isinstance(label, str | int)]
    if odd:
        raise _refused(name, f"has a column whose label is {odd[0]!r}", "give each column a text as its name")
    _require_own_names(map(str, frame.columns), name)
    # The frame itself is not copied: pandas would do that to set an axis, or to drop an index.
    frame = _with_index(frame, name)
    rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    _require_one_zone(frame, rows.schema, name)
    _require_equal(frame, rows, name)
    return rows if len(frame) else _undecided(frame, rows)


def _with_index(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    names = list(frame.index.names)
    if names == [None]:
        if frame.index.dtype.kind in "iu" or not len(frame):
            return frame
        raise _refused(
            name,
            f"has an index of {frame.index.dtype} without a name, which would be lost",
            "name it, frame.rename_axis('…'), and it becomes a column; or leave it out, frame.reset_index(drop=True)",
        )
    texts = [str(level) for level in names if level is not None]
    taken = next((text for text in texts if text in map(str, frame.columns) or texts.count(text) > 1), None)
    if len(texts) < len(names) or taken is not None:
        what = f"has an index and a column that are both named `{taken}`" if taken else f"has an index named {names}"
        raise _refused(
            name,
            what,
            "give each level of the index a name of its own, frame.rename_axis([…]), and it becomes a column; "
            "or leave the index out, frame.reset_index(drop=True)",
        )
    return frame.rename_axis(texts).reset_index()


def _require_one_zone(frame: pd.DataFrame, schema: pa.Schema, name: str) -> None:
    """Raises TableError if times of a column of Python's objects have a zone and others have none: Arrow takes the
    latter for times in UTC."""
    for position, (kind, field) in enumerate(zip(frame.dtypes, schema, strict=True)):
        if str(kind) != "object" or "timestamp" not in str(field.type):
            continue
        if len({moment.tzinfo is None for value in frame.iloc[:, position] for moment in _times_in(value)}) > 1:
            raise _refused(
                name,
                f"has a column `{field.name}` in which some times have a time zone and others have none",
                "give all of them a zone (`tz_localize`) or none (`tz_localize(None)`) before it is returned",
            )


def _times_in(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        # NaT is a datetime, and not equal to itself.
        if value == value:
            yield value
    elif isinstance(value, Mapping):
        yield from _times_in(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for member in value:
            yield from _times_in(member)


def _require_equal(frame: pd.DataFrame, rows: pa.Table, name: str) -> None:
    """Raises TableError if a value of a column of Python's objects is another one in Arrow."""
    from pandas.api.types import infer_dtype

    for position, (kind, column) in enumerate(zip(frame.dtypes, rows.columns, strict=True)):
        values = frame.iloc[:, position]
        if str(getattr(kind, "categories", values).dtype) != "object" or infer_dtype(values) in _HELD_AS_THEY_ARE:
            continue
        pairs = zip(values, column.to_pylist(), strict=True)
        odd = next(
            (
                (original, held)
                for original, held in pairs
                if not _equal(original, held, missing=isinstance(original, float) and original != original)
            ),
            None,
        )
        if odd is not None:
            raise _refused(
                name,
                f"has a column `{rows.column_names[position]}` in which {odd[0]!r} would become {odd[1]!r}",
                "give its values one type, times no nanoseconds, and what is missing as None",
            )


def _equal(original: Any, held: Any, *, missing: bool = False) -> bool:
    """Whether a value is what Arrow holds. pandas takes NaN for a missing value; within lists and dicts it is a number.

    Args:
        missing: the value is NaN of pandas, which NULL stands for.
    """
    if held is None or original is None:
        return original is held or missing is True or type(original).__name__ in ("NAType", "NaTType")
    if isinstance(original, Mapping) and isinstance(held, dict):
        return original.keys() <= held.keys() and all(_equal(original.get(key), value) for key, value in held.items())
    if isinstance(held, list):
        return len(original) == len(held) and all(map(_equal, original, held))
    if type(original).__name__ == "datetime64":
        held = held.to_datetime64() if hasattr(held, "to_datetime64") else type(original)(held)
    return bool(original == held) or (original != original and held != held)


def _undecided(frame: pd.DataFrame, rows: pa.Table) -> pa.Table:
    """``rows`` with a mark at columns whose type pandas made up: without a value, it says `float64` or `object`."""
    kinds = {str(label): str(kind) for label, kind in frame.dtypes.items()}
    return marked(rows, [label for label, kind in kinds.items() if kind in ("float64", "object")])


def _of_polars(frame: Any, name: str) -> pa.Table:
    frame = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
    # Polars gives out addresses of Python's objects as bytes.
    odd = next(
        (label for label, kind in frame.schema.items() if any(dtype == pl.Object for dtype in _within(kind))), None
    )
    if odd is not None:
        raise _refused(name, f"has a column `{odd}` of type Object", "cast it, for example to pl.String")
    rows: pa.Table = frame.to_arrow()
    return rows


def _within(kind: Any) -> Iterator[Any]:
    """A type of polars and the types within it."""
    yield kind
    inner = getattr(kind, "inner", None)
    for dtype in [*([inner] if inner is not None else []), *(field.dtype for field in getattr(kind, "fields", ()))]:
        yield from _within(dtype)


def _refused(name: str, what: str, fix: str) -> TableError:
    return TableError(f"asset {name} returned a frame that {what}", fix=fix, asset=name)


def frame_as(rows: pa.Table, wanted: Any) -> Any:
    """An Arrow table as the type that an argument is annotated with."""
    package, name = wanted.__module__.partition(".")[0], wanted.__name__
    if package == "pandas":
        return rows.to_pandas()
    if package == "polars":
        frame = pl.from_arrow(rows)
        return frame.lazy() if name == "LazyFrame" and isinstance(frame, pl.DataFrame) else frame
    return rows


def wants_arrow(wanted: Any) -> bool:
    """Whether an argument is annotated with a frame that needs no Spark."""
    return getattr(wanted, "__module__", "").partition(".")[0] in ("pandas", "polars", "pyarrow")


def package_of(frame: Any) -> str:
    """The package whose type a frame is."""
    return type(frame).__module__.partition(".")[0]
