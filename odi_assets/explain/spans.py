"""Since when a Delta table has had a key, and until when: the files with its rows, and the commits of these files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from odi_assets.delta.history import METADATA_KEY, actions_at
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.maintenance.verify import readable_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.explain.evidence.collect import FILE, only_asked
from odi_assets.spark.lazy import java_errors, spark_errors
from odi_assets.tables.engine import engine_of
from odi_assets.tables.reader import by_file_uri, file_uri_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Stay:
    """How long a table has had a key.

    Attributes:
        rows: how many rows there are now.
        since: the version that brought them; None if the log does not tell any more.
        since_run: the run that made it.
        gone: the version that took the last row away; None if there are rows now.
        gone_run, gone_mode: the run that made that version, and how it wrote.
        file: a file of the table with a row.
    """

    rows: int
    since: int | None
    since_run: str | None
    gone: int | None = None
    gone_run: str | None = None
    gone_mode: str | None = None
    file: str | None = None


@dataclass
class _Span:
    """Versions that a data file was part of; ``end`` is the one that removed it."""

    start: int | None = None
    end: int | None = None
    file: LiveFile | None = None


_Spans = Mapping[str, Sequence[_Span]]
"""By path, the spans of a data file, newest first: a restore brings files back."""


def stays(
    spark: SparkSession, handle: TableHandle, key: str, asked: Sequence[str], *, past: bool = True
) -> dict[str, Stay]:
    """What a table has, or had, of keys; a key that it never had, as far as its files tell, is left out.

    Args:
        key: SQL of the key as text, over the table's columns.
        past: look at files that are no longer part of it, too, if the store still has them, whole.

    Raises:
        TableError: the table cannot be read.
    """
    if not handle.exists:
        return {}
    spans, stamps = _spans(handle, past)
    live = {file.path for file in handle.live_files}
    removed = [file for path in spans if path not in live and (file := spans[path][0].file) is not None]
    lost = {file.path for file in lost_files(handle.location, removed)} if removed else set()
    old = [file for file in removed if file.path not in lost]
    try:
        counts = _counts(spark, handle, old, key, asked)
    except (spark_errors.PySparkException, java_errors.Py4JError):
        readable = readable_files(handle, old)
        if len(readable) == len(old):
            raise
        # Damage to what earlier versions alone need keeps nobody from what the table has.
        counts = _counts(spark, handle, readable, key, asked)
    return {asked_key: _stay(in_files, live, spans, stamps) for asked_key, in_files in counts.items()}


def _counts(
    spark: SparkSession, handle: TableHandle, old: Sequence[LiveFile], key: str, asked: Sequence[str]
) -> Mapping[str, Mapping[str, int]]:
    """How many rows of each key are in each live file and in each of ``old``."""
    files = [*handle.live_files, *old]
    by_uri = by_file_uri(handle.location, files)
    rows = engine_of(handle).read_files(spark, handle, files, file_as=FILE)
    asked_rows = only_asked(rows.selectExpr(f"{key} AS key", FILE), asked)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in asked_rows.groupBy("key", FILE).count().collect():
        counts[row["key"]][by_uri[file_uri_key(row[FILE])].path] = row["count"]
    return counts


def _stay(counts: Mapping[str, int], live: set[str], spans: _Spans, stamps: Mapping[int, Mapping[str, Any]]) -> Stay:
    now = [path for path in counts if path in live]
    newest = now or [max(counts, key=lambda path: spans[path][0].end or 0)]
    since, gone = _since(newest, counts, spans), None if now else spans[newest[0]][0].end
    facts, after = stamps.get(since if since is not None else -1, {}), stamps.get(gone if gone is not None else -1, {})
    return Stay(
        sum(counts[path] for path in now),
        since,
        facts.get("run_id"),
        gone,
        after.get("run_id"),
        after.get("mode"),
        newest[0],
    )


def _since(newest: Iterable[str], counts: Mapping[str, int], spans: _Spans) -> int | None:
    """The version that the unbroken stay began with: a rewritten file goes on from the one it replaced."""
    starts = [spans[path][0].start if path in spans else None for path in newest]
    if None in starts:
        return None
    since = min(start for start in starts if start is not None)
    while True:
        before = [span for path in counts for span in spans.get(path, ()) if span.end == since]
        if not before:
            return since
        if any(span.start is None for span in before):
            return None
        since = min(span.start for span in before if span.start is not None)


def _spans(handle: TableHandle, past: bool) -> tuple[_Spans, dict[int, Mapping[str, Any]]]:
    """The spans of each data file that the log names, and what commits say of themselves, by version."""
    spans: dict[str, list[_Span]] = defaultdict(list)
    stamps: dict[int, Mapping[str, Any]] = {}
    version = handle.version if handle.version is not None else -1
    while version >= 0 and (actions := actions_at(handle.location, version)) is not None:
        # Backwards: a file that is removed and added in one commit, with other deleted rows, was added last.
        for action in sorted(actions, key=lambda action: "add" not in action):
            if "add" in action:
                of_file = spans[unquote(action["add"]["path"])]
                if not of_file or of_file[-1].start is not None:
                    of_file.append(_Span())
                of_file[-1].start, of_file[-1].file = version, _file(action["add"])
            elif "remove" in action and past:
                spans[unquote(action["remove"]["path"])].append(_Span(end=version))
            elif "commitInfo" in action:
                stamps[version] = action["commitInfo"].get(METADATA_KEY) or {}
        version -= 1
    return dict(spans), stamps


def _file(add: Mapping[str, Any]) -> LiveFile:
    return LiveFile(unquote(add["path"]), add["size"], None, dict(add.get("partitionValues") or {}))
