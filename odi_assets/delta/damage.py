"""What a power cut, or a hand, leaves of a Delta table's log: files that are torn, are missing between others, or are
copies of others.

deltalake reads an empty commit as one that changed nothing, so rows would vanish in silence; it cannot open a table
whose commit or checkpoint is torn. Here such files are found, and every error over them names the one command that
leads on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from odi_assets.connections.location import Location, is_there
from odi_assets.delta.errors import DamagedTableError, Owner, cannot_look, deltalake_calls, store_options
from odi_assets.errors import OdiError
from odi_assets.util.lazy import pa, pa_fs, pq

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.(?:parquet|json)")
_VERSIONED = re.compile(r"(\d{20})\..+")


@dataclass(frozen=True)
class LogFault:
    """A file of a table's log that is torn or missing, or a copy of another one.

    Attributes:
        name: of the file, in ``_delta_log``.
        why: completes "the file …".
        version: of the table; None for ``_last_checkpoint``.
        is_copy: it is whole, and a copy of another commit.
    """

    name: str
    why: str
    version: int | None = None
    is_copy: bool = False

    def __str__(self) -> str:
        return f"{LOG}/{self.name} {self.why}"


@dataclass(frozen=True)
class Log:
    """The files of a table's log.

    Attributes:
        commits, checkpoints: names of the files by version; a checkpoint may have parts.
        others: names by version of what else belongs to one, checksums for example.
        faults: what is wrong with them.
        sound: the versions whose checkpoints are whole.
    """

    commits: Mapping[int, str]
    checkpoints: Mapping[int, tuple[str, ...]]
    others: Mapping[int, tuple[str, ...]]
    has_hint: bool
    faults: tuple[LogFault, ...]
    sound: frozenset[int]

    @property
    def base(self) -> int:
        """The version of the newest whole checkpoint; -1 if the log has none."""
        return max(self.sound, default=-1)

    @property
    def is_empty(self) -> bool:
        """Whether the log holds no version at all."""
        return not self.commits and not self.checkpoints

    @property
    def reachable(self) -> int | None:
        """The newest version that the whole files tell; None if they tell none."""
        torn, version = {fault.name for fault in self.faults}, self.base
        while version + 1 in self.commits and self.commits[version + 1] not in torn:
            version += 1
        return None if version < 0 else version


def repair_command(location: Location, owner: Owner | None = None) -> str:
    """The command that leads on from damage of a table's log, as it is typed."""
    return "odi tables repair " + ("--system" if owner is not None and owner.is_system else shlex.quote(location.uri))


def damaged(location: Location, faults: Sequence[LogFault], owner: Owner | None = None) -> DamagedTableError:
    """The error over a table whose log has ``faults``, at least one."""
    more = f" (and {len(faults) - 1:,} more)" if len(faults) > 1 else ""
    table = "the system table" if owner is not None and owner.is_system else "the Delta table"
    return DamagedTableError(
        f"{table} at {location.uri} is damaged: {faults[0]}{more}",
        fix=f"`{repair_command(location, owner)}` sets aside what is torn, so that the next run goes on from the last "
        "whole version; with --dry-run it only says what it would do",
        uri=location.uri,
    )


def damage_behind(error: OdiError, location: Location, owner: Owner) -> OdiError:
    """What a table's log says of ``error``, which a call on the table raised: the damage that is behind the error, or
    ``error`` itself if it says more, or if the log is whole or cannot be listed."""
    if type(error) is not owner.error or cannot_look(error):
        return error
    try:
        faults = read_log(location, every=True).faults
    except OdiError:
        # What the log cannot be listed for is what the call failed for.
        return error
    return damaged(location, faults, owner) if faults else error


def read_log(location: Location, *, every: bool = False) -> Log:
    """Read the log of the table at ``location``: its checkpoints, the newest commit, and those after the newest
    whole checkpoint.

    Args:
        every: read the other commits, too; else they are listed.

    Raises:
        TableError: the log cannot be listed.
    """
    names = dict(_listed(location))
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    checkpoints: dict[int, tuple[str, ...]] = {}
    others: dict[int, tuple[str, ...]] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name) or _VERSIONED.fullmatch(name)
        if match is not None and name not in commits.values():
            kept = checkpoints if _CHECKPOINT.fullmatch(name) else others
            kept[int(match[1])] = (*kept.get(int(match[1]), ()), name)
    bad = [fault for version, parts in checkpoints.items() for fault in _of_checkpoint(location, version, parts, names)]
    whole, last = frozenset(checkpoints) - {fault.version for fault in bad}, max(commits, default=-1)
    unread = -1 if every else min(max(whole, default=-1), last - 1)
    torn = list(_faults_of_commits(location, commits, names, unread))
    bad += torn
    # Without its commit the newest version can be read, and nothing can be committed after it.
    committed = max(commits.keys() - {fault.version for fault in torn}, default=-1)
    ahead = {version for version in checkpoints if version > committed}
    if whole & ahead and not every:
        # The commits that it covers count now.
        return read_log(location, every=True)
    bad += [
        LogFault(checkpoints[version][0], "has no commit of its version beside it, and none after it", version)
        for version in sorted(ahead)
    ]
    sound = whole - ahead
    base = max(sound, default=-1)
    bad += [
        LogFault(f"{version:020d}.json", "is missing", version)
        for version in range(base + 1, last)
        if version not in commits
    ]
    hint = _torn_hint(location, names.get(LAST_CHECKPOINT, 0), checkpoints, sound) if LAST_CHECKPOINT in names else None
    if hint is not None:
        bad.append(LogFault(LAST_CHECKPOINT, hint))
    return Log(commits, checkpoints, others, LAST_CHECKPOINT in names, tuple(bad), sound)


def emptied_commit(location: Location, version: int) -> LogFault | None:
    """A commit of a local log that is empty or no file, up to the one after ``version``; None if there is none.

    deltalake opens such a table as if the commit had changed nothing; if the commit has a checkpoint, as it was, and
    commits nothing more. No commit is read, and no folder is listed.
    """
    log, since = location.local_path / LOG, _hinted(location)
    for number in range(max(since, 0), version + 2):
        name = f"{number:020d}.json"
        try:
            status = (log / name).stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            return LogFault(name, "is no file", number)
        # One after the version that was opened may be under way, by another writer.
        if not status.st_size and number <= version:
            return LogFault(name, "is empty", number)
    return None


def require_no_remains(location: Location) -> None:
    """Raises DamagedTableError if there are data files beside a log without a version: that is no table to be."""
    data = data_beside_empty_log(location)
    if data is not None:
        raise DamagedTableError(
            f"the Delta table at {location.uri} is damaged: its log holds no version, and there are data files: {data}",
            fix=f"put the log back from a copy; or set the files aside ({repair_command(location)}) and load them "
            "again; or, if the table is being made at this moment, try again",
            uri=location.uri,
        )


def data_beside_empty_log(location: Location) -> str | None:
    """A data file of a local table whose log folder exists and holds no version; None if there is no such file."""
    if not location.is_local:
        return None
    log = location.local_path / LOG
    if not log.is_dir() or any(_VERSIONED.fullmatch(path.name) for path in log.iterdir()):
        return None
    inside = (path.relative_to(location.local_path) for path in location.local_path.rglob("*.parquet"))
    data_files = (
        path.as_posix()
        for path in inside
        if not any(part.startswith(("_", ".")) and "=" not in part for part in path.parts)
    )
    return min(data_files, default=None)


def _hinted(location: Location) -> int:
    try:
        return int(json.loads((location.local_path / LOG / LAST_CHECKPOINT).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _listed(location: Location) -> Iterator[tuple[str, int | None]]:
    """Names and sizes of what is in the log; None stands for what is no file."""
    with deltalake_calls("listing the log of the Delta table", location):
        if location.is_local:
            log = location.local_path / LOG
            for path in log.iterdir() if is_there(log) else ():
                yield path.name, path.stat().st_size if path.is_file() else None
            return
        for info in file_system(location).get_file_info(pa_fs.FileSelector(LOG, allow_not_found=True)):
            yield info.base_name, info.size if info.is_file else None


def log_file(location: Location, name: str) -> bytes | None:
    """The contents of a file of the log; None if there is none (any more).

    Raises:
        TableError: it cannot be read; StoreUnreachableError if the store did not answer.
    """
    with deltalake_calls("reading the log of the Delta table", location):
        try:
            if location.is_local:
                return (location.local_path / LOG / name).read_bytes()
            with file_system(location).open_input_file(f"{LOG}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            if location.is_local:
                # Not if there is no telling.
                is_there(location.local_path / LOG / name)
            return None


def file_system(location: Location) -> pa_fs.PyFileSystem:
    """deltalake's own storage as a file system: its errors are known here, and no SDK of a cloud is needed."""
    from deltalake.fs import DeltaStorageHandler

    uri = f"file://{quote(location.uri)}" if location.is_local else location.uri
    return pa_fs.PyFileSystem(DeltaStorageHandler(uri, store_options(location)))


def _faults_of_commits(
    location: Location, commits: Mapping[int, str], sizes: Mapping[str, int | None], unread: int
) -> Iterator[LogFault]:
    """The commits that are torn, and those that are copies of others; only what is after ``unread`` is read."""
    seen: dict[bytes, int] = {}
    fences: dict[int, dict[str, int]] = {}
    for version, name in sorted(commits.items()):
        if not sizes[name]:
            yield LogFault(name, "is no file" if sizes[name] is None else "is empty", version)
            continue
        if version <= unread:
            continue
        raw = log_file(location, name) or b""
        try:
            actions = actions_in(raw)
        except ValueError as error:
            yield LogFault(name, str(error), version)
            continue
        fences[version] = _fences_in(actions)
        digest = hashlib.blake2b(raw).digest()
        first = seen.setdefault(digest, version)
        if first != version:
            copy, other = (version, first) if _follows(fences, first) else (first, version)
            yield LogFault(commits[copy], f"is a copy of the commit of version {other}", copy, is_copy=True)


def _fences_in(actions: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The app transactions of a commit: their numbers by app id."""
    transactions = (action["txn"] for action in actions if isinstance(action.get("txn"), dict))
    return {str(transaction.get("appId")): int(transaction.get("version") or 0) for transaction in transactions}


def _follows(fences: Mapping[int, Mapping[str, int]], version: int) -> bool:
    """Whether the fences of a commit come next after the fences of earlier commits, as far as these are read."""
    for app_id, number in fences[version].items():
        before = [numbers[app_id] for earlier, numbers in fences.items() if earlier < version and app_id in numbers]
        if before and max(before) != number - 1:
            return False
    return True


def actions_in(raw: bytes) -> list[dict[str, Any]]:
    """The actions of a commit, a JSON object per line.

    Raises:
        ValueError: the bytes are no commit; the message completes "the file …".
    """
    try:
        # Texts of a commit may have other line separators in them: U+2028, U+0085.
        actions = [json.loads(line) for line in raw.decode().split("\n") if line.strip()]
    except ValueError as error:
        raise ValueError(f"is torn: {_first_line(error)}") from error
    if not actions:
        raise ValueError("is empty")
    if not all(isinstance(action, dict) for action in actions):
        raise ValueError("is torn: a line of it is no JSON object")
    return actions


def commit_file(location: Location, version: int) -> bytes | None:
    """The contents of a commit's file; None if the log has no such commit (any more).

    Raises:
        DamagedTableError: it is empty, or cut off.
        TableError: it cannot be read; StoreUnreachableError if the store did not answer.
    """
    name = f"{version:020d}.json"
    raw = log_file(location, name)
    # A commit may hold thousands of files; only its two ends are looked at here.
    if raw is not None and (not raw.lstrip().startswith(b"{") or not raw.rstrip().endswith(b"}")):
        why = "is torn" if raw.strip() else "is empty"
        raise damaged(location, [LogFault(name, why, version)])
    return raw


def torn(location: Location, version: int, error: ValueError) -> DamagedTableError:
    """The error over a commit that cannot be parsed."""
    text = str(error) if str(error).startswith("is ") else f"is torn: {_first_line(error)}"
    return damaged(location, [LogFault(f"{version:020d}.json", text, version)])


def _of_checkpoint(
    location: Location, version: int, parts: tuple[str, ...], sizes: Mapping[str, int | None]
) -> Iterator[LogFault]:
    for name in parts:
        if not sizes[name]:
            yield LogFault(name, "is no file" if sizes[name] is None else "is empty", version)
        elif name.endswith(".parquet"):
            try:
                pq.ParquetFile(pa.BufferReader(log_file(location, name) or b"")).read(use_threads=False)
            except (pa.ArrowException, OSError) as error:
                yield LogFault(name, f"is torn: {_first_line(error)}", version)
    missing = _missing_parts(parts)
    if missing:
        yield LogFault(parts[0], f"is not whole: {missing} of its parts are missing", version)


def _missing_parts(parts: tuple[str, ...]) -> int:
    numbered = [name.split(".") for name in parts if re.fullmatch(r"\d{20}\.checkpoint\.\d{10}\.\d{10}\.parquet", name)]
    return int(numbered[0][3]) - len(numbered) if numbered else 0


def _torn_hint(
    location: Location, size: int | None, checkpoints: Mapping[int, tuple[str, ...]], sound: frozenset[int]
) -> str | None:
    if not size:
        return "is no file" if size is None else "is empty"
    try:
        version = int(json.loads(log_file(location, LAST_CHECKPOINT) or b"")["version"])
    except (ValueError, KeyError, TypeError) as error:
        return f"is torn: {_first_line(error)}"
    if version in sound:
        return None
    return f"names the checkpoint of version {version}, which is {'torn' if version in checkpoints else 'missing'}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
