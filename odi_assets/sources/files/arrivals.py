"""Which files of a landing folder are new, decided by the ledger of loaded files.

A mark of files names the newest loaded file, for people to read, and the parts of the ledger, which decide. So a file
that arrives with an old time of change is new, and no file is loaded twice. A mark without a ledger (an old one, or one
set by hand) says that all files up to it were loaded; the ledger is then made from these.
"""

from __future__ import annotations

import posixpath
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from odi_assets.config.models import OnChange
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError
from odi_assets.sources.files import fingerprint as content
from odi_assets.sources.files import ledger
from odi_assets.sources.files.ledger import LoadedFile, NewPart
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.marks import FilesMark, LedgerPart
from odi_assets.util.words import counted

_SHOWN = 3


@dataclass(frozen=True)
class Arrivals:
    """What one look at a landing folder found.

    Attributes:
        new: files to load, oldest first, with rewritten files that are loaded again.
        known: loaded files that are still there, as they are now.
        changed: the ``new`` files that were loaded before and have other content now.
        ignored: loaded files with other content now, not loaded again because of ``on_change: ignore``.
        moved: files that were loaded under another name.
        copied: the ``new`` files with the content of a loaded file that is gone, and another time: a file that was
            moved and touched, say. They may as well be files of their own, so they are loaded.
        gone: loaded files that are not there any more, or are empty now; their rows stay.
        empty: files of 0 bytes that were never loaded; they are new once they have content.
        unsettled: files that changed less than the settling time ago; a later increment takes them.
        mark: the mark once ``new`` is in the target.
        part: the part of the ledger that the mark names, not written yet.
    """

    new: tuple[SourceFile, ...]
    known: tuple[SourceFile, ...]
    changed: tuple[str, ...]
    ignored: tuple[str, ...]
    moved: tuple[str, ...]
    copied: tuple[str, ...]
    gone: tuple[str, ...]
    empty: tuple[str, ...]
    unsettled: tuple[str, ...]
    mark: FilesMark | None
    part: NewPart | None

    @property
    def notes(self) -> str:
        """What else was found, in words; empty if nothing."""
        found = {
            "rewritten, loaded again": self.changed,
            "rewritten and ignored": self.ignored,
            "moved, known already": self.moved,
            "loaded as new, with the content of a file that is gone": self.copied,
            "gone, their rows stay": self.gone,
            "empty, skipped": self.empty,
            "not settled yet": self.unsettled,
        }
        return "; ".join(f"{len(paths):,} {what} ({_some(paths)})" for what, paths in found.items() if paths)


def arrivals(
    base: Location,
    table: Location,
    listed: Sequence[SourceFile],
    mark: FilesMark | None,
    label: str,
    *,
    on_change: OnChange,
    settle: timedelta = timedelta(0),
    folders: tuple[str, str] | None = None,
    now_ns: int | None = None,
) -> Arrivals:
    """Compare what is ``listed`` below ``base`` with what ``mark`` says is in ``table``.

    Args:
        settle: files that changed less than this ago, by this machine's clock, are left for a later increment.
        folders: the folder of the paths of loaded files, and the folder of ``listed`` paths; None if it is the same.

    Raises:
        IncrementError: the ledger cannot be read, or a loaded file was rewritten and ``on_change`` is ``raise``.
        SourceError: a new file cannot be read.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    files = [file for file in listed if file.size]
    loaded, parts, adopted = ({}, (), []) if mark is None else _loaded(base, table, files, mark, label)
    if folders is not None:
        # The connection was changed and leads to the same files: the ledger lists all of them again, by new paths.
        adopted = [replace(file, path=_relative(file.path, *folders)) for file in loaded.values()]
        loaded, parts = {file.path: file for file in adopted}, ()
    settle_ns = settle.total_seconds() * 1_000_000_000
    # A time far in the future means a wrong clock, not a file that is being written.
    unsettled = {file.path for file in files if abs(now_ns - file.mtime_ns) < settle_ns}
    differing = [file for file in files if _differs(file, loaded.get(file.path))]
    looked_at = content.with_digests(base, [f for f in differing if f.path in loaded or f.path not in unsettled])
    other = {f.path for f in looked_at if f.path in loaded and not content.same_content(base, loaded[f.path], f)}
    gone = loaded.keys() - {file.path for file in files}
    settled = [file for file in looked_at if file.path not in unsettled]
    fresh = {file.path for file in settled if file.path not in loaded}
    candidates = fresh | other
    absent = [loaded[path] for path in sorted(gone | other)]
    moved = _moved([f for f in settled if f.path in candidates], absent) if absent else {}
    # If a loaded file was moved away and another file has its name now, that is a new file.
    left_behind = set(moved.values())
    changed = other - left_behind - moved.keys()
    rewritten = [f.path for f in settled if f.path in changed]
    if rewritten and on_change == "raise":
        raise _rewritten(rewritten, label)
    reload = rewritten if on_change == "reload" else []
    ignored = set(rewritten) - set(reload)
    take = (fresh | (other & left_behind) | set(reload)) - moved.keys() - unsettled
    added = take - changed
    new = tuple(file for file in files if file.path in take)
    # What was only touched or moved is read no more, so what is known of all of its content stays known.
    origin = {file.path: moved.get(file.path, file.path) for file in settled if file.path not in take}
    entries = [
        *adopted,
        *(
            replace(file, whole=loaded[origin[file.path]].whole) if origin.get(file.path) in loaded else file
            for file in settled
            if file.path not in ignored
        ),
    ]
    vacant = left_behind - {file.path for file in settled}
    newest = max([*((file.mtime_ns, file.path) for file in new[-1:]), *([mark.cursor] if mark else [])], default=None)
    after, part = ledger.extend(table, parts, [*entries, *map(ledger.vacated, sorted(vacant))], label)
    known_now = (loaded.keys() - vacant) | moved.keys()
    return Arrivals(
        new=new,
        known=tuple(file for file in files if file.path in known_now and file.path not in take),
        changed=tuple(reload),
        ignored=tuple(sorted(ignored)),
        moved=tuple(sorted(moved)),
        copied=_copied((f for f in settled if f.path in added), [loaded[path] for path in gone]) if gone else (),
        gone=tuple(sorted((gone | (other & moved.keys())) - left_behind)),
        empty=tuple(file.path for file in listed if not file.size and file.path not in loaded),
        unsettled=tuple(file.path for file in files if file.path in unsettled),
        mark=FilesMark(*newest, tuple(after)) if newest else None,
        part=part,
    )


def _differs(file: SourceFile, before: LoadedFile | None) -> bool:
    """Whether a file may not be any more as it was loaded. Ledgers of before do not know when it changed."""
    if before is None or (file.mtime_ns, file.size, file.etag) != (before.mtime_ns, before.size, before.etag):
        return True
    return bool(before.changed_ns) and file.changed_ns != before.changed_ns


def _relative(path: str, folder: str, other: str) -> str:
    return posixpath.relpath(posixpath.join(folder, path), other)


def _loaded(
    base: Location, table: Location, files: Sequence[SourceFile], mark: FilesMark, label: str
) -> tuple[dict[str, LoadedFile], tuple[LedgerPart, ...], list[LoadedFile]]:
    """Loaded files by path, the parts of the ledger that list them, and those that no part lists yet."""
    if mark.parts is not None:
        read = ledger.read_parts(table, mark.parts, label)
        return {path: file for path, file in read.items() if file.size}, mark.parts, []
    adopted = content.with_digests(base, [file for file in files if (file.mtime_ns, file.path) <= mark.cursor])
    return {file.path: file for file in adopted}, (), adopted


def _moved(fresh: Iterable[LoadedFile], gone: Iterable[LoadedFile]) -> dict[str, str]:
    """New path to old path of renamed files; ``gone`` are the loaded files not found under their own name."""
    # Several files may have the same time to the nanosecond: files unpacked from one archive, for example.
    alike: dict[tuple[int, int, str], list[LoadedFile]] = defaultdict(list)
    for file in gone:
        alike[file.mtime_ns, file.size, file.digest].append(file)
    found: dict[str, str] = {}
    for file in fresh:
        before = alike.get((file.mtime_ns, file.size, file.digest))
        if before and content.is_moved(before[-1], file):
            found[file.path] = before.pop().path
    return found


def _copied(new: Iterable[LoadedFile], gone: Iterable[LoadedFile]) -> tuple[str, ...]:
    contents = {(file.size, file.etag or file.digest) for file in gone}
    return tuple(sorted(f.path for f in new if (f.etag or f.digest) and (f.size, f.etag or f.digest) in contents))


def _rewritten(paths: Sequence[str], label: str) -> IncrementError:
    count = len(paths)
    return IncrementError(
        f"{counted(count, 'file')} of {label} {'was' if count == 1 else 'were'} loaded and "
        f"{'has' if count == 1 else 'have'} other content now: {_some(paths)}",
        fix="land changed data under a new name; or set `incremental.on_change` to `reload` (loads the file again as "
        "it is now) or `ignore` (keeps what was loaded); or load everything again with odi run --full-refresh",
        paths=tuple(paths),
    )


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
