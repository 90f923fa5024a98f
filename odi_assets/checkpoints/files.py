"""Which versions of the state can be rebuilt from a checkpoint's files, and what is missing or torn. No Spark needed.

After batch ``b`` a state store has version ``b + 1``; version 0 is empty. A version is rebuilt from a snapshot (of
RocksDB an archive) at or before it and every delta (of RocksDB a changelog) from there on. Spark goes back to an older
snapshot if the newest is torn, so a version counts as lost only if no way is left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from odi_assets.checkpoints.inspect import Checkpoint, Operator, inspect, store_folder
from odi_assets.checkpoints.log_files import read_lines, read_object
from odi_assets.checkpoints.state_file import (
    Damage,
    FileState,
    StateFileContents,
    checksums_of,
    read_state_file,
    state_of,
)
from odi_assets.errors import CheckpointError

_VERSION_FILE = re.compile(r"(\d+)(?:_([0-9a-f-]{36}))?\.(delta|snapshot|changelog|zip)")
_MISSING = "is missing"
_SNAPSHOTS, _CHANGES = ("snapshot", "zip"), ("delta", "changelog")


@dataclass(frozen=True)
class FileFault:
    """A file that is missing or damaged. ``path`` is below the checkpoint's folder; ``remedy`` says what to do."""

    path: str
    fault: str
    remedy: str = "put it back from a copy"


@dataclass(frozen=True)
class StoreVersions:
    """What can be rebuilt of one partition of one state store.

    ``lost`` says for each version that cannot be rebuilt, although files or the logs tell of it, which file is to
    blame. ``snapshots`` are the versions with a whole snapshot; ``changes`` the rows put and removed by each version,
    where its changes are kept.
    """

    operator_id: int
    partition: int
    store: str
    rebuildable: tuple[int, ...]
    lost: Mapping[int, FileFault]
    snapshots: tuple[int, ...]
    changes: Mapping[int, tuple[int, int]]
    bytes: Mapping[int, int]


@dataclass(frozen=True)
class CheckpointFiles:
    """What a checkpoint's files are good for.

    Attributes:
        readable: the retained batches whose state can be read.
        lost: for each other retained batch, the file to blame.
        cleaned: the lost batches whose state Spark has cleaned away in good order.
        faults: every file that is damaged, whether a version needs it or not, or is missing and was not cleaned away.
        files: how many files there are, checksums among them.
        bytes: their size.
    """

    path: Path
    stores: tuple[StoreVersions, ...]
    readable: tuple[int, ...]
    lost: Mapping[int, FileFault]
    cleaned: tuple[int, ...]
    faults: tuple[FileFault, ...]
    files: int
    bytes: int

    @property
    def snapshot_lag(self) -> int | None:
        """How many versions the store that is furthest behind has been changed since its last whole snapshot.

        That many deltas are read when its task restarts. None if the query has no state.
        """
        lags = [max((*store.rebuildable, 0)) - max((*store.snapshots, 0)) for store in self.stores]
        return max(lags, default=None)


def check_files(checkpoint: Checkpoint | str | Path) -> CheckpointFiles:
    """Read every file of the state stores and say what they are good for. The query should not be running.

    Raises:
        CheckpointError: there is no checkpoint, or a file of its logs is torn.
    """
    known = checkpoint if isinstance(checkpoint, Checkpoint) else inspect(checkpoint)
    committed = [batch.batch_id for batch in known.batches if batch.committed]
    stores, damaged = [], []
    blamed: dict[int, list[FileFault]] = {}
    for files in state_files(known):
        versions = sorted({*files.versions, *(batch + 1 for batch in committed)})
        broken = {version: fault for version in versions if (fault := files.why_lost(version))}
        stores.append(files.summary(versions, broken))
        damaged.extend(files.damaged())
        for batch in committed:
            if batch + 1 in broken:
                blamed.setdefault(batch, []).append(broken[batch + 1])
    readable = tuple(batch for batch in committed if batch not in blamed)
    cleaned = {batch for batch in blamed if _is_cleaned(batch, blamed[batch], readable)}
    lost = [fault for batch in blamed if batch not in cleaned for fault in blamed[batch]]
    sizes = [entry.stat().st_size for entry in _all_files(known.path) if entry.exists()]
    return CheckpointFiles(
        known.path,
        tuple(stores),
        readable,
        {batch: faults[0] for batch, faults in sorted(blamed.items())},
        tuple(sorted(cleaned)),
        tuple(dict.fromkeys([*_missing_commits(known), *_missing_schemas(known), *damaged, *lost])),
        len(sizes),
        sum(sizes),
    )


def _is_cleaned(batch: int, faults: Iterable[FileFault], readable: tuple[int, ...]) -> bool:
    """Whether Spark has cleaned the state after a batch away: it does so a batch or two before it cleans the logs."""
    return bool(readable) and batch < readable[0] and all(fault.fault == _MISSING for fault in faults)


def require_state(known: Checkpoint, operator: Operator, stores: Iterable[str], batch: int) -> None:
    """Read the files that the state of some stores after a batch is rebuilt from.

    Raises:
        CheckpointError: one is missing or torn, so that Spark would fail when it reads the rows.
    """
    for files in state_files(known, operator, stores):
        fault = files.why_lost(batch + 1)
        if fault is not None:
            raise CheckpointError(
                f"{known.path}: the state after batch {batch} of {files} cannot be rebuilt: "
                f"{fault.path} {fault.fault}.",
                fix=f"`odi checkpoint files {known.path}` names the batches that can be read, and what is damaged",
                path=str(known.path / fault.path),
            )


def first_changes(known: Checkpoint, operator: Operator, stores: Iterable[str]) -> int:
    """The oldest retained batch whose changes in some stores have not been cleaned away; of a damaged one, too.

    Raises:
        CheckpointError: no batch is committed.
    """
    last = known.committed_batch()
    kept = [batch.batch_id for batch in known.batches if batch.committed]
    oldest = kept[0]
    for files in state_files(known, operator, stores):
        oldest = max(oldest, min((*(version - 1 for version in files.changed if version > kept[0]), last)))
    return next(batch for batch in kept if batch >= oldest)


def require_changes(known: Checkpoint, operator: Operator, stores: Iterable[str], first: int, last: int) -> None:
    """Read the files that the changes of some stores in these batches are in.

    Raises:
        CheckpointError: one is missing or torn.
    """
    for files in state_files(known, operator, stores):
        fault = files.why_no_changes(first + 1, last + 1)
        if fault is not None:
            raise CheckpointError(
                f"{known.path}: the changes of {files} in batches {first} to {last} cannot be read: "
                f"{fault.path} {fault.fault}.",
                fix=(
                    "RocksDB keeps changes only with spark.sql.streaming.stateStore.rocksdb."
                    "changelogCheckpointing.enabled=true in each run"
                    if fault.path.endswith(".changelog")
                    else f"`odi checkpoint files {known.path}` names what is damaged"
                ),
                path=str(known.path / fault.path),
            )


def state_files(
    known: Checkpoint, operator: Operator | None = None, stores: Iterable[str] | None = None
) -> Iterator[StoreFiles]:
    """The files of each partition of the state stores: of all, or of some of an operator."""
    ids = _state_ids(known)
    wanted = None if stores is None else set(stores)
    for owner in (operator,) if operator else known.operators:
        names = [store.name for store in owner.stores]
        shared = wanted is not None and wanted.isdisjoint(names)
        for index, store in enumerate(owner.stores):
            # The four stores of a join may share one, and so do the variables of an operator.
            if wanted is not None and not shared and store.name not in wanted:
                continue
            # A limit is taken of all rows together, whatever number of partitions its description gives.
            for partition in range(1 if owner.name == "globalLimit" else store.partitions):
                yield StoreFiles(
                    known.path,
                    owner.operator_id,
                    partition,
                    store.name,
                    "changelog" if "RocksDB" in (known.state_store_provider or "") else "delta",
                    {batch + 1: by[owner.operator_id][partition][index] for batch, by in ids.items()},
                )


@dataclass
class StoreFiles:
    """The files of one partition of one state store. Each is read once, when it is needed.

    ``ids`` has the id of each version's files in checkpoint format 2, which may have several of one version; it is
    empty in format 1.
    """

    root: Path
    operator_id: int
    partition: int
    store: str
    change_kind: str
    ids: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"operator {self.operator_id}, store {self.store}, partition {self.partition}"

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return store_folder(self.root / "state" / str(self.operator_id), self.partition, self.store)

    @cached_property
    def found(self) -> dict[tuple[int, str | None, str], Path]:
        """The files, by version, id and kind."""
        if not self.folder.is_dir():
            return {}
        parts = ((_VERSION_FILE.fullmatch(entry.name), entry) for entry in self.folder.iterdir())
        return {(int(match[1]), match[2], match[3]): entry for match, entry in parts if match}

    @property
    def versions(self) -> set[int]:
        """The versions that have files."""
        return {version for version, _, _ in self.found}

    @property
    def changed(self) -> set[int]:
        """The versions whose changes are kept."""
        return {version for version, _, kind in self.found if kind in _CHANGES}

    @property
    def snapshots(self) -> set[int]:
        """The versions that have a snapshot, whole or not."""
        return {version for version, _, kind in self.found if kind in _SNAPSHOTS}

    @cached_property
    def _read(self) -> dict[Path, StateFileContents | FileFault]:
        return {}

    def contents(self, file: Path) -> StateFileContents | FileFault:
        """What is in a file, or what is wrong with it."""
        if file not in self._read:
            try:
                self._read[file] = _content(file)
            except Damage as damage:
                self._read[file] = FileFault(self._name(file), f"is torn: {damage}")
            except OSError as error:
                self._read[file] = FileFault(self._name(file), f"cannot be read: {error.strerror}")
        return self._read[file]

    def why_lost(self, version: int) -> FileFault | None:
        """The file to blame if a version cannot be rebuilt; None if it can."""
        while version > 0:
            if any(isinstance(self.contents(file), StateFileContents) for file in self._of(version, _SNAPSHOTS)):
                return None
            fault = self._fault_of_changes(version)
            if fault is not None:
                return fault
            version -= 1
        return None

    def why_no_changes(self, first: int, last: int) -> FileFault | None:
        """The file to blame if the changes of these versions cannot be read; None if they can."""
        faults = (self._fault_of_changes(version) for version in range(last, first - 1, -1))
        return next((fault for fault in faults if fault), None)

    def covers(self, base: int, last: int, look_inside: bool) -> bool:
        """Whether version ``base`` can be rebuilt, and the changes of all later ones up to ``last`` are there.

        Args:
            look_inside: read the files; else it is enough that they are there.
        """
        if look_inside:
            return self.why_lost(base) is None and self.why_no_changes(base + 1, last) is None
        snapshot = max((version for version in self.snapshots if version <= base), default=0)
        return set(range(base + 1, last + 1)) | set(range(snapshot + 1, base + 1)) <= self.changed

    def damaged(self) -> list[FileFault]:
        """What is wrong with the files that are there."""
        read = (self.contents(file) for file in self.found.values())
        return [fault for fault in read if isinstance(fault, FileFault)]

    def summary(self, versions: Iterable[int], lost: Mapping[int, FileFault]) -> StoreVersions:
        """What can be rebuilt, in short."""
        changes: dict[int, tuple[int, int]] = {}
        snapshots, sizes = set(), dict.fromkeys(sorted(self.versions), 0)
        for (version, _, kind), file in self.found.items():
            sizes[version] += file.stat().st_size if file.exists() else 0
            read = self.contents(file)
            if not isinstance(read, StateFileContents):
                continue
            if kind in _CHANGES:
                changes[version] = (read.puts, read.removals)
            else:
                snapshots.add(version)
        return StoreVersions(
            self.operator_id,
            self.partition,
            self.store,
            tuple(version for version in versions if version not in lost),
            lost,
            tuple(sorted(snapshots)),
            changes,
            sizes,
        )

    def _of(self, version: int, kinds: tuple[str, ...]) -> list[Path]:
        by_id = (file for (at, _, kind), file in self.found.items() if at == version and kind in kinds)
        if version not in self.ids:
            return list(by_id)
        files = (self.found.get((version, self.ids[version], kind)) for kind in kinds)
        return [file for file in files if file]

    def _fault_of_changes(self, version: int) -> FileFault | None:
        files = self._of(version, _CHANGES)
        if not files:
            suffix = f"_{self.ids[version]}" if version in self.ids else ""
            return FileFault(self._name(self.folder / f"{version}{suffix}.{self.change_kind}"), _MISSING)
        read = self.contents(files[0])
        if isinstance(read, FileFault):
            return read
        for earlier, unique_id in (read.lineage or {}).items():
            self.ids.setdefault(earlier, unique_id)
        return None

    def _name(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


def _content(file: Path) -> StateFileContents:
    """What is in a file. An archive names files beside it, which are looked at each time."""
    return read_state_file(file) if file.suffix == ".zip" else _read(file, state_of(file), state_of(checksums_of(file)))


@lru_cache(maxsize=4096)
def _read(file: Path, state: FileState, checksums: FileState) -> StateFileContents:
    """:func:`read_state_file`, made once for a file that stays as it is, and its checksums too."""
    del state, checksums
    return read_state_file(file)


def _state_ids(known: Checkpoint) -> dict[int, dict[int, list[list[str]]]]:
    """By committed batch and operator, the ids of each partition's stores; empty in checkpoint format 1. A commit that
    is torn says nothing of its batch."""
    by_batch: dict[int, dict[int, list[list[str]]]] = {}
    for batch in known.batches:
        try:
            ids = _ids_of(known.path / "commits" / str(batch.batch_id)) if batch.committed else {}
        except CheckpointError:
            continue
        if ids:
            by_batch[batch.batch_id] = {int(operator): by_partition for operator, by_partition in ids.items()}
    return by_batch


def checkpoint_format(known: Checkpoint) -> int | None:
    """The format of the newest committed batch: 2 if its state files have ids, else 1. None without a batch."""
    last = known.last_committed
    if last is None:
        return None
    return 2 if _ids_of(known.path / "commits" / str(last.batch_id)) else 1


def _ids_of(commit: Path) -> Mapping[str, list[list[str]]]:
    _, lines = read_lines(commit)
    ids: Mapping[str, list[list[str]]] = read_object(commit, "\n".join(lines)).get("stateUniqueIds") or {}
    return ids


def _missing_commits(known: Checkpoint) -> Iterator[FileFault]:
    last = known.last_committed
    for batch in known.batches:
        if last and batch.batch_id < last.batch_id and not batch.committed:
            yield FileFault(f"commits/{batch.batch_id}", "is missing, although a later batch is committed")


def _missing_schemas(known: Checkpoint) -> Iterator[FileFault]:
    for operator in known.operators:
        for store in operator.stores:
            folder = f"state/{operator.operator_id}"
            if store.schema_file is None:
                yield FileFault(folder, f"has no schema of the store {store.name}")
            elif store.schema_named_at is not None:
                yield FileFault(
                    f"{folder}/_metadata/v2", f"names the schema at {store.schema_named_at}, where it is not any more"
                )


def _all_files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder) / name for name in names)
