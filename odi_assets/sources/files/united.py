"""Files of several shapes, or with columns in the names of their folders, as the rows of one source.

Files of one shape are read together, and shapes are united by the names of their columns: what is stored does not
depend on which files come in one increment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.delta.types import (
    common_schema,
    ddl_name,
    ddl_type,
    holding_type,
    plain_type,
    same_but_for_nulls,
    type_name,
)
from odi_assets.errors import SourceError
from odi_assets.sources.files.deliveries import looks, stopping_columns, strict_rows, without_missing
from odi_assets.sources.files.folders import (
    column_name,
    filled_from_folders,
    folder_keys,
    with_folder_columns,
)
from odi_assets.sources.files.groups import SHOWN, FileGroup, csv_columns, differing, listed, read_as_is
from odi_assets.sources.files.parquet.columns import parquet_rows, require_own_types, require_whole_microseconds
from odi_assets.sources.files.parquet.misread import without_columns
from odi_assets.sources.files.parquet.nulls import marked_as_open
from odi_assets.sources.files.rescued import rescued_rows
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.files.shapes import shapes
from odi_assets.tables.schema import aligned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.sources.files.snapshot import FilesSnapshot


def united_rows(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str]) -> DataFrame:
    """The rows of files, lazily, with the columns of all of them; a column that a file lacks is NULL in its rows.

    Raises:
        SourceError: the columns of the files differ, and the node's ``write.schema`` is ``fail``; or a column has types
            that no type holds all values of; or a file cannot be read with its columns.
    """
    declared, groups = files.schema, _groups(spark, files, paths)
    if files.rescued:
        frames = [rescued_rows(spark, files, group, files.rescued) for group in groups]
    elif declared is not None:
        frames = [_with_schema(spark, files, group, declared) for group in groups]
    else:
        frames = [with_folder_columns(read_as_is(spark, files, group.paths, group.way), group.keys) for group in groups]
    if declared is not None and files.strict:
        frames = [without_missing(frame, declared, files.rescued) for frame in frames]
    rows = marked_as_open(_union(files, groups, frames))
    if not rows.columns:
        raise SourceError(
            f"{files.label}: {groups[0]} has no columns",
            fix="land files with columns, or give the node a `path` that does not match it; nothing was loaded",
            path=groups[0].paths[0],
        )
    return rows


def require_read_alike(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str]) -> None:
    """Make sure that Spark, asked for the columns that the project file names, gives the rows of :func:`united_rows`.

    Raises:
        SourceError: it does not, or there are none.
    """
    assert files.schema is not None
    for group in _groups(spark, files, paths):
        if files.format == FileFormat.PARQUET:
            parquet_rows(spark, files, group, files.schema)
            require_own_types(files, group, files.schema)


def _groups(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str]) -> list[FileGroup]:
    """``paths`` in groups, which were looked at; the group of the oldest file is the first."""
    declared = files.schema
    # Other columns of folders do not count.
    wanted = None if declared is None else {name.lower() for name in declared.names}
    keys = {path: _wanted_keys(path, wanted) for path in paths}
    is_text = files.format in (FileFormat.CSV, FileFormat.JSON)
    ways = looks(spark, files, paths) if files.strict and is_text else {}
    paths_by_shape: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for shape, alike in _shapes(spark, files, paths, has_keys=any(keys.values())).items():
        for path in alike:
            paths_by_shape.setdefault((shape, keys[path], ways.get(path, "")), []).append(path)
    groups = [FileGroup(alike, named, way) for (_, named, way), alike in paths_by_shape.items()]
    if files.format == FileFormat.PARQUET and (files.strict or declared is None):
        for group in groups:
            if (error := without_columns(files, group.paths[0])) is not None:
                raise error
            if files.strict:
                require_whole_microseconds(spark, files, group, wanted)
    return groups


def _wanted_keys(path: str, wanted: set[str] | None) -> tuple[str, ...]:
    keys = folder_keys(path)
    return keys if wanted is None else tuple(key for key in keys if column_name(key).lower() in wanted)


def _shapes(
    spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], *, has_keys: bool
) -> Mapping[str, Sequence[str]]:
    """``paths`` by shape; all in one group, without looking at the files, if the columns do not depend on the files."""
    is_csv, is_parquet = files.format == FileFormat.CSV, files.format == FileFormat.PARQUET
    depends = files.schema_ddl is None or (is_csv and has_keys) or files.rescued or (is_parquet and files.strict)
    if len(paths) == 1 or not depends or not (is_csv or is_parquet):
        return {"": paths}
    known = files.looked_at.get(tuple(paths))
    if known is None:
        known = files.looked_at[tuple(paths)] = shapes(spark, files.base, paths, files.format, files.options)
    return known


def _with_schema(spark: SparkSession, files: FilesSnapshot, group: FileGroup, schema: StructType) -> DataFrame:
    """The columns that the project file names; those that the files lack come from the names of their folders."""
    if files.strict and files.format == FileFormat.PARQUET:
        return parquet_rows(spark, files, group, schema)
    of_files = schema
    if group.keys and files.format == FileFormat.CSV:
        names = csv_columns(spark, files, group, schema.names)
        of_files = type(schema)([field for field in schema if field.name in names])
    if not files.strict:
        rows, values = files.load(spark, group.paths, of_files), {}
    else:
        rows = strict_rows(spark, files, group.paths, of_files, group.way)
        values = stopping_columns(files, of_files, group.way)
    return filled_from_folders(rows, group.keys, schema, values) if group.keys or values else rows


def _union(files: FilesSnapshot, groups: Sequence[FileGroup], frames: Sequence[DataFrame]) -> DataFrame:
    if len(frames) == 1:
        return frames[0]
    schemas = [json.loads(frame.schema.json()) for frame in frames]
    if files.one_shape and not files.merges:
        for group, schema in zip(groups[1:], schemas[1:], strict=True):
            _require_same_columns(files, groups[0], schemas[0], group, schema)
    common = schemas[0]
    for group, schema in zip(groups[1:], schemas[1:], strict=True):
        try:
            common = common_schema(common, schema)
        except TypeError as error:
            name, left, right = error.args
            both = None if "." in name else holding_type(left, right)
            with_both = "with `read.rescued` for what does not fit"
            if both is not None:
                with_both = f"`{ddl_name(name)} {ddl_type(both)}` among them, which takes both"
            raise SourceError(
                f"{files.label}: column `{name}` is {type_name(right)} in {group} and {type_name(left)} in the files "
                "before; neither type holds all values of the other",
                fix=f"name the columns in `read.schema`, {with_both}; or land the files with one type; nothing was "
                "loaded",
                path=group.paths[0],
                column=name,
            ) from error
    text = json.dumps(common)
    return reduce(lambda left, right: left.unionAll(right), [aligned(frame, text) for frame in frames])


def _require_same_columns(
    files: FilesSnapshot, first: FileGroup, first_schema: Mapping[str, Any], other: FileGroup, schema: Mapping[str, Any]
) -> None:
    """Raises SourceError unless two groups have the same columns of the same types, in any order."""
    left, right = _fields(first_schema), _fields(schema)
    differences = [
        f"only {group} has {listed([name for name in here if name not in there])}"
        for group, here, there in ((first, left, right), (other, right, left))
        if here.keys() - there.keys()
    ]
    changed = [name for name in left if name in right and not same_but_for_nulls(left[name], right[name])]
    differences += [
        f"`{name}` is {type_name(left[name])} in {first} and {type_name(right[name])} in {other}"
        for name in changed[:SHOWN]
    ]
    if differences:
        raise differing(files, differences, [*(left.keys() ^ right.keys()), *changed])


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {field["name"].lower(): plain_type(field["type"]) for field in schema["fields"]}
