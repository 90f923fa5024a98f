"""Run history beside the JSON state file: one line per run, appended and fsynced, newest last.

A record is appended, and a last-run look-up reads backwards, so that neither costs more as the file grows. Runs need
not be recorded in the order in which they ended. So each line also has the latest end among the lines up to it: a
reader then knows how far back a later end may lie. Each line also has the number of lines of the same write that
follow it: at the end of the file, lines of a write that was cut off do not count.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from odi_assets.connections.location import is_there
from odi_assets.errors import StateError
from odi_assets.state.local.file import reading, replace_file, sync_folder, writing
from odi_assets.state.records import RunRecord

_log = logging.getLogger(__name__)
_BLOCK = 64 * 1024
_LATEST = "latest_end"
_FOLLOWING = "lines_following"
_MOMENTS = ("timestamp", "started_at")


class RunLines:
    """The file of runs. The caller holds the state file's lock while it appends or rewrites."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Iterable[RunRecord], environment: str | None) -> None:
        """Add records, all or none; returns when they are on disk.

        Raises:
            StateError: they cannot be written, and none is there. Or they are there, and may not survive a power
                cut: the message says so.
        """
        rows = [record.to_row(environment) for record in records]
        if not rows:
            return
        with writing(self.path):
            fresh = not is_there(self.path)
            # A buffer would be written once more when the file is closed, after what came of it was cut off.
            with self.path.open("ab", buffering=0) as file:
                size = self._drop_torn_lines(file.fileno())
                try:
                    data = b"".join(_lines(rows, self._latest_end(), together=True))
                    while data:
                        data = data[file.write(data) :]
                    os.fsync(file.fileno())
                except BaseException:
                    os.ftruncate(file.fileno(), size)
                    raise
            if fresh:
                sync_folder(self.path.parent)

    def newest_first(self, *names: str) -> Iterator[RunRecord]:
        """Every record, the one that ended last first; lazily, so that who needs one reads little.

        With ``names``, records that do not hold all of them are left out unread.

        Raises:
            StateError: a line that is not a run. A last line without an end is a write that was never acknowledged,
                and is passed over.
        """
        waiting: list[tuple[float, int, int, RunRecord]] = []
        needles = [json.dumps(name).encode() for name in names]
        for number, (end, line) in enumerate(self._written_backwards()):
            if not all(needle in line for needle in needles):
                continue
            row = self._parsed(end, line)
            latest = row.get(_LATEST)
            while waiting and latest is not None and -waiting[0][0] > latest:
                yield heappop(waiting)[3]
            record = _record(row)
            heappush(waiting, (-record.timestamp.timestamp(), -record.attempt, number, record))
        while waiting:
            yield heappop(waiting)[3]

    def rewrite(self, keep: Iterable[RunRecord]) -> None:
        """Replace the file by ``keep``, given oldest first, each stamped as it is."""
        rows = (record.to_row(record.environment) for record in keep)
        replace_file(self.path, _lines(rows, 0.0, together=False))

    def _latest_end(self) -> float:
        for end, line in self._written_backwards():
            row = self._parsed(end, line)
            if _LATEST in row:
                return float(row[_LATEST])
            return max(record.timestamp.timestamp() for record in self.newest_first())
        return 0.0

    def _drop_torn_lines(self, descriptor: int) -> int:
        size = os.fstat(descriptor).st_size
        whole = next((end + 1 for end, _ in self._written_backwards()), 0)
        if whole < size:
            _log.warning(
                "%s ended in runs that were not written to their end; %d bytes dropped", self.path, size - whole
            )
            os.ftruncate(descriptor, whole)
        return whole

    def _written_backwards(self) -> Iterator[tuple[int, bytes]]:
        """Each line of a write that came to its end, with the offset of its end, last line first."""
        at_the_end = True
        for end, line in self._lines_backwards():
            at_the_end = at_the_end and bool(self._parsed(end, line).get(_FOLLOWING))
            if not at_the_end:
                yield end, line

    def _lines_backwards(self) -> Iterator[tuple[int, bytes]]:
        """Each whole line with the offset of its end, last line first."""
        with reading(self.path):
            if not is_there(self.path):
                return
            file = self.path.open("rb")
        with file, reading(self.path):
            position = file.seek(0, os.SEEK_END)
            rest = b""
            whole = False
            while position > 0:
                start = max(0, position - _BLOCK)
                file.seek(start)
                parts = (file.read(position - start) + rest).split(b"\n")
                end = start + sum(map(len, parts)) + len(parts) - 1
                for line in reversed(parts[1:]):
                    if whole and line:
                        yield end, line
                    whole = True
                    end -= len(line) + 1
                rest, position = parts[0], start
            if whole and rest:
                yield len(rest), rest

    def _parsed(self, end: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise self._damaged(end - len(line), error.start + 1, "not UTF-8 text") from error
        except json.JSONDecodeError as error:
            raise self._damaged(end - len(line), error.colno, error.msg) from error
        if not isinstance(row, dict):
            raise self._damaged(end - len(line), 1, "not a JSON object")
        return row

    def _damaged(self, start: int, column: int, why: str) -> StateError:
        line = self.path.read_bytes()[:start].count(b"\n") + 1
        return StateError(
            f"the run history {self.path}:{line}:{column} is damaged: {why}",
            fix="repair or remove that line, or set the file aside (odi tables repair --system) and take the rows from "
            "the tables' logs (odi state recover); nothing was changed",
            path=str(self.path),
            line=line,
            column=column,
        )


def _lines(rows: Iterable[dict[str, Any]], latest: float, *, together: bool) -> Iterator[bytes]:
    """The lines of ``rows``; those written together tell how many of them follow."""
    listed = list(rows)
    for number, row in enumerate(listed, start=1):
        latest = max(latest, row["timestamp"].timestamp())
        following = {_FOLLOWING: len(listed) - number} if together and number < len(listed) else {}
        yield json.dumps({**row, _LATEST: latest, **following}, default=_iso).encode() + b"\n"


def _iso(value: Any) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{type(value)} in a run's row")


def _record(row: dict[str, Any]) -> RunRecord:
    moments = {name: datetime.fromisoformat(row[name]) for name in _MOMENTS if row.get(name)}
    return RunRecord.from_row({**row, **moments})
