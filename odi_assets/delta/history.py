"""The commits of a Delta table's log, by their own numbers.

deltalake's ``history`` counts down from the version a handle was opened at, and begins with the newest commit of the
log: on a handle that is not at the newest version, every commit gets another one's number. So the log is read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.delta.damage import actions_in, commit_file, file_system, torn
from odi_assets.delta.errors import deltalake_calls
from odi_assets.util.lazy import pa, pq

if TYPE_CHECKING:
    from pyarrow.fs import PyFileSystem

METADATA_KEY = "odi_assets"
"""Key of our part of a Delta commit's metadata (``commitInfo``)."""

_REPLACING = ("CREATE OR REPLACE TABLE", "REPLACE TABLE")
_PAGES = (7, 24)
"""How many commits are fetched at once from a store, more and more. Mostly the newest one says what is asked: a handle
fetches it alone."""


@dataclass(frozen=True)
class CommittedStamp:
    """Our metadata as found in the table's log. ``committed_at`` is the writer's clock, in UTC."""

    version: int
    app_id: str
    number: int
    write_id: str
    facts: dict[str, Any]
    committed_at: datetime


@dataclass(frozen=True)
class TableCommit:
    """What a commit says of itself.

    Attributes:
        made_at: by the writer's clock, in UTC.
        stamp: set if one of our runs made it.
    """

    version: int
    made_at: datetime
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    stamp: CommittedStamp | None = None


def commits(location: Location, newest: int) -> Iterator[TableCommit]:
    """Commits from ``newest`` down to the oldest that the log still has.

    Raises:
        TableError: the log cannot be read; StoreUnreachableError if the store did not answer.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        # A local log is read one by one: whoever asks mostly stops at the newest.
        pages: Iterator[Sequence[int]] = (
            ([version] for version in range(newest, -1, -1)) if location.is_local else _paged(newest)
        )
        for versions in pages:
            read = partial(commit_text, location)
            texts = map(read, versions) if location.is_local else pool.map(read, versions)
            for version, text in zip(versions, texts, strict=True):
                if text is None:
                    return
                yield _commit(location, version, text)


def commit_at(location: Location, version: int) -> TableCommit | None:
    """The commit that made ``version``; None if the log has no such commit (any more).

    Raises:
        TableError: the log cannot be read; StoreUnreachableError if the store did not answer.
    """
    text = commit_text(location, version)
    return None if text is None else _commit(location, version, text)


def commit_digest(location: Location, version: int) -> str | None:
    """A digest that identifies the commit of ``version``; None if the log has no such commit (any more).
    A version number does not identify a commit: a table that was put back from a copy of its folder keeps its id, and
    comes to the same numbers again.

    Raises:
        TableError: the log cannot be read; StoreUnreachableError if the store did not answer.
    """
    text = commit_text(location, version)
    return None if text is None else digest_of(text)


def digest_of(text: str) -> str:
    """The digest of the commit whose text this is: see :func:`commit_digest`."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def fences_in(text: str) -> dict[str, int]:
    """By app id, the transaction numbers of the commit whose text this is. Checkpoints keep the newest number of each
    app id, so the numbers of a table only grow, whatever its log still holds (Delta protocol, "Transaction
    Identifiers")."""
    lines = (line for line in text.split("\n") if line.lstrip().startswith('{"txn"'))
    transactions = (json.loads(line)["txn"] for line in lines)
    return {str(transaction["appId"]): int(transaction["version"]) for transaction in transactions}


def replaces_rows(commit: TableCommit) -> str | None:
    """How somebody else's commit put other rows in the place of all that were there, as a participle; None if not."""
    mode = str(commit.parameters.get("mode") or "").strip('"').lower()
    if commit.operation == "RESTORE":
        return "put back to an earlier version"
    if commit.operation.startswith(_REPLACING) or (commit.operation == "WRITE" and mode == "overwrite"):
        return "overwritten"
    return None


def restored_version(operation: str, parameters: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE put back; None for other commits, and for one that names a time instead."""
    version = str(parameters.get("version"))
    return int(version) if operation == "RESTORE" and version.isdecimal() else None


def versions_in_effect(commits: Iterable[tuple[int, int | None]], after: int) -> Iterator[tuple[int, bool]]:
    """The versions that lead from ``after`` to the rows of the newest one, newest first, without those that were
    undone; each with whether its commit changed rows. A commit that brought back the rows of a version on that way
    changed none of them.

    Args:
        commits: after that version, oldest first; each with the version that it restored, if it did so.
    """
    changed: dict[int, tuple[bool, int]] = {}
    newest = after
    for version, restored in commits:
        brings_back = restored is not None and (restored == after or restored in changed)
        changed[version] = not brings_back, restored if restored is not None and brings_back else newest
        newest = version
    while newest != after:
        is_change, before = changed[newest]
        yield newest, is_change
        newest = before


def commit_text(location: Location, version: int) -> str | None:
    """The actions of one commit, a JSON object per line; None if the log has no such commit (any more).

    Raises:
        TableError: the log cannot be read; StoreUnreachableError if the store did not answer; DamagedTableError if the
            commit is torn.
    """
    raw = commit_file(location, version)
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError as error:
        raise torn(location, version, error) from error


def app_ids_in(location: Location) -> set[str]:
    """The app ids of a table's newest checkpoint (Delta protocol, "Checkpoints"): who fenced a commit, also where the
    log no longer holds it. None if there is no checkpoint.

    Raises:
        TableError: the checkpoint cannot be read.
    """
    with deltalake_calls("reading the checkpoint of the Delta table", location):
        return set(_app_ids(file_system(location)))


def _app_ids(storage: PyFileSystem) -> Iterator[str]:
    try:
        with storage.open_input_file("_delta_log/_last_checkpoint") as stream:
            last = json.loads(stream.read())
    except FileNotFoundError:
        return
    version, parts = int(last["version"]), int(last.get("parts") or 0)
    names = [f"{version:020d}.checkpoint.{part:010d}.{parts:010d}" for part in range(1, parts + 1)]
    for name in names or [f"{version:020d}.checkpoint"]:
        try:
            with storage.open_input_file(f"_delta_log/{name}.parquet") as stream:
                transactions = pq.ParquetFile(stream).read(["txn"], use_threads=False).column("txn").to_pylist()
        except pa.ArrowException as error:
            raise OSError(f"{name}.parquet: {error}") from error
        yield from (transaction["appId"] for transaction in transactions if transaction is not None)


def actions_at(location: Location, version: int) -> list[dict[str, Any]] | None:
    """The actions of one commit; None if the log has no such commit (any more).

    Raises:
        TableError: the log cannot be read; DamagedTableError if the commit is torn.
    """
    raw = commit_file(location, version)
    try:
        return None if raw is None else actions_in(raw)
    except ValueError as error:
        raise torn(location, version, error) from error


def _paged(newest: int) -> Iterator[range]:
    upper, page = newest, 0
    while upper >= 0:
        size = _PAGES[min(page, len(_PAGES) - 1)]
        yield range(upper, max(upper - size, -1), -1)
        upper, page = upper - size, page + 1


def _commit(location: Location, version: int, text: str) -> TableCommit:
    # A commit may hold thousands of files; only the line that describes it is parsed.
    line = next((line for line in text.split("\n") if line.lstrip().startswith('{"commitInfo"')), None)
    try:
        return _described(version, json.loads(line)["commitInfo"] if line is not None else {})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise torn(location, version, ValueError(f"is torn: {error}")) from error


def _described(version: int, info: Mapping[str, Any]) -> TableCommit:
    made_at = datetime.fromtimestamp(int(info.get("timestamp") or 0) / 1000, UTC)
    facts, stamp = info.get(METADATA_KEY), None
    if isinstance(facts, str):
        facts = json.loads(facts)
    if isinstance(facts, dict) and "fence" in facts:
        app_id, number = str(facts["fence"]["app_id"]), int(facts["fence"]["number"])
        stamp = CommittedStamp(version, app_id, number, str(facts.get("write_id", "")), facts, made_at)
    return TableCommit(version, made_at, str(info.get("operation") or ""), info.get("operationParameters") or {}, stamp)
