"""The files that hold the versions of a state store, and what is read from them one by one."""

from __future__ import annotations

from dataclasses import dataclass

from odi_assets.delta.commit import replace_files
from odi_assets.delta.errors import cannot_look, plain
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import StateError, Transient
from odi_assets.store.parts import COLUMNS, Kind, Parts, VersionPart, parts_in
from odi_assets.util.lazy import pa

CLEANING = "odi/store/clean"
"""The fence of commits that remove files of versions."""

LAST = 2**63 - 1
"""A version after all others."""


@dataclass(frozen=True)
class StoreFile:
    """A live file of a store, the versions between which all its rows lie, and the kind of its part.

    Attributes:
        kind: None where its statistics do not tell: in files of earlier releases, and after a compaction.
    """

    file: LiveFile
    low: int
    high: int
    kind: Kind | None = None


def store_files(handle: TableHandle) -> list[StoreFile]:
    """The files of a store's versions; files of older versions come first."""
    return sorted((file for file in all_files(handle) if file.kind != "staged"), key=lambda file: file.low)


def all_files(handle: TableHandle) -> list[StoreFile]:
    """The files of a store, staged ones included."""
    columns = handle.file_columns(("min.version", "max.version", "min.part", "max.part"))
    return [
        StoreFile(file, low or 0, LAST if high is None else high, kind if kind == last else None)
        for file, low, high, kind, last in zip(handle.live_files, *columns, strict=True)
    ]


def remove_before(handle: TableHandle, version: int) -> int:
    """Remove the files all of whose rows belong to versions before ``version``, in one commit; how many.

    Raises:
        CommitConflict: another process removed files at the same time.
        StateError: the table cannot be written.
    """
    old = files_before(handle, version)
    if old:
        replace_files(handle, [], old, CLEANING)
    return len(old)


def files_before(handle: TableHandle, version: int) -> list[LiveFile]:
    """The files all of whose rows belong to versions before ``version``."""
    return [file.file for file in all_files(handle) if file.high < version]


class FileParts:
    """The parts of a store's versions, read file by file, each when it is first asked for. So a damaged part does not
    keep the other parts from being read.

    Attributes:
        files: the files; files of older versions come first.
        unreadable: by path, why a file cannot be read.
    """

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle
        self.files = store_files(handle)
        self.unreadable: dict[str, str] = {}
        self._read: dict[str, Parts] = {}

    def find(self, version: int, kind: Kind) -> VersionPart | None:
        """A part of a version; None if no file that can be read has it.

        Raises:
            StateError: the store does not answer, or refuses to show a file.
        """
        best_part = None
        for file in self.files:
            if file.low <= version <= file.high and file.kind in (None, kind):
                part = self.of(file).get((version, kind))
                best_part = part if part is not None and (best_part is None or part.is_intact) else best_part
        return best_part

    def of(self, file: StoreFile) -> Parts:
        """The parts that a file has; empty if it cannot be read."""
        path = file.file.path
        if path not in self._read:
            self._read[path] = self._load(file.file)
        return self._read[path]

    @property
    def damaged(self) -> dict[str, str]:
        """By path, what is wrong with files that were read: those that cannot be, and those with other rows."""
        altered = {path for path, parts in self._read.items() if not all(part.is_intact for part in parts.values())}
        return {**dict.fromkeys(altered, "its rows are not those that were committed"), **self.unreadable}

    def names(self, version: int) -> list[str]:
        """The paths of the files that hold a version, or should."""
        return [file.file.path for file in self.files if file.low <= version <= file.high]

    def cause(self, gap: int) -> int:
        """The first version with a damaged file, of those that ``gap``, which cannot be put together, is made from."""
        oldest = min((file.low for file in self.files), default=gap)
        at = gap
        while at >= oldest and not self.is_intact(at, "snapshot"):
            self.find(at, "changes")
            at -= 1
        damaged = self.damaged
        return min((file.low for file in self.files if file.file.path in damaged and file.low > at), default=gap)

    def is_intact(self, version: int, kind: Kind) -> bool:
        """Whether a part of a version is there and undamaged."""
        part = self.find(version, kind)
        return part is not None and part.is_intact

    def _load(self, file: LiveFile) -> Parts:
        from odi_assets.delta.maintenance.compaction import rows_in_files

        try:
            with self._handle.calls("reading a file of a state store"):
                return parts_in(COLUMNS.lists(rows_in_files(self._handle, [file])))
        except (StateError, pa.ArrowException) as error:
            if isinstance(error, StateError) and (isinstance(error, Transient) or cannot_look(error)):
                raise
            cause = error.__cause__ or error
            self.unreadable[file.path] = "it is missing" if isinstance(cause, FileNotFoundError) else _one_line(cause)
            return {}


def _one_line(error: BaseException) -> str:
    return " ".join(plain(error).split())
