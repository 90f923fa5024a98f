"""What of a state store can be read, and the repair of its damaged files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odi_assets.delta.table import TableHandle
from odi_assets.store.contents import VersionContents, digest
from odi_assets.store.files import FileParts, StoreFile
from odi_assets.store.log import VersionLog
from odi_assets.store.parts import Kind, NoPart, Parts, VersionHeader, VersionPart, rebuild, versions_in


@dataclass(frozen=True)
class DamagedFile:
    """A file of a state store that cannot be read, or whose rows are not those that were committed.

    Attributes:
        path: relative to the store.
        versions: the first and the last version it belongs to.
        why: what is wrong with it.
    """

    path: str
    versions: tuple[int, int]
    why: str


@dataclass(frozen=True)
class StoreCheck:
    """What of a state store can be read.

    Attributes:
        readable: the headers of the versions that can be read, in order.
        unreadable: for each other version that should be there, the version whose parts are damaged.
        damaged: the damaged files, also those whose versions can be read without them.
        repaired: the files that a repair replaced.
    """

    readable: tuple[VersionHeader, ...]
    unreadable: dict[int, int]
    damaged: tuple[DamagedFile, ...]
    repaired: tuple[DamagedFile, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged and not self.unreadable


def check(handle: TableHandle) -> StoreCheck:
    """Read all files of a store, and compare them with the digests that were committed.

    Raises:
        StateError: the store does not answer, or refuses to show a file.
    """
    return _checked(FileParts(handle))


def repair(log: VersionLog, handle: TableHandle) -> StoreCheck:
    """Rebuild what can be rebuilt: a damaged snapshot from changes, damaged changes from the snapshots around them.

    Raises:
        CommitConflict: another process removed files at the same time.
        StateError: the store does not answer, or cannot be written.
    """
    parts = FileParts(handle)
    before = _checked(parts)
    files = {file.file.path: file for file in parts.files}
    repaired = []
    for damaged in before.damaged:
        rebuilt = _rebuilt(parts, files[damaged.path])
        if rebuilt is not None:
            log.replace_file(log.open() or handle, files[damaged.path].file, rebuilt)
            repaired.append(damaged)
    if not repaired:
        return before
    after = check(log.open() or handle)
    return StoreCheck(after.readable, after.unreadable, after.damaged, tuple(repaired))


def _checked(parts: FileParts) -> StoreCheck:
    headers = {
        key: part.header for file in parts.files for key, part in parts.of(file).items() if part.header is not None
    }
    why = parts.damaged
    damaged = [
        DamagedFile(file.file.path, (file.low, file.high), why[file.file.path])
        for file in parts.files
        if file.file.path in why
    ]
    known = {commit.version: commit for commit in versions_in(headers)}
    gone = {
        version
        for file in parts.files
        if file.file.path in parts.unreadable
        for version in range(file.low, min(file.high, max([file.low, *known])) + 1)
    }
    readable, unreadable = [], {}
    culprit: int | None = None if 1 in known else 0  # nothing comes before the oldest version that is kept
    for version in _through([*known, *gone]):
        if parts.is_intact(version, "snapshot") or (culprit is None and parts.is_intact(version, "changes")):
            culprit = None
            readable.append(known[version])
        elif not culprit or not parts.is_intact(version, "changes"):
            culprit = unreadable[version] = version
        else:
            unreadable[version] = culprit
    return StoreCheck(tuple(readable), unreadable, tuple(damaged))


def _through(versions: Iterable[int]) -> range:
    numbers = list(versions)
    return range(min(numbers), max(numbers) + 1) if numbers else range(0)


def _rebuilt(parts: FileParts, file: StoreFile) -> Parts | None:
    """What a damaged file should hold; None if some of it is not known."""
    if file.file.path in parts.unreadable and file.low != file.high:
        return None
    file_parts = dict(parts.of(file))
    wanted = [key for key, part in file_parts.items() if not part.is_intact] or [(file.low, _kind(parts, file))]
    for version, kind in wanted:
        part = _snapshot(parts, version) if kind == "snapshot" else _changes(parts, version)
        if part is None:
            return None
        file_parts[version, kind] = part
    return file_parts


def _kind(parts: FileParts, file: StoreFile) -> Kind:
    return file.kind or ("snapshot" if parts.find(file.low, "changes") else "changes")


def _snapshot(parts: FileParts, version: int) -> VersionPart | None:
    own = parts.find(version, "changes")
    contents = _contents(parts, version)
    if own is None or own.header is None or contents is None:
        return None
    header = own.header
    return VersionPart(
        VersionHeader(**{**vars(header), "snapshot": version, "content": digest(contents.items.items())}),
        contents.items,
    )


def _changes(parts: FileParts, version: int) -> VersionPart | None:
    own, before, after = parts.find(version, "snapshot"), _contents(parts, version - 1), _contents(parts, version)
    if own is None or own.header is None or before is None or after is None:
        return None
    changes = before.changes_to(after)
    header = VersionHeader(**{**vars(own.header), "snapshot": 0, "content": digest(changes.items())})
    return VersionPart(header, changes)


def _contents(parts: FileParts, version: int) -> VersionContents | None:
    try:
        return rebuild(parts.find, version).contents
    except NoPart:
        return None
