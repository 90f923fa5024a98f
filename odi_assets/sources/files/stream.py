"""Landing files as a stream: each is read once, in the order of their times of change."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from odi_assets.errors import SourceError
from odi_assets.sources.errors import is_about_header, unreadable_file, unreadable_place
from odi_assets.sources.files.deliveries import (
    as_read,
    checked_columns,
    empty_option,
    stopping_columns,
    way_of_all,
    without_missing,
)
from odi_assets.sources.files.folders import column_name, filled_from_folders, folder_keys
from odi_assets.sources.files.groups import FileGroup, csv_columns
from odi_assets.sources.files.listing import SourceFile, is_named, list_files, listing, with_folders
from odi_assets.sources.files.options import reader_options
from odi_assets.sources.files.parquet.texts import stopping_texts
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.losses import Loss
from odi_assets.sources.streamed import Offset, ReadBefore, ReadLog, RowsByFile, StreamedSource, StreamRead
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stop_message
from odi_assets.tables.reader import file_uri_key, place_key
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.sources.files.snapshot import FilesSnapshot
    from odi_assets.sources.files.source import LandingFiles

_GLOB = re.compile(r"[\\*?\[\]{}]")
_FOR_EVER = "36500d"
_FEW_FILES = 16
"""The size of a batch is known up to this many files: each of them is asked for its size."""
_COLON = re.compile(r"Relative path in absolute URI: (.+)")
"""What Hadoop says of a name in a folder that it looks through for a glob."""
_FIX_OF_HEADER = (
    "nothing of the batch was written: put the file back, under its name, with the columns of `read.schema` in their "
    "order; or load the files with a node that has `read.rescued: COLUMN`, which reads them by the names in their "
    'headers, and stream its table; `options: {enforceSchema: "true"}` takes columns by position, whatever headers say'
)
_NODE_INSTEAD = "or load the files with a node that has `read.rescued: COLUMN`, and stream its table"


class _Columns(NamedTuple):
    """Where the columns of ``read.schema`` come from.

    Attributes:
        own: those that the files have themselves.
        keys: of folders, as ``folder_keys`` has them.
        way: how the files are read, as ``deliveries.looks`` would find it.
    """

    own: StructType
    keys: tuple[str, ...]
    way: str


@dataclass(frozen=True, kw_only=True)
class StreamedFiles(StreamedSource):
    """Landing files as an input of a query: with the rows that a node without ``stream`` would have of them."""

    source: LandingFiles
    _keys: set[str] = field(init=False, default_factory=set, repr=False, compare=False)
    """The columns of folders that the query looks for."""

    def plan(self, log: ReadLog, start: Offset | None) -> StreamRead:
        read = {} if start is None else log.read_files(self.name, int(start["logOffset"]))
        known = {file_uri_key(uri): file.changed_ms for uri, file in read.items()}
        found = listing(self.source.base, self.source.path)
        self._require_named(path for folder in found.folders for path in self._new_in(folder, known))
        listed = self._by_uri(found.files)
        new = [uri for uri in listed if uri not in known]
        if self.settings.max_files_per_batch != 1:
            self._require_plain_names(new, "rename it; or give each file its own batch: `max_files_per_batch: 1`")
        newest = max(listed.values()).path if listed else None
        planned = self._planned(
            self.source.format.value,
            self.source.snapshot_of(tuple(listed.values()), ()).position,
            start,
            {"files": len(listed), "newest": newest},
            len(new),
            counted(len(new), "new file") if new else "no new files",
        )
        is_strange = bool(known and listed) and len(new) == len(listed)
        return replace(
            planned,
            elsewhere=self._read_elsewhere(listed, new, known, self.name),
            is_strange=is_strange,
            changed=self._changed(listed, known),
        )

    def _changed(self, listed: Mapping[str, SourceFile], known: Mapping[str, int]) -> dict[str, int]:
        """The files that are not as old as the query noted it, by their paths, and when they changed last."""
        # Clients of stores differ in what they cut off a second.
        unit = 1 if self.source.base.is_local else 1000
        times = {uri: file.mtime_ns // 1_000_000 for uri, file in listed.items()}
        changed = {uri for uri in times.keys() & known.keys() if times[uri] // unit != known[uri] // unit}
        return {listed[uri].path: times[uri] for uri in sorted(changed)}

    def losses(self, log: ReadLog) -> Iterator[Loss]:
        """Files that batches have read and that are gone, to whatever folder the others were moved."""
        listed = self._listed()
        known = {file_uri_key(uri): uri for uri in log.read_files(self.name)}
        moved = self._read_elsewhere(listed, list(listed), known, self.name)
        gone = known.keys() - listed.keys()
        if moved is not None:
            gone -= {moved.folder + uri.removeprefix(moved.now) for uri in listed}
        if gone:
            text = f"rows of {counted(len(gone), 'file')} of {self.label} gone since"
            yield Loss(text, tuple(sorted(known[uri] for uri in gone)), for_good=True)

    def read_before(self, log: ReadLog, name: str, end: Offset) -> ReadBefore | None:
        del end
        known = {file_uri_key(uri) for uri in log.read_files(name)}
        listed = self._listed()
        same = [uri for uri in listed if uri in known]
        if same:
            folder = self._folder(listed)
            return ReadBefore(self.name, name, folder, folder, len(same), same[0].removeprefix(f"{folder}/"))
        return self._read_elsewhere(listed, list(listed), known, name)

    def _listed(self) -> dict[str, SourceFile]:
        """Its files, by ``file_uri_key``."""
        return self._by_uri(list_files(self.source.base, self.source.path))

    def _by_uri(self, files: Iterable[SourceFile]) -> dict[str, SourceFile]:
        return {place_key(self.source.base.child(file.path)): file for file in files}

    def _new_in(self, folder: str, known: Collection[str]) -> Iterator[str]:
        """The files in a folder that no batch has read."""
        base = self.source.base
        files = list_files(base, folder if base.is_local else glob.escape(folder))
        return (file.path for uri, file in self._by_uri(files).items() if uri not in known)

    def _require_named(self, paths: Iterable[str]) -> None:
        """Spark looks into folders that a glob names, and beside folders where a path has ``**``."""
        path = self.source.path
        other = next((file for file in paths if not is_named(self.source.base, path, file)), None)
        if other is not None:
            raise SourceError(
                f"{self.label}: Spark reads {other}, too, which `path` does not name",
                fix=f"give the stream a `path` that names it, as {with_folders(path)}; or move the file away",
                path=other,
            )

    def _found(self, uris: Iterable[str]) -> dict[str, SourceFile]:
        """A few files, as ``_listed`` has them: what a batch costs does not grow with the files in the folder."""
        base, root = self.source.base, f"{place_key(self.source.base).rstrip('/')}/"
        keys = [key for key in map(file_uri_key, uris) if key.startswith(root)]
        as_named = str if base.is_local else glob.escape
        return {key: file for key in keys for file in list_files(base, as_named(key.removeprefix(root)))}

    def _folder(self, listed: Mapping[str, SourceFile]) -> str:
        """The folder below which all of its files are."""
        fixed = list(takewhile(lambda part: not _GLOB.search(part), self.source.path.strip("/").split("/")))
        folder = "/".join([place_key(self.source.base).rstrip("/"), *fixed])
        return folder.rpartition("/")[0] if folder in listed else folder

    def _read_elsewhere(
        self, listed: Mapping[str, SourceFile], new: Sequence[str], known: Collection[str], name: str
    ) -> ReadBefore | None:
        """What of the ``new`` files was read in another folder: files of the same names below it, and of the same
        sizes, as far as they are still there."""
        folder = self._folder(listed)
        elsewhere = sorted(uri for uri in known if not uri.startswith(f"{folder}/"))
        if not elsewhere or not new:
            return None
        names = {uri.removeprefix(f"{folder}/"): uri for uri in new}
        tails_by_folder: dict[str, list[str]] = {}
        for uri in elsewhere:
            parts = uri.split("/")
            ends = ("/".join(parts[number:]) for number in range(1, len(parts)))
            end = next((tail for tail in ends if tail in names), None)
            if end is not None:
                tails_by_folder.setdefault(uri.removesuffix(f"/{end}"), []).append(end)
        for former, tails in tails_by_folder.items():
            looked_at = tails[:: max(1, len(tails) // _FEW_FILES)]
            if any(self._may_be(f"{former}/{tail}", listed[names[tail]]) for tail in looked_at):
                return ReadBefore(self.name, name, former, folder, len(tails), tails[0])
        return None

    def _may_be(self, former: str, now: SourceFile) -> bool:
        """Whether the file that is ``now`` may be the one that was read at ``former``: that is gone, or as large, or
        cannot be looked at (any more)."""
        if urlsplit(former)[:2] != urlsplit(self.source.base.uri)[:2]:
            # Another store, which these credentials are not for.
            return True
        try:
            return self._size(former) == now.size
        except OSError:
            return True

    def _size(self, uri: str) -> int:
        filesystem, path = replace(self.source.base, uri=uri).in_store()
        return int(filesystem.size(path) or 0)

    def size(self, log: ReadLog, start: Offset | None, end: Offset) -> int | None:
        files = self._files(log, start, end)
        if len(files) > _FEW_FILES:
            return None
        try:
            return sum(self._size(unquote(uri)) for uri in files)
        except FileNotFoundError:
            return None

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        # By default, Spark passes over files that changed a week before the newest one, and says nothing.
        reader, most = (
            spark.readStream.name(self.name).option("maxFileAge", _FOR_EVER),
            self.settings.max_files_per_batch,
        )
        limit = {} if most is None else {"maxFilesPerTrigger": str(most)}
        listed = self._listed()
        columns = self._columns(spark, listed)
        self._keys.update(columns.keys)
        return self._as_wanted(
            self._load(reader, listed, self._spark_path(), columns, {**self._recursion(), **limit}), columns
        )

    def raw_batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset) -> DataFrame | None:
        files = self._files(log, start, end)
        if not files:
            return None
        # The log has URIs; Spark takes paths, and globs in them.
        paths = [replace(self.source.base, uri=unquote(uri)).spark_path for uri in files]
        columns = self._columns(spark, self._listed())
        return self._as_wanted(self._load(spark.read, map(file_uri_key, files), paths, columns), columns)

    def _snapshot(self, files: Sequence[SourceFile] = ()) -> FilesSnapshot:
        return self.source.snapshot_of(tuple(files), files)

    def _columns(self, spark: SparkSession, listed: Mapping[str, SourceFile]) -> _Columns:
        schema, files = self.schema(), self._snapshot()
        names = {name.lower() for name in schema.names}
        paths = [self.source.path, *(file.path for file in listed.values() if file.size)]
        paths_by_key = {key: path for path in paths for key in folder_keys(path) if column_name(key).lower() in names}
        is_csv = self.source.format == FileFormat.CSV
        paths = [path for path in paths_by_key.values() if path != self.source.path]
        own = schema
        if is_csv and paths:
            own_names = csv_columns(spark, files, FileGroup(paths, tuple(paths_by_key)), schema.names)
            own = type(schema)([struct_field for struct_field in schema if struct_field.name in own_names])
        return _Columns(own, tuple(paths_by_key), way_of_all(files))

    def _in_order(self, keys: Sequence[str]) -> StructType:
        """The columns of the schema in the order that states of queries have them in: Spark itself finds the columns of
        folders below a folder, and has them last."""
        schema = self.schema()
        if _GLOB.search(self.source.path):
            return schema
        positions = {column_name(key).lower(): number for number, key in enumerate(keys, 1)}
        return type(schema)(sorted(schema, key=lambda struct_field: positions.get(struct_field.name.lower(), 0)))

    def _load(
        self,
        reader: Any,
        names: Iterable[str],
        paths: str | Sequence[str],
        columns: _Columns,
        more: Mapping[str, str] | None = None,
    ) -> DataFrame:
        # Not under a name of its own for these credentials: the checkpoint would know the files by that name.
        files = self._snapshot()
        options = reader_options(files, self.source.base, names, {**empty_option(columns.way), **(more or {})})
        types = as_read(files, columns.own, columns.way) if self._checks_values else columns.own
        rows: DataFrame = reader.format(self.source.format.value).schema(types).options(**options).load(paths)
        return rows

    @property
    def _checks_values(self) -> bool:
        return self.source.strict and self.source.format != FileFormat.PARQUET

    def _as_wanted(self, rows: DataFrame, columns: _Columns) -> DataFrame:
        """``rows`` with the columns of the schema; what does not fit stops the batch."""
        if self._checks_values:
            # Over a value that Spark does not know to be the same each time, as input_file_name(), conditions of joins
            # do not reach the files, and whether a column of the state may be NULL would change from batch to batch.
            path = rows.metadataColumn("_metadata").getField("file_path")
            values = stopping_columns(self._snapshot(), columns.own, columns.way, path)
        else:
            values = stopping_texts(rows, columns.own) if self.source.strict else {}
        if columns.keys or values:
            rows = filled_from_folders(rows, columns.keys, self._in_order(columns.keys), values)
        return without_missing(rows, self.schema(), None, F.lit(self.label)) if self.source.strict else rows

    @property
    def _ddl(self) -> str:
        # `stream_mistakes` of the settings asks for it.
        assert self.source.schema_ddl is not None
        return self.source.schema_ddl

    def schema(self) -> StructType:
        return struct_of(self._ddl)

    def read_error(self, text: str) -> SourceError | None:
        colon = _COLON.search(text)
        if colon is not None and self._has_below_glob(colon[1]):
            return SourceError(
                f"{self.label}: `{colon[1]}` has a colon in its name, which Hadoop does not take below a glob",
                fix="rename it; or name a folder in `path`, without a glob: a stream reads all files below it",
            )
        uri = unreadable_place(text)
        if uri is not None and file_uri_key(uri) not in self._listed():
            return None
        stopped = stop_message(text)
        if stopped is not None and "://" in stopped[0] and not self._has_file_of(stopped[0]):
            return None
        error = self.source.snapshot().read_error(text) or unreadable_file(self.label, text)
        if error is None or not is_about_header(text):
            return error and _of_stream(error)
        return SourceError(error.message, fix=_FIX_OF_HEADER, **error.fields)

    def _has_below_glob(self, name: str) -> bool:
        """Whether a file or a folder has this name in the folders that a glob looks through."""
        fixed = "/".join(takewhile(lambda part: not _GLOB.search(part), self.source.path.strip("/").split("/")))
        is_glob = fixed != self.source.path.strip("/")
        return is_glob and any(name in file.path.split("/") for file in list_files(self.source.base, fixed))

    def _has_file_of(self, message: str) -> bool:
        return any(file_uri_key(message).startswith(f"{uri}:") for uri in self._listed())

    def rows_by_file(
        self, spark: SparkSession, log: ReadLog, ends: Mapping[int, Offset | None], file_as: str
    ) -> RowsByFile:
        numbers = {file_uri_key(uri): file.number for uri, file in log.read_files(self.name).items()}
        offsets = {batch: -1 if end is None else int(end["logOffset"]) for batch, end in ends.items()}
        root = f"{place_key(self.source.base).rstrip('/')}/"
        listed = self._listed()
        gone = sorted(uri.removeprefix(root) for uri in numbers if uri not in listed)
        text = f"{counted(len(gone), 'file')} that it had read, among them {gone[0]}" if gone else None
        rows = None
        if listed:
            # A line that does not fit has stopped the stream; here it must not hide the others.
            lenient = {"mode": "PERMISSIVE", "enforceSchema": "true", **self.source.options}
            columns = self._columns(spark, listed)
            rows = self._load(spark.read, listed, self._spark_path(), columns, {**lenient, **self._recursion()})
            checked = checked_columns(self._snapshot(), columns.own, columns.way) if self._checks_values else {}
            values = {name: F.when(~check.misfits, check.value) for name, check in checked.items()}
            file = F.col("_metadata.file_path").alias(file_as)
            rows = filled_from_folders(rows, columns.keys, self.schema(), values, [file])
        return RowsByFile(rows, batches_of_files(numbers, offsets), text, root)

    def require_readable(
        self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset
    ) -> Mapping[str, int]:
        # Files may have come since the run was planned.
        uris = self._files(log, start, end)
        listed = self._listed() if len(uris) > _FEW_FILES else self._found(uris)
        root = f"{place_key(self.source.base).rstrip('/')}/"
        keys = map(file_uri_key, uris)
        self._require_named(key.removeprefix(root) for key in keys if key.startswith(root))
        self._require_plain_names(uris, "rename it, and start the stream over: odi run … --full-refresh")
        files = [file for uri in uris if (file := listed.get(file_uri_key(uri))) is not None and file.size]
        names = {name.lower() for name in self.schema().names}
        for file in files:
            new = [key for key in folder_keys(file.path) if column_name(key).lower() in names and key not in self._keys]
            if new:
                raise SourceError(
                    f"{self.label}: {file.path} is the first file whose folders name the column `{new[0]}`, and came "
                    "after the query had begun",
                    fix="nothing of the batch was written: run the node again, and the column is read from the folders",
                    path=file.path,
                    column=new[0],
                )
        if self.source.strict and files:
            from odi_assets.sources.files.united import require_read_alike

            try:
                require_read_alike(spark, self._snapshot(files), [file.path for file in files])
            except SourceError as error:
                raise _of_stream(error) from error
        return self._changed(listed, {file_uri_key(uri): changed_ms for uri, changed_ms in uris.items()})

    def _require_plain_names(self, uris: Collection[str], fix: str) -> None:
        """If one of a batch's files has characters of globs in its path, the batch gives rows of the others twice:
        Spark takes the paths of the batch for globs, and lists what is beside them (4.2, ``FileStreamSource``)."""
        odd = next((path for path in map(unquote, uris) if _GLOB.search(path)), None)
        if odd is not None and len(uris) > 1:
            raise SourceError(
                f"{self.label}: {odd} has a character of globs in its path: Spark would read rows of its batch twice",
                fix=fix,
                path=odd,
            )

    def _files(self, log: ReadLog, start: Offset | None, end: Offset) -> dict[str, int]:
        """The files between two offsets, by their URIs, each with the time of its last change as Spark noted it."""
        return log.files(self.name, -1 if start is None else int(start["logOffset"]), int(end["logOffset"]))

    def _recursion(self) -> dict[str, str]:
        _, stars, name = self.source.path.partition("**")
        if not stars:
            # Columns of folders are found here, and not by Spark: it would find none below a glob.
            return {} if _GLOB.search(self.source.path) else {"recursiveFileLookup": "true"}
        return {"recursiveFileLookup": "true", **({"pathGlobFilter": name.strip("/")} if name.strip("/") else {})}

    def _spark_path(self) -> str:
        return f"{self.source.base.spark_path}/{self.source.path.partition('**')[0].rstrip('/')}".rstrip("/")


def _of_stream(error: SourceError) -> SourceError:
    """``error`` with what there is to do about it where a stream has met it."""
    fix = error.fix or ""
    if "stream" in fix:
        return error
    parts = [part for part in fix.split("; ") if "read.rescued" not in part and part != "nothing was loaded"]
    ways = "; ".join(parts).removeprefix("nothing was loaded: ").removeprefix("or ")
    ways = "; or ".join(filter(None, ["put the file right, under its name", ways]))
    return SourceError(
        error.message,
        fix=f"nothing of the batch was written: {ways}; {_NODE_INSTEAD}",
        **error.fields,
    )


def batches_of_files(numbers: Mapping[str, int], ends: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """The first and the last batch that may have read each file; a file that no batch has read is left out.

    Args:
        numbers: by file, its number in the input's log.
        ends: by batch, as far as they are known, the number up to which it read; -1 if nothing was read so far.
    """
    ordered = sorted(ends)
    batches_by_number: dict[int, tuple[int, int]] = {}
    index = 0
    for number in sorted(set(numbers.values())):
        while index < len(ordered) and ends[ordered[index]] < number:
            index += 1
        if index < len(ordered):
            batches_by_number[number] = ordered[index - 1] + 1 if index else 0, ordered[index]
    return {path: batches_by_number[number] for path, number in numbers.items() if number in batches_by_number}
