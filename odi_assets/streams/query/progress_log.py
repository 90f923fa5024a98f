"""What a checkpoint's logs say of its query's batches: planned, committed, how far each reads. On any store.

Layout (Spark 4.2, with named sources and version 2 of the offset log): ``metadata`` names the query, ``offsets/N`` is
written before batch N runs and ``commits/N`` after it, ``sources/<input>/N`` lists files as the input first saw them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from odi_assets.checkpoints.copies import local_copy
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.sources.streamed import ReadFile

_NO_OFFSET = "-"
_DIGEST = 16


@dataclass(frozen=True)
class PlannedBatch:
    """A batch as the offset log planned it.

    Attributes:
        offsets: by input, ``{"end": the offset, "read": a digest of the files up to there since the batch before}``.
            ``end`` is None for an input that gave nothing so far; ``read`` is there for files alone.
        watermark_ms: the watermark that it runs with, milliseconds since 1970, UTC; 0 before there is one.
        planned_ms: when it was planned, likewise.
    """

    query: str
    batch: int
    offsets: Mapping[str, Mapping[str, Any]]
    watermark_ms: int
    planned_ms: int


@dataclass(frozen=True)
class ProgressLog:
    """The logs of the checkpoint in ``location``, read again with each call. It need not exist.

    Attributes:
        read: digests by input and range of its log: what was written there never changes.
    """

    location: Location
    read: dict[tuple[str, int, int], str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _store(self) -> tuple[Any, str]:
        filesystem, root = self.location.in_store()
        return filesystem, root.rstrip("/")

    @contextmanager
    def readable(self) -> Iterator[Path | None]:
        """The checkpoint, or a copy of its logs, on this machine; None if there is none yet."""
        if self.location.is_local:
            path = Path(self.location.uri)
            yield path if (path / "offsets").is_dir() else None
        elif self.query() is not None:
            with local_copy(self.location.uri, self.location.fsspec_options, logs_only=True) as copy:
                yield copy
        else:
            yield None

    def query(self) -> str | None:
        """The id of its query; None if there is no checkpoint.

        Raises:
            CheckpointError: it cannot be read.
        """
        text = self._text("metadata")
        return None if text is None else str(self._object(text, "metadata")["id"])

    def planned(self) -> list[int]:
        """The numbers of the batches that the offset log holds, in order."""
        return self._numbers("offsets")

    def committed(self) -> list[int]:
        """The numbers of the batches that Spark committed and still holds, in order."""
        return self._numbers("commits")

    def batch(self, number: int) -> PlannedBatch | None:
        """The batch ``number``; None if the log does not hold it (any more).

        Raises:
            CheckpointError: the checkpoint cannot be read.
        """
        entry = self._offsets(number)
        query = self.query()
        if entry is None or query is None:
            return None
        head, ends = entry
        before = self._offsets(number - 1) if number else None
        starts = before[1] if before else {}
        offsets = {name: self._offset(name, starts.get(name), end) for name, end in ends.items()}
        return PlannedBatch(
            query, number, offsets, int(head.get("batchWatermarkMs") or 0), int(head.get("batchTimestampMs") or 0)
        )

    def ends(self, number: int, names: Iterable[str]) -> dict[str, Any]:
        """Up to where the batches up to ``number`` have read the inputs ``names``; without those that no batch in the
        log names (any more). Spark itself looks at the last two batches alone."""
        wanted, ends = set(names), dict[str, Any]()
        for batch in self._back_from(number):
            if not wanted:
                break
            named = self.ends_of(batch)
            ends |= {name: named[name] for name in wanted & named.keys()}
            wanted -= named.keys()
        return ends

    def ends_of(self, number: int) -> Mapping[str, Any]:
        """Up to where a batch reads each input that it names; nothing if the log does not hold it (any more)."""
        entry = self._offsets(number)
        return {} if entry is None else entry[1]

    def _back_from(self, number: int) -> Iterator[int]:
        yield number
        yield from sorted((planned for planned in self.planned() if planned < number), reverse=True)

    def watermark_ms(self, number: int) -> int:
        """The watermark that a batch ran with; 0 if there was none, or the log does not hold it (any more)."""
        entry = self._offsets(number)
        return int(entry[0].get("batchWatermarkMs") or 0) if entry else 0

    def planned_ms(self, number: int) -> int | None:
        """When a batch was planned, milliseconds since 1970, UTC; None if the log does not hold it (any more). Two
        histories of one query, which was put back from a copy, planned a batch of one number at two moments."""
        entry = self._offsets(number)
        return int(entry[0].get("batchTimestampMs") or 0) if entry else None

    def next_watermark_ms(self, number: int) -> int:
        """The watermark that a committed batch left for the next; 0 if there is none, or the log does not hold it."""
        text = self._text(f"commits/{number}")
        _, _, rest = (text or "").partition("\n")
        return int(self._object(rest, f"commits/{number}").get("nextBatchWatermarkMs") or 0) if rest.strip() else 0

    def files(self, name: str, after: int, upto: int) -> dict[str, int]:
        """The files that an input's log lists with a number ``after < number <= upto``, by their URIs, in order: when
        each had changed last, in milliseconds since 1970, UTC."""
        numbers, changed_at = range(after + 1, upto + 1), dict[str, int]()
        logs = self.source_log(name) if numbers else {}
        for number in numbers:
            later = (log for at, log in logs.items() if at >= number and log.endswith(".compact"))
            log = logs.get(number) or next(later, None)
            lines = self._entries(f"sources/{name}/{log}") if log is not None else ()
            changed_at.update(
                (str(line["path"]), int(line["timestamp"])) for line in lines if line["batchId"] == number
            )
        return dict(sorted(changed_at.items()))

    def read_files(self, name: str, upto: int = -1) -> dict[str, ReadFile]:
        """Every file that an input's log lists, by its URI.

        Args:
            upto: the number that a batch has read; the log has to have all up to there.

        Raises:
            CheckpointError: the log cannot be read, or a part of it is missing: Spark would write the part again, of
                files that are new.
        """
        logs = self.source_log(name)
        # A compacted file holds all that was listed before it.
        first = max((number for number, log in logs.items() if log.endswith(".compact")), default=0)
        missing = next((number for number in range(first, upto + 1) if number not in logs), None)
        if missing is not None:
            raise self._lost(
                f"sources/{name}/{missing}", "is missing: the files that it lists would be read again, or not at all"
            )
        recent = (log for number, log in logs.items() if number >= first)
        lines = (line for log in recent for line in self._entries(f"sources/{name}/{log}"))
        return {str(line["path"]): ReadFile(int(line["batchId"]), int(line["timestamp"])) for line in lines}

    def source_log(self, name: str) -> dict[int, str]:
        """The files of an input's log by their numbers, in order; of two with one number, the compacted one."""
        numbered_logs = sorted((log_number(log), log) for log in self.names(f"sources/{name}"))
        return {number: log for number, log in numbered_logs if number >= 0}

    def _offset(self, name: str, start: Any, end: Any) -> dict[str, Any]:
        if not _is_log_offset(end):
            return {"end": end}
        after, upto = (int(start["logOffset"]) if _is_log_offset(start) else -1), int(end["logOffset"])
        if after == upto:
            return {"end": end}
        key = name, after, upto
        if key not in self.read:
            digest = hashlib.sha256("\n".join(self.files(name, after, upto)).encode()).hexdigest()[:_DIGEST]
            self.read[key] = digest
        return {"end": end, "read": self.read[key]}

    def _offsets(self, number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What the log holds of a batch. Spark reads the last two plans as it starts: a torn one before them counts as
        one that the log does not hold any more."""
        text = self._text(f"offsets/{number}")
        try:
            return None if text is None else self._plan(number, text)
        except CheckpointError:
            if number >= max(self.planned()) - 1:
                raise
            return None

    def _plan(self, number: int, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        name = f"offsets/{number}"
        version, _, rest = text.partition("\n")
        head, *lines = rest.split("\n")
        if not text.strip():
            raise self._torn(name, "it is empty")
        if version.strip() != "v2":
            raise CheckpointError(
                f"{self.location.uri}/{name} was not written by a stream node of odi: its inputs have no names",
                fix="let the node begin with a checkpoint of its own: leave `stream.checkpoint` out, or name a new one",
                path=f"{self.location.uri}/{name}",
            )
        ends: dict[str, Any] = {}
        for line in filter(None, lines):
            source, colon, offset = line.partition(":")
            if not colon or not offset:
                raise self._torn(name, f"the line {line[:40]!r} is not an input's offset")
            ends[source] = None if offset == _NO_OFFSET else self._object(offset, name)
        return self._object(head, name), ends

    def _entries(self, name: str) -> Iterator[dict[str, Any]]:
        _, _, rest = (self._text(name) or "").partition("\n")
        return (self._object(line, name) for line in rest.split("\n") if line.strip())

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self.names(folder) if name.isascii() and name.isdecimal())

    def names(self, folder: str) -> list[str]:
        """What is in one of its folders; nothing if there is no such folder.

        Raises:
            CheckpointError: it cannot be looked at.
        """
        try:
            if self.location.is_local:
                return [path.name for path in (self.location.local_path / folder).iterdir()]
            filesystem, root = self._store
            filesystem.invalidate_cache()
            return [path.rstrip("/").rpartition("/")[2] for path in filesystem.ls(f"{root}/{folder}", detail=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(folder, error) from error

    def _text(self, name: str) -> str | None:
        filesystem, root = self._store
        try:
            return str(filesystem.cat_file(f"{root}/{name}").decode("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(name, error) from error

    def _object(self, text: str, name: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self._torn(name, str(error)) from error
        if not isinstance(value, dict):
            raise self._torn(name, "its JSON is not an object")
        return value

    @property
    def _repair(self) -> str:
        return f"odi tables repair {shlex.quote(self.location.uri)}"

    def _unreadable(self, name: str, why: Exception) -> CheckpointError:
        path = f"{self.location.uri}/{name}"
        return CheckpointError(
            f"{path} cannot be read: {why}",
            fix=f"look at its permissions and its storage; or set it aside: {self._repair}",
            path=path,
        )

    def _torn(self, name: str, why: str) -> CheckpointError:
        return self._lost(name, f"is torn: {why}")

    def _lost(self, name: str, why: str) -> CheckpointError:
        path = f"{self.location.uri}/{name}"
        return CheckpointError(
            f"{path} {why}",
            fix=f"restore it from a copy of the checkpoint; or set it aside: {self._repair}",
            path=path,
        )


def _is_log_offset(offset: Any) -> bool:
    return isinstance(offset, dict) and "logOffset" in offset


def log_number(name: str) -> int:
    """The number of a file of an input's log, by its name; -1 of any other file."""
    number = name.removesuffix(".compact")
    return int(number) if number.isascii() and number.isdecimal() else -1
