"""Whether a query would restart from a checkpoint, and which batches can be read: every file is looked at. No Spark.

All faults are reported at once. The rules are the rules of Spark 4.2; ``benchmarks.streaming.damage`` compares them
with what Spark does, for every file of real checkpoints.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from odi_assets.checkpoints.files import CheckpointFiles, FileFault, check_files, state_files
from odi_assets.checkpoints.inspect import (
    Checkpoint,
    MicroBatch,
    Operator,
    StoreInfo,
    local_path,
    read_batch,
    read_operator,
    require_folder,
)
from odi_assets.checkpoints.log_files import numbered_files, read_json, read_lines, read_object
from odi_assets.checkpoints.schemas import read_schemas
from odi_assets.checkpoints.state_file import Damage, checksum_step, compare_checksums
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError

_CHECKSUM = re.compile(r"\.(?!\.)(.+)\.crc")
_BEHIND = "put it back from a copy; no restart needs it"
_AGAIN = "put it back from a copy; the next batch writes it again"
_START_OVER = "put it back from a copy, or start over with a new checkpoint"
_ANY_NODE = "of a node: odi state rewind NODE"
_BACK = f"put it back from a copy, or go back to a batch that can be read ({_ANY_NODE} --list)"


@dataclass
class _Survey:
    """What of a checkpoint's logs can be read, and what is wrong with the rest.

    Attributes:
        stops: what keeps the query from going on.
        unreadable: the state cannot be read, for its description is not whole.
        blind: batches of which that is so.
    """

    root: Path
    faults: list[FileFault] = field(default_factory=list)
    stops: list[FileFault] = field(default_factory=list)
    unreadable: bool = False
    blind: list[range] = field(default_factory=list)

    def describes(self, batch: int) -> bool:
        """Whether the state after a batch is described."""
        return not self.unreadable and not any(batch in span for span in self.blind)

    def add(self, file: Path, fault: str, remedy: str, *, stops: bool) -> None:
        file_fault = FileFault(file.relative_to(self.root).as_posix(), fault, remedy)
        self.faults.append(file_fault)
        if stops:
            self.stops.append(file_fault)

    def read(self, file: Path, read: Callable[[Path], Any], remedy: str, *, stops: bool) -> Any:
        """What ``read`` makes of a file; None, and a fault, if it is damaged."""
        try:
            compare_checksums(file, file.read_bytes())
            return read(file)
        except (CheckpointError, Damage, OSError) as error:
            self.add(file, _fault(file, error), remedy, stops=stops)
        return None


@dataclass(frozen=True)
class CheckpointVerdict:
    """What a checkpoint is good for.

    Attributes:
        restarts: the query goes on from it, and reads what it has not read, once.
        why: what keeps it from that; empty if nothing does.
        readable: the retained batches whose state can be read.
        feeds: those whose changes of the state can be read.
        faults: every file that is missing or damaged, each with its remedy.
        files: what the files of the state are good for.
    """

    restarts: bool
    why: str
    readable: tuple[int, ...]
    feeds: tuple[int, ...]
    faults: tuple[FileFault, ...]
    files: CheckpointFiles

    def of_node(self, node: str) -> CheckpointVerdict:
        """The same, with remedies that name the node whose checkpoint it is."""
        faults = (
            replace(fault, remedy=fault.remedy.replace(_ANY_NODE, f"odi state rewind {node}")) for fault in self.faults
        )
        return replace(self, faults=tuple(faults))


def judge(path: str | Path, operators: Collection[int] = ()) -> CheckpointVerdict:
    """Read every file of a checkpoint on this machine. The query should not be running.

    Args:
        operators: the numbers of the stateful operators that its batches are known to have had. Without them, a
            checkpoint whose folder ``state`` is gone looks like one of a query that keeps no state.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    root = local_path(path)
    if root is None:
        raise CheckpointError(f"{path} is not a folder of this machine.", fix="make a local_copy of it", path=str(path))
    require_folder(root)
    survey = _Survey(root)
    query = _query(survey)
    batches = _batches(survey)
    stateful = _operators(survey, operators if any(batch.committed for batch in batches) else ())
    _sources(survey, batches)
    _orphans(survey)
    known = Checkpoint(root, query, batches, tuple(operator for operator in stateful if operator.stores), None)
    files = check_files(known)
    committed = [batch.batch_id for batch in batches if batch.committed]
    last = committed[-1] if committed else None
    if last is not None and last not in files.readable:
        survey.stops.append(files.lost[last])
    readable, feeds = tuple(committed), tuple(committed)
    if stateful:
        described = [number for number in committed if survey.describes(number)]
        readable = tuple(number for number in described if number in files.readable)
        # Variables are found in the state that holds them.
        of_state = readable if any(operator.has_variables for operator in stateful) else described
        feeds = tuple(number for number in of_state if _has_feed(known, number))
    # Spark cleans away what is older than the first changes that are there; without changelogs, there are none.
    missing = [
        _without_feed(known, number)
        for number in committed
        if stateful and feeds and number > feeds[0] and number not in feeds
    ]
    faults = [*survey.faults, *(_of_state(file_fault, files) for file_fault in files.faults), *filter(None, missing)]
    by_path = {file_fault.path: file_fault for file_fault in reversed(faults)}
    return CheckpointVerdict(
        not survey.stops,
        f"{survey.stops[0].path} {survey.stops[0].fault}" if survey.stops else "",
        readable,
        feeds,
        tuple(sorted(by_path.values(), key=lambda file_fault: file_fault.path)),
        files,
    )


def why_unusable(checkpoint: Location, operators: Collection[int] = ()) -> str | None:
    """What keeps a query from going on from a checkpoint of this machine; None if nothing does, or if there is none:
    a query that failed as it started leaves empty folders.

    No query should be running on it. ``operators`` as for :func:`judge`.
    """
    if not checkpoint.is_local or not checkpoint.local_path.is_dir():
        return None
    try:
        if not any(names for _, _, names in os.walk(checkpoint.local_path, onerror=_raised)):
            return None
        return judge(checkpoint.local_path, operators).why or None
    except CheckpointError as error:
        return error.message
    except OSError as error:
        return str(error)


def newest_whole_batch(checkpoint: Location) -> int | None:
    """The newest batch whose state can be read, of a checkpoint of this machine whose newest state cannot.

    None if there is none, if the checkpoint lies elsewhere, or if nothing is wrong with what it has.
    """
    try:
        verdict = judge(checkpoint.local_path) if checkpoint.is_local else None
    except (CheckpointError, OSError):
        return None
    return verdict.readable[-1] if verdict and verdict.readable and not verdict.restarts else None


def _raised(error: OSError) -> None:
    raise error


def _fault(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    text = error.message if isinstance(error, CheckpointError) else f"is torn: {error}"
    return text.removeprefix(f"{file} ").rstrip(".")


def _query(survey: _Survey) -> str:
    file = survey.root / "metadata"
    if not file.is_file():
        survey.add(file, "is missing: Spark would go on under another id", _START_OVER, stops=True)
        return ""
    content = survey.read(file, read_object, _START_OVER, stops=True) or {}
    return str(content.get("id") or "")


def _batches(survey: _Survey) -> tuple[MicroBatch, ...]:
    """The batches whose offsets can be read; committed are those whose commits can be."""
    offsets, commits = (numbered_files(survey.root / folder) for folder in ("offsets", "commits"))
    newest, done = max(offsets, default=-1), max(commits, default=-1)
    if done > newest:
        what = f"is missing, although commits/{done} is there"
        survey.add(survey.root / "offsets" / str(done), what, _START_OVER, stops=True)
    for number in range(min(offsets, default=0), newest):
        if number not in offsets:
            survey.add(survey.root / "offsets" / str(number), "is missing", _BEHIND, stops=number == newest - 1)
    for number in range(min(offsets, default=0), done):
        if number not in commits:
            what = "is missing, although a later batch is committed"
            survey.add(survey.root / "commits" / str(number), what, _BEHIND, stops=False)
    whole = {
        number: survey.read(file, _commit, _BACK if number == done else _BEHIND, stops=number == done)
        for number, file in sorted(commits.items())
    }
    batches = []
    for number, file in sorted(offsets.items()):
        # A restart reads the newest two, and the settings of the newest.
        vital = number >= newest - 1
        when = whole.get(number)
        read = partial(read_batch, batch_id=number, committed_at=when)
        batch = survey.read(file, read, _BACK if vital else _BEHIND, stops=vital)
        if batch is not None:
            batches.append(batch)
    return tuple(batches)


def _commit(file: Path) -> datetime:
    _, lines = read_lines(file)
    read_object(file, "\n".join(lines))
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _operators(survey: _Survey, known: Collection[int]) -> list[Operator]:
    operators = []
    folders = numbered_files(survey.root / "state")
    # Spark numbers the operators of a query from 0 on.
    for number in sorted({*known, *range(max(folders, default=0))} - folders.keys()):
        what = "is missing: the query keeps state there"
        survey.add(survey.root / "state" / str(number), what, _START_OVER, stops=True)
        survey.unreadable = True
        operators.append(Operator(number, None, ()))
    for number, folder in sorted(folders.items()):
        plain, revisions = folder / "_metadata" / "metadata", numbered_files(folder / "_metadata" / "v2")
        files = revisions or ({0: plain} if plain.exists() else {})
        if not files:
            operators.append(_undescribed(survey, folder, number))
            continue
        # A restart reads the newest revision alone; each is of the batches from its own number up to the next.
        newest, whole = max(files), None
        survey.blind.append(range(min(files)))
        for revision, file in sorted(files.items()):
            if survey.read(file, _description, _START_OVER, stops=revision == newest and bool(revisions)) is not None:
                whole = revision
                continue
            later = [later_revision for later_revision in files if later_revision > revision]
            survey.blind.append(range(revision, min(later, default=sys.maxsize)))
        survey.unreadable |= whole is None
        operator = Operator(number, None, ()) if whole is None else read_operator(folder, number, whole)
        _schemas(survey, folder, operator)
        operators.append(operator)
    return operators


def _undescribed(survey: _Survey, folder: Path, number: int) -> Operator:
    """An operator whose description is missing, by its folders: Spark reads the state without one, unless it is in
    variables, whose schemas only the description names."""
    has_variables = (folder / "_stateSchema").is_dir()
    remedy = _START_OVER if has_variables else _AGAIN
    survey.add(folder / "_metadata", "is missing: nothing describes the operator", remedy, stops=has_variables)
    first = folder / "0"
    store_folders = {"default": first} | {
        subfolder.name: subfolder for subfolder in sorted(first.glob("*")) if subfolder.is_dir()
    }
    schemas = {name: subfolder / "_metadata" / "schema" for name, subfolder in store_folders.items()}
    partitions = len(numbered_files(folder))
    stores = [StoreInfo(name, partitions, 0, schema) for name, schema in schemas.items() if schema.exists()]
    survey.unreadable |= has_variables or not stores
    operator = Operator(number, None, tuple(stores))
    _schemas(survey, folder, operator)
    return operator


def _description(file: Path) -> Any:
    _, lines = read_lines(file)
    return read_object(file, "\n".join(lines))


def _schemas(survey: _Survey, folder: Path, operator: Operator) -> None:
    for store in operator.stores:
        if store.schema_file is None:
            # Spark writes it again, unless the description names the file.
            is_named = operator.has_variables
            remedy = _START_OVER if is_named else _AGAIN
            survey.add(folder, f"has no schema of the store {store.name}", remedy, stops=is_named)
            survey.unreadable = True
            continue
        if store.schema_named_at is not None:
            what = f"names the schema at {store.schema_named_at}, where it is not any more"
            survey.add(folder / "_metadata" / "v2", what, "put the checkpoint back where it was written", stops=True)
            survey.unreadable = True
        read = partial(_schema, replace(operator, stores=(store,)))
        survey.unreadable |= survey.read(store.schema_file, read, _START_OVER, stops=True) is None


def _schema(operator: Operator, file: Path) -> Any:
    del file
    return read_schemas(operator) or True


def _sources(survey: _Survey, batches: Iterable[MicroBatch]) -> None:
    """The logs in which sources of files note what they have read."""
    ends = _log_ends(batches)
    there = (folder for folder in (survey.root / "sources").glob("*") if folder.is_dir())
    for folder in sorted({*there, *(survey.root / "sources" / name for name in ends)}):
        plain = numbered_files(folder)
        compact = {int(log_file.stem): log_file for log_file in folder.glob("*.compact") if log_file.stem.isdecimal()}
        first = max((number for number in compact), default=-1)
        for number, file in sorted({**plain, **compact}.items()):
            survey.read(file, _source_log, _START_OVER, stops=number >= first)
        newest = max([*plain, *compact, ends.get(folder.name, -1)])
        for number in range(first + 1, newest + 1):
            if number not in plain:
                survey.add(
                    folder / str(number),
                    "is missing: its files would be read again, or not at all",
                    _START_OVER,
                    stops=True,
                )


def _log_ends(batches: Iterable[MicroBatch]) -> dict[str, int]:
    """The newest entry of each source's log that an offset names."""
    ends: dict[str, int] = {}
    for name, offset in (end for batch in batches for end in batch.offsets.items()):
        value = read_json(offset or "")
        if isinstance(value, dict) and "logOffset" in value:
            ends[name] = max(ends.get(name, -1), int(value["logOffset"]))
    return ends


def _source_log(file: Path) -> Any:
    _, lines = read_lines(file)
    for line in filter(str.strip, lines):
        read_object(file, line)
    return True


def _orphans(survey: _Survey) -> None:
    """Checksums that are torn, or left of files that were removed: what Spark removes, it removes with them."""
    for beside in sorted(survey.root.rglob(".*.crc")):
        match = _CHECKSUM.fullmatch(beside.name)
        file = beside.with_name(match[1]) if match else None
        faulty_paths = {fault.path for fault in survey.faults}
        if file is None or file.name.endswith(".tmp"):
            continue
        if file.exists():
            step = survey.read(beside, lambda sums: checksum_step(sums.read_bytes()) or 0, "remove it", stops=False)
            if step == 0:
                survey.add(beside, "is torn: its file is read without checksums", "remove it", stops=False)
            continue
        if file.relative_to(survey.root).as_posix() not in faulty_paths:
            survey.add(file, "is missing: its checksums are still there", _BEHIND, stops=False)


def _has_feed(known: Checkpoint, batch: int) -> bool:
    return _without_feed(known, batch) is None


def _without_feed(known: Checkpoint, batch: int) -> FileFault | None:
    faults = (files.why_no_changes(batch + 1, batch + 1) for files in state_files(known))
    return next((replace(fault, remedy=_BEHIND) for fault in faults if fault is not None), None)


def _of_state(fault: FileFault, files: CheckpointFiles) -> FileFault:
    newest = max((*files.readable, *files.lost), default=None)
    return replace(fault, remedy=_BEHIND if newest is None or newest in files.readable else _BACK)
