"""What the rows of a state store's table mean: parts of versions, and a version's contents put together from them.

A version is written as its changes. From time to time a snapshot is written beside them, in a file of its own: all that
the version holds. So a version is its snapshot, or the version before it and its changes; where one of the two is
damaged, the other gives the same.

A part's rows are one header (no key) and its entries (no value: removed). A header carries digests: of the part's
entries, by which damage is noticed, and of the batch on its base, by which the same batch committed again is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from odi_assets.state.delta.system_columns import Columns
from odi_assets.store.contents import VersionContents, apply, digest

Kind = Literal["changes", "snapshot", "staged"]
"""What a part holds: a version's changes, all of its entries, or changes that may become a version."""

COLUMNS = Columns(
    {
        "version": "long",
        "key": "binary",
        "value": "binary",
        "snapshot": "long",
        "commit_id": "string",
        "writer": "string",
        "batch": "string",
        "content": "string",
        "committed_at": "timestamp",
        "part": "string",
    }
)
"""``part`` is null in stores of earlier releases, where some versions had a snapshot instead of changes."""
REQUIRED = frozenset(COLUMNS.kinds) - {"part"}
HEADER = [name for name in COLUMNS.kinds if name not in ("key", "value")]


@dataclass(frozen=True)
class VersionHeader:
    """The header of a version.

    Attributes:
        version: which.
        snapshot: the newest version with a snapshot that was known, at most this one; 0 if there was none.
        commit_id: of this commit alone.
        writer: who committed it.
        batch: digest of the changes and of what they were based on.
        content: digest of the part's entries.
        committed_at: when, by the writer's clock.
    """

    version: int
    snapshot: int
    commit_id: str
    writer: str
    batch: str
    content: str
    committed_at: datetime


@dataclass(frozen=True)
class VersionPart:
    """The rows of one part of a version; ``header`` is None if it was not found."""

    header: VersionHeader | None
    entries: Mapping[bytes, bytes | None]

    @cached_property
    def is_intact(self) -> bool:
        """Whether its entries are those that were committed."""
        return self.header is not None and digest(self.entries.items()) == self.header.content


Parts = dict[tuple[int, Kind], VersionPart]
Find = Callable[[int, Kind], VersionPart | None]
"""Gives a part of a version; None if it is not there or cannot be read."""


@dataclass(frozen=True)
class Rebuilt:
    """A version put together from its parts.

    Attributes:
        base: the version of the snapshot that was used; 0 if there was none.
        past: how many newer snapshots are damaged, so that changes stood for them.
    """

    contents: VersionContents
    base: int
    past: int = 0


class NoPart(Exception):
    """A version cannot be put together: ``version`` has neither an intact snapshot nor intact changes."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version}")
        self.version = version


def rows_of(commit: VersionHeader, kind: Kind, entries: Mapping[bytes, bytes | None]) -> dict[str, list[Any]]:
    """A part as columns of the table: its header first, then its entries in order of their keys."""
    ordered = sorted(entries.items())
    header = {**asdict(commit), "key": None, "value": None}
    rest: dict[str, list[Any]] = {name: [None] * len(ordered) for name in COLUMNS.kinds}
    rest |= {"key": [key for key, _ in ordered], "value": [value for _, value in ordered]}
    rest["version"] = [commit.version] * len(ordered)
    return {name: [header.get(name), *rest[name]] for name in COLUMNS.kinds} | {"part": [kind] * (len(ordered) + 1)}


def headers_in(lists: Mapping[str, Sequence[Any]]) -> dict[tuple[int, Kind], VersionHeader]:
    """The headers among rows, which may be rows of several files."""
    headers = {}
    for row in range(len(lists["version"])):
        if lists["commit_id"][row] is not None:
            commit = VersionHeader(**{name: lists[name][row] for name in HEADER if name != "part"})
            headers[commit.version, _kind(lists["part"][row], commit)] = commit
    return headers


def parts_in(lists: Mapping[str, Sequence[Any]]) -> Parts:
    """The parts of which these rows are."""
    headers = headers_in(lists)
    entries: dict[tuple[int, Kind], dict[bytes, bytes | None]] = {part_key: {} for part_key in headers}
    for version, kind, key, value in zip(*(lists[n] for n in ("version", "part", "key", "value")), strict=True):
        if key is not None:
            if kind is None:
                kind = "snapshot" if (version, "snapshot") in headers else "changes"
            entries.setdefault((version, kind), {})[key] = value
    return {part_key: VersionPart(headers.get(part_key), part_entries) for part_key, part_entries in entries.items()}


def versions_in(headers: Mapping[tuple[int, Kind], VersionHeader]) -> list[VersionHeader]:
    """One header for each version, in order; its ``snapshot`` is the version itself where it has one."""
    header_by_version: dict[int, VersionHeader] = {}
    for kind in ("snapshot", "changes"):
        for (version, its_kind), commit in headers.items():
            if its_kind == kind:
                has_snapshot = (version, "snapshot") in headers
                header_by_version[version] = replace(commit, snapshot=version) if has_snapshot else commit
    return [header_by_version[version] for version in sorted(header_by_version)]


def rebuild(find: Find, version: int) -> Rebuilt:
    """What ``version`` holds: the newest intact snapshot up to it, and all changes since.

    Raises:
        NoPart: some version on the way has neither.
    """
    later: list[VersionPart] = []
    items: dict[bytes, bytes] = {}
    at = version
    while at > 0:
        snapshot = find(at, "snapshot")
        if snapshot is not None and snapshot.is_intact:
            apply(snapshot.entries, items)
            break
        changes = find(at, "changes")
        if changes is None or not changes.is_intact:
            raise NoPart(at)
        later.append(changes)
        at -= 1
    for changes in reversed(later):
        apply(changes.entries, items)
    return Rebuilt(VersionContents(items), at)


def _kind(part: Kind | None, commit: VersionHeader) -> Kind:
    return part or ("snapshot" if commit.snapshot == commit.version else "changes")
