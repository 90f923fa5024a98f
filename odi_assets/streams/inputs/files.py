"""Landing files as an input of a stream."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import fsspec

from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError, SourceError
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.files.options import strict_options
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.lazy import F
from odi_assets.streams.inputs.input import News, ReadBefore, RowsByFile, StreamedInput
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.reader import file_uri_key
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB = re.compile(r"[\\*?\[\]{}]")
_FOR_EVER = "36500d"
_FEW_FILES = 16
"""The size of a batch is known up to this many files: each of them is asked for its size."""


@dataclass(frozen=True, kw_only=True)
class StreamedFiles(StreamedInput):
    """Landing files, each read once, in the order of their times of change.

    Attributes:
        base: where the connection is.
        path: a path or glob below it.
        format, schema_ddl, options, strict: as the project file names them.
    """

    base: Location
    path: str
    format: str
    schema_ddl: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    strict: bool = True

    def news(self, log: ProgressLog, start: Mapping[str, Any] | None) -> News:
        read = set() if start is None else log.all_files(self.name, int(start["logOffset"]))
        known = {file_uri_key(uri) for uri in read}
        listed = self._listed()
        new = [uri for uri in listed if uri not in known]
        if self.settings.max_files_per_batch != 1:
            self._require_plain_names(new, "rename it; or give each file its own batch: `max_files_per_batch: 1`")
        newest = max(listed.values()).path if listed else None
        text = counted(len(new), "new file") if new else "no new files"
        return News(
            len(new),
            {"files": len(listed), "newest": newest},
            text,
            self._read_elsewhere(listed, new, known, self.name),
            is_strange=bool(known and listed) and len(new) == len(listed),
        )

    def missing(self, log: ProgressLog) -> list[str]:
        """Files that batches have read and that are gone, to whatever folder the others were moved."""
        listed = self._listed()
        known = {file_uri_key(uri): uri for uri in log.all_files(self.name)}
        moved = self._read_elsewhere(listed, list(listed), known, self.name)
        gone = known.keys() - listed.keys()
        if moved is not None:
            gone -= {moved.folder + uri.removeprefix(moved.now) for uri in listed}
        return sorted(known[uri] for uri in gone)

    def read_before(self, log: ProgressLog, name: str, end: Mapping[str, Any]) -> ReadBefore | None:
        del end
        known = {file_uri_key(uri) for uri in log.all_files(name)}
        listed = self._listed()
        same = [uri for uri in listed if uri in known]
        if same:
            folder = self._folder(listed)
            return ReadBefore(self.name, name, folder, folder, len(same), same[0].removeprefix(f"{folder}/"))
        return self._read_elsewhere(listed, list(listed), known, name)

    def _listed(self) -> dict[str, SourceFile]:
        """Its files, by ``file_uri_key``."""
        return {file_uri_key(_uri(self.base.child(file.path))): file for file in list_files(self.base, self.path)}

    def _folder(self, listed: Mapping[str, SourceFile]) -> str:
        """The folder below which all of its files are."""
        fixed = list(takewhile(lambda part: not _GLOB.search(part), self.path.strip("/").split("/")))
        found = "/".join([file_uri_key(_uri(self.base)).rstrip("/"), *fixed])
        return found.rpartition("/")[0] if found in listed else found

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
        found: dict[str, list[str]] = {}
        for uri in elsewhere:
            parts = uri.split("/")
            ends = ("/".join(parts[number:]) for number in range(1, len(parts)))
            end = next((one for one in ends if one in names), None)
            if end is not None:
                found.setdefault(uri.removesuffix(f"/{end}"), []).append(end)
        for former, tails in found.items():
            looked_at = tails[:: max(1, len(tails) // _FEW_FILES)]
            if any(self._may_be(f"{former}/{tail}", listed[names[tail]]) for tail in looked_at):
                return ReadBefore(self.name, name, former, folder, len(tails), tails[0])
        return None

    def _may_be(self, former: str, now: SourceFile) -> bool:
        """Whether the file that is ``now`` may be the one that was read at ``former``: that is gone, or as large, or
        cannot be looked at (any more)."""
        if urlsplit(former)[:2] != urlsplit(self.base.uri)[:2]:
            # Another store, which these credentials are not for.
            return True
        filesystem, path = replace(self.base, uri=former).in_store()
        try:
            return int(filesystem.size(path) or 0) == now.size
        except OSError:
            return True

    def size(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> int | None:
        files = self._files(log, start, end)
        if len(files) > _FEW_FILES:
            return None
        found = 0
        for uri in files:
            filesystem, path = fsspec.core.url_to_fs(unquote(uri), **self.base.fsspec_options)
            try:
                found += int(filesystem.size(path) or 0)
            except FileNotFoundError:
                return None
        return found

    def raw_stream(self, spark: SparkSession) -> DataFrame:
        # By default, Spark passes over files that changed a week before the newest one, and says nothing.
        how = {"maxFileAge": _FOR_EVER, **self._reading(), **self._recursion()}
        if self.settings.max_files_per_batch is not None:
            how["maxFilesPerTrigger"] = str(self.settings.max_files_per_batch)
        reader = spark.readStream.name(self.name).format(self.format).schema(self.schema_ddl).options(**how)
        return reader.load(self._spark_path())

    def raw_batch(
        self, spark: SparkSession, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]
    ) -> DataFrame | None:
        files = self._files(log, start, end)
        if not files:
            return None
        reader = (
            spark.read.format(self.format).schema(self.schema_ddl).options(**self._reading(), **self._partitions(files))
        )
        # The log has URIs; Spark takes paths, and globs in them.
        return reader.load([replace(self.base, uri=unquote(uri)).spark_path for uri in files])

    def _partitions(self, files: Sequence[str]) -> dict[str, str]:
        """What makes columns of folders named ``column=value``, as in the stream: Spark looks for them below a folder,
        not in a glob."""
        folder = f"{file_uri_key(_uri(self.base.child(self.path)))}/"
        is_below = "**" not in self.path and all(file_uri_key(uri).startswith(folder) for uri in files)
        return {"basePath": self._spark_path()} if is_below else {}

    def schema(self) -> StructType:
        return struct_of(self.schema_ddl)

    def rows_by_file(
        self, spark: SparkSession, log: ProgressLog, ends: Mapping[int, Mapping[str, Any] | None], file_as: str
    ) -> RowsByFile:
        numbers = {file_uri_key(uri): number for uri, number in log.numbered_files(self.name).items()}
        offsets = {batch: -1 if end is None else int(end["logOffset"]) for batch, end in ends.items()}
        root = f"{file_uri_key(_uri(self.base)).rstrip('/')}/"
        listed = self._listed()
        gone = sorted(uri.removeprefix(root) for uri in numbers if uri not in listed)
        text = f"{counted(len(gone), 'file')} that it had read, among them {gone[0]}" if gone else None
        rows = None
        if listed:
            # A line that does not fit has stopped the stream; here it must not hide the others.
            lenient = {"mode": "PERMISSIVE", "enforceSchema": "true", **self.options}
            how = {**self._reading(), **lenient, **self._recursion()}
            reader = spark.read.format(self.format).schema(self.schema_ddl).options(**how)
            rows = reader.load(self._spark_path()).select("*", F.col("_metadata.file_path").alias(file_as))
        return RowsByFile(rows, batches_of_files(numbers, offsets), text, root)

    def _reading(self) -> dict[str, str]:
        # A line that does not fit stops the run; Spark would make NULLs of it, and say nothing.
        given = {**self.base.reader_options, **self.options}
        return {**strict_options(self.format, given, strict=self.strict), **given}

    def require_read_once(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> None:
        # Files may have come since the run was planned.
        self._require_plain_names(
            self._files(log, start, end), "rename it, and start the stream over: odi run … --full-refresh"
        )

    def _require_plain_names(self, uris: Sequence[str], fix: str) -> None:
        """If one of a batch's files has characters of globs in its path, the batch gives rows of the others twice:
        Spark takes the paths of the batch for globs, and lists what is beside them (4.2, ``FileStreamSource``)."""
        odd = next((path for path in map(unquote, uris) if _GLOB.search(path)), None)
        if odd is not None and len(uris) > 1:
            raise SourceError(
                f"{self.label}: {odd} has a character of globs in its path: Spark would read rows of its batch twice",
                fix=fix,
                path=odd,
            )

    def _files(self, log: ProgressLog, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> list[str]:
        """The files between two offsets, as URIs."""
        return log.files(self.name, -1 if start is None else int(start["logOffset"]), int(end["logOffset"]))

    def _recursion(self) -> dict[str, str]:
        _, stars, name = self.path.partition("**")
        if not stars:
            return {}
        name = name.strip("/")
        if "/" in name or "**" in name:
            raise ConfigError(
                f"`{self.path}` of the input `{self.name}` has folders after `**`, which a stream cannot follow",
                fix="write `**` before the name of the files alone, as in `orders/**/*.json`",
                path=self.path,
            )
        return {"recursiveFileLookup": "true", **({"pathGlobFilter": name} if name else {})}

    def _spark_path(self) -> str:
        return f"{self.base.spark_path}/{self.path.partition('**')[0].rstrip('/')}".rstrip("/")


def _uri(place: Location) -> str:
    return quote(place.uri, safe="/:@=")


def batches_of_files(numbers: Mapping[str, int], ends: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """The first and the last batch that may have read each file; a file that no batch has read is left out.

    Args:
        numbers: by file, its number in the input's log.
        ends: by batch, as far as they are known, the number up to which it read; -1 if nothing was read so far.
    """
    ordered = sorted(ends)
    found: dict[int, tuple[int, int]] = {}
    place = 0
    for number in sorted(set(numbers.values())):
        while place < len(ordered) and ends[ordered[place]] < number:
            place += 1
        if place < len(ordered):
            found[number] = ordered[place - 1] + 1 if place else 0, ordered[place]
    return {path: found[number] for path, number in numbers.items() if number in found}
