"""Landing files as a stream: each is read once, in the order of their times of change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from odi_assets.errors import SourceError
from odi_assets.sources.errors import is_about_header, unreadable_file, unreadable_place
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.files.options import reader_options
from odi_assets.sources.losses import Loss
from odi_assets.sources.streamed import Offset, ReadBefore, ReadLog, RowsByFile, StreamedSource, StreamRead
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.lazy import F
from odi_assets.tables.reader import file_uri_key, place_key
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from odi_assets.sources.files.source import LandingFiles

_GLOB = re.compile(r"[\\*?\[\]{}]")
_FOR_EVER = "36500d"
_FEW_FILES = 16
"""The size of a batch is known up to this many files: each of them is asked for its size."""
_FIX_OF_HEADER = (
    "nothing of the batch was written: put the file back, under its name, with the columns of `read.schema` in their "
    "order; or load the files with a node that has `read.rescued: COLUMN`, which reads them by the names in their "
    'headers, and stream its table; `options: {enforceSchema: "true"}` takes columns by position, whatever headers say'
)


@dataclass(frozen=True, kw_only=True)
class StreamedFiles(StreamedSource):
    """Landing files as an input of a query."""

    source: LandingFiles

    def plan(self, log: ReadLog, start: Offset | None) -> StreamRead:
        read = {} if start is None else log.read_files(self.name, int(start["logOffset"]))
        known = {file_uri_key(uri): file.changed_ms for uri, file in read.items()}
        listed = self._listed()
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
        # Clients of stores differ in what they cut off a second.
        unit = 1 if self.source.base.is_local else 1000
        changed = (
            file.path
            for uri, file in listed.items()
            if uri in known and file.mtime_ns // 1_000_000 // unit != known[uri] // unit
        )
        return replace(
            planned,
            elsewhere=self._read_elsewhere(listed, new, known, self.name),
            is_strange=is_strange,
            changed=tuple(sorted(changed)),
        )

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
        base = self.source.base
        return {place_key(base.child(file.path)): file for file in list_files(base, self.source.path)}

    def _folder(self, listed: Mapping[str, SourceFile]) -> str:
        """The folder below which all of its files are."""
        fixed = list(takewhile(lambda part: not _GLOB.search(part), self.source.path.strip("/").split("/")))
        found = "/".join([place_key(self.source.base).rstrip("/"), *fixed])
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
        return self._load(reader, self._listed(), self._spark_path(), {**self._recursion(), **limit})

    def raw_batch(self, spark: SparkSession, log: ReadLog, start: Offset | None, end: Offset) -> DataFrame | None:
        files = self._files(log, start, end)
        # The log has URIs; Spark takes paths, and globs in them.
        paths = [replace(self.source.base, uri=unquote(uri)).spark_path for uri in files]
        return self._load(spark.read, map(file_uri_key, files), paths, self._partitions(files)) if files else None

    def _load(
        self, reader: Any, names: Iterable[str], paths: str | Sequence[str], more: Mapping[str, str]
    ) -> DataFrame:
        # Not under a name of its own for these credentials: the checkpoint would know the files by that name.
        options = reader_options(self.source.snapshot_of((), ()), self.source.base, names, more)
        rows: DataFrame = reader.format(self.source.format.value).schema(self._ddl).options(**options).load(paths)
        return rows

    def _partitions(self, files: Sequence[str]) -> dict[str, str]:
        """What makes columns of folders named ``column=value``, as in the stream: Spark looks for them below a folder,
        not in a glob."""
        folder = f"{place_key(self.source.base.child(self.source.path))}/"
        is_below = "**" not in self.source.path and all(file_uri_key(uri).startswith(folder) for uri in files)
        return {"basePath": self._spark_path()} if is_below else {}

    @property
    def _ddl(self) -> str:
        # `stream_mistakes` of the settings asks for it.
        assert self.source.schema_ddl is not None
        return self.source.schema_ddl

    def schema(self) -> StructType:
        return struct_of(self._ddl)

    def read_error(self, text: str) -> SourceError | None:
        place = unreadable_place(text)
        if place is not None and file_uri_key(place) not in self._listed():
            return None
        found = self.source.snapshot().read_error(text) or unreadable_file(self.label, text)
        if found is None or not is_about_header(text):
            return found
        return SourceError(found.message, fix=_FIX_OF_HEADER, **found.fields)

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
            rows = self._load(spark.read, listed, self._spark_path(), {**lenient, **self._recursion()})
            rows = rows.select("*", F.col("_metadata.file_path").alias(file_as))
        return RowsByFile(rows, batches_of_files(numbers, offsets), text, root)

    def require_read_once(self, log: ReadLog, start: Offset | None, end: Offset) -> None:
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

    def _files(self, log: ReadLog, start: Offset | None, end: Offset) -> list[str]:
        """The files between two offsets, as URIs."""
        return log.files(self.name, -1 if start is None else int(start["logOffset"]), int(end["logOffset"]))

    def _recursion(self) -> dict[str, str]:
        _, stars, name = self.source.path.partition("**")
        if not stars:
            return {}
        return {"recursiveFileLookup": "true", **({"pathGlobFilter": name.strip("/")} if name.strip("/") else {})}

    def _spark_path(self) -> str:
        return f"{self.source.base.spark_path}/{self.source.path.partition('**')[0].rstrip('/')}".rstrip("/")


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
