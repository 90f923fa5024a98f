"""Which files of a landing folder are new, decided by the ledger of loaded files.

A mark of files names the newest loaded file, for people to read, and the parts of the ledger, which decide. So a file
that arrives with an old time of change is new, and no file is loaded twice. A mark without a ledger (an old one, or one
set by hand) says that all files up to it were loaded; the ledger is then made from these.
"""

from __future__ import annotations

import posixpath
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from odi_assets.config.models import OnChange
from odi_assets.config.write_modes import WriteTraits
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError, IncrementError, SourceError
from odi_assets.sources.files.folders import folder_values
from odi_assets.sources.files.listing import SourceFile, folder_of, looked_at_again
from odi_assets.sources.files.loaded import fingerprint as content
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.ledger import LoadedFile, NewPart
from odi_assets.sources.marks import FilesMark, Identity, LedgerPart
from odi_assets.util.words import counted

_SHOWN = 3


@dataclass(frozen=True)
class Arrivals:
    """What one look at a landing folder found.

    Attributes:
        new: files to load, oldest first, with rewritten files that are loaded again.
        known: loaded files that are still there, as they are now.
        changed: the ``new`` files that were loaded before and give other rows now: rewritten or ``shifted`` ones.
        ignored: loaded files that give other rows now, not loaded again because of ``on_change: ignore``.
        shifted: files of ``changed`` or ``ignored`` that were loaded below folders of other values (``k=1/``), of which
            their rows have columns.
        moved: files that were loaded under another name, and give the same rows.
        copied: the ``new`` files with the content of a loaded file that is gone, and another time: a file that was
            moved and touched, say. They may as well be files of their own, so they are loaded.
        gone: loaded files that are not there any more, or are empty now; their rows stay.
        empty: files of 0 bytes that were never loaded; they are new once they have content.
        unsettled: files that changed less than the settling time ago; a later increment takes them.
        mark: the mark once ``new`` is in the target.
        part: the part of the ledger that the mark names, not written yet.
        repeats: the write keeps the former rows of the ``changed`` files, and stores their present rows beside them.
    """

    new: tuple[SourceFile, ...]
    known: tuple[SourceFile, ...]
    changed: tuple[str, ...]
    ignored: tuple[str, ...]
    shifted: tuple[str, ...]
    moved: tuple[str, ...]
    copied: tuple[str, ...]
    gone: tuple[str, ...]
    empty: tuple[str, ...]
    unsettled: tuple[str, ...]
    mark: FilesMark | None
    part: NewPart | None
    repeats: bool

    @property
    def notes(self) -> str:
        """What else was found, in words; empty if nothing."""
        shifted, again = set(self.shifted), "loaded again beside former rows" if self.repeats else "loaded again"
        paths_by_note = {
            f"rewritten, {again}": [path for path in self.changed if path not in shifted],
            f"moved to folders of other values, {again}": [path for path in self.changed if path in shifted],
            "rewritten and ignored": [path for path in self.ignored if path not in shifted],
            "moved to folders of other values and ignored": [path for path in self.ignored if path in shifted],
            "moved, known already": self.moved,
            "loaded as new, with the content of a file that is gone": self.copied,
            "gone, their rows stay": self.gone,
            "empty, skipped": self.empty,
            "not settled yet": self.unsettled,
        }
        return "; ".join(f"{len(paths):,} {what} ({_some(paths)})" for what, paths in paths_by_note.items() if paths)


def arrivals(
    base: Location,
    table: Location,
    listed: Sequence[SourceFile],
    mark: FilesMark | None,
    label: str,
    *,
    on_change: OnChange,
    traits: WriteTraits,
    columns: Collection[str] | None = None,
    needed: Collection[str] = (),
    settle: timedelta = timedelta(0),
    path_now: Callable[[str], str] | None = None,
    adopts: bool = False,
    now_ns: int | None = None,
) -> Arrivals:
    """Compare what is ``listed`` below ``base`` with what ``mark`` says is in ``table``.

    Args:
        traits: of the write mode, which decide what an error advises.
        columns: those that rows can have, in small letters; None: all. Other ``name=value`` folders give no values.
        needed: columns that the write cannot do without.
        settle: files that changed less than this ago, by this machine's clock, are left for a later increment.
        path_now: gives the path that a loaded file has now, by its path when it was loaded; None if it is the same.
        adopts: no file is new. The part of the ledger that is made lists the loaded files alone, as they are now; those
            that give other rows now stay as they were loaded.

    Raises:
        IncrementError: the ledger cannot be read, or a loaded file gives other rows now and ``on_change`` is ``raise``.
        SourceError: a new file cannot be read.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    files = [file for file in listed if file.size]
    loaded, parts, adopted = ({}, (), []) if mark is None else _loaded(base, table, files, mark, label)
    # The connection was changed and leads to the same files: the ledger lists all of them again, by new paths.
    former = {} if path_now is None else _paths_now(loaded, path_now)
    if path_now is not None:
        adopted = [replace(loaded[path], path=now) for now, path in former.items()]
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
    moved, shifted = _moves([f for f in settled if f.path in candidates], absent, former, columns)
    # If a loaded file was moved away and another file has its name now, that is a new file.
    origins = shifted | moved
    left_behind = set(origins.values())
    renamed = _renamed((file.path for file in files if file.path not in candidates), former, columns)
    changed = (other - left_behind - moved.keys()) | shifted.keys()
    rewritten = [*(f.path for f in settled if f.path in changed), *renamed]
    if rewritten and on_change == "raise":
        raise _other_rows(rewritten, shifted | renamed, label, traits, needed)
    reload = rewritten if on_change == "reload" else []
    ignored = set(rewritten) - set(reload)
    take = (fresh | (other & left_behind) | set(reload)) - moved.keys() - unsettled - ignored
    take |= renamed.keys() & set(reload)
    added = take - changed
    new = () if adopts else tuple(file for file in files if file.path in take)
    kept = [f for f in settled if (f.path not in ignored or f.path in shifted) and not (adopts and f.path in take)]
    entries = [*adopted, *(f if f.path in take else _known_again(f, loaded, origins) for f in kept)]
    vacant = left_behind - {file.path for file in settled}
    newest = max([*((file.mtime_ns, file.path) for file in new[-1:]), *([mark.cursor] if mark else [])], default=None)
    after, part = ledger.extend(table, parts, [*entries, *map(ledger.vacated, sorted(vacant))], label)
    known_now = (loaded.keys() - vacant) | origins.keys()
    return Arrivals(
        new=new,
        known=tuple(file for file in files if file.path in known_now and file.path not in take),
        changed=tuple(reload),
        ignored=tuple(sorted(ignored)),
        shifted=tuple(sorted(shifted | renamed)),
        moved=tuple(sorted(moved)),
        copied=_copied((f for f in settled if f.path in added), [loaded[path] for path in gone]) if gone else (),
        gone=tuple(sorted((gone | (other & moved.keys())) - left_behind)),
        empty=tuple(file.path for file in listed if not file.size and file.path not in loaded),
        unsettled=tuple(file.path for file in files if file.path in unsettled),
        mark=FilesMark(*newest, tuple(after)) if newest else None,
        part=part,
        repeats=not traits.takes_rows_again,
    )


def require_as_loaded(arrived: Arrivals, label: str, node: str) -> None:
    """Raises ConfigError unless the files give the rows that were loaded of them: a range is made of them again."""
    if arrived.gone:
        raise ConfigError(
            f"{node}: {len(arrived.gone):,} of the files that were loaded from {label} are gone, "
            f"among them {arrived.gone[0]}; a range made of the others would lose their rows",
            fix="put the files back; what is loaded can be corrected by a full refresh from what is left",
            node=node,
        )
    if arrived.ignored:
        raise ConfigError(
            f"{node}: a range would take the present rows of {counted(len(arrived.ignored), 'file')} of "
            f"{label}, among them {arrived.ignored[0]}, whose former rows `on_change: ignore` keeps",
            fix="put the files back as they were; or accept their present rows by a full refresh",
            node=node,
        )


def require_as_listed(
    base: Location,
    pattern: str,
    label: str,
    new: Sequence[SourceFile],
    entries: Sequence[LoadedFile],
    count: int,
) -> None:
    """Raises SourceError unless files that were read are as they were ``new``: rows of another file may have been read
    in their place, or a part of one.

    Args:
        entries: of the ledger, which will say that they are loaded.
        count: how many files were listed.
    """
    if not new:
        return
    now = {file.path: file for file in looked_at_again(base, pattern, [file.path for file in new], count)}
    listed = {file.path: file for file in entries}
    other = [file.path for file in new if _is_other(base, listed[file.path], now.get(file.path))]
    if other:
        raise SourceError(
            f"{label}: {counted(len(other), 'file')} changed while they were read, {_some(other)}; nothing was loaded",
            fix="run again once it is written; `incremental.settle: 1m` leaves files alone that changed less than a "
            "minute ago",
            path=other[0],
        )


def _is_other(base: Location, before: LoadedFile, now: SourceFile | None) -> bool:
    if now is None:
        return True
    return _differs(now, before) and not content.same_content(base, before, *content.with_digests(base, [now]))


def _known_again(file: LoadedFile, loaded: Mapping[str, LoadedFile], origins: Mapping[str, str]) -> LoadedFile:
    """The entry of a file that was only touched or moved. It is not read again, so what is known of all of its content
    stays known."""
    before = loaded.get(origins.get(file.path, file.path))
    return file if before is None else replace(file, whole=before.whole)


def in_other_connection(then: Identity, now: Identity) -> Callable[[str], str] | None:
    """What gives the paths of loaded files, if another connection leads to the same files now; else None."""
    before, after = posixpath.normpath(then.source.strip("/")), posixpath.normpath(now.source.strip("/"))
    if before == after or not then.place or then.place != now.place:
        return None
    folder, other = then.place.removesuffix(before), now.place.removesuffix(after)
    return lambda path: posixpath.relpath(posixpath.join(folder, path), other)


def in_other_folder(then: Identity, now: Identity, there: Collection[str]) -> Callable[[str], str]:
    """What gives the paths of loaded files, if they were moved from the folder of one pattern to another's. One that is
    ``there`` under its own path was not, and none was by a pattern that has become narrower."""
    before, after = folder_of(then.source), folder_of(now.source)
    is_narrower = not before or f"{after}/".startswith(f"{before}/")

    def path_now(path: str) -> str:
        if is_narrower or path in there:
            return path
        return posixpath.normpath(posixpath.join(after, posixpath.relpath(path, before)))

    return path_now


def _paths_now(loaded: Collection[str], path_now: Callable[[str], str]) -> dict[str, str]:
    """By the path of now, the path of a loaded file when it was loaded. A place that another file has is not given to a
    second one, which keeps its own path."""
    former = {path: path for path in loaded if path_now(path) == path}
    for path in loaded:
        if path not in former:
            now = path_now(path)
            former[path if now in former else now] = path
    return former


def _differs(file: SourceFile, before: LoadedFile | None) -> bool:
    """Whether a file may not be any more as it was loaded. Ledgers of before do not know when it changed."""
    if before is None or (file.mtime_ns, file.size, file.etag) != (before.mtime_ns, before.size, before.etag):
        return True
    return bool(before.changed_ns) and file.changed_ns != before.changed_ns


def _loaded(
    base: Location, table: Location, files: Sequence[SourceFile], mark: FilesMark, label: str
) -> tuple[dict[str, LoadedFile], tuple[LedgerPart, ...], list[LoadedFile]]:
    """Loaded files by path, the parts of the ledger that list them, and those that no part lists yet."""
    if mark.parts is not None:
        read = ledger.read_parts(table, mark.parts, label)
        return {path: file for path, file in read.items() if file.size}, mark.parts, []
    adopted = content.with_digests(base, [file for file in files if (file.mtime_ns, file.path) <= mark.cursor])
    return {file.path: file for file in adopted}, (), adopted


def _moves(
    fresh: Sequence[LoadedFile],
    gone: Iterable[LoadedFile],
    former: Mapping[str, str],
    columns: Collection[str] | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """New path to old path of renamed files: of those with the same rows, and of those below folders of other values.

    Args:
        gone: the loaded files not found under their own name.
        former: the paths that loaded files had when they were loaded, where these are not their own.
    """
    # Several files may have the same time to the nanosecond: files unpacked from one archive, for example.
    alike: dict[tuple[int, int, str], list[LoadedFile]] = defaultdict(list)
    for file in gone:
        alike[file.mtime_ns, file.size, file.digest].append(file)
    moved: dict[str, str] = {}
    shifted: dict[str, str] = {}
    by_values: dict[tuple[int, int, str], dict[_Values, list[LoadedFile]]] = {}
    others = []
    for file in fresh:
        facts = (file.mtime_ns, file.size, file.digest)
        if facts not in alike or not content.is_moved(alike[facts][0], file):
            continue
        if facts not in by_values:
            groups = by_values[facts] = defaultdict(list)
            for before in alike[facts]:
                groups[_values(former.get(before.path, before.path), columns)].append(before)
        same = by_values[facts].get(_values(file.path, columns))
        if same:
            moved[file.path] = same.pop().path
        else:
            others.append(file)
    for file in others:
        left = next(filter(None, by_values[file.mtime_ns, file.size, file.digest].values()), None)
        if left:
            shifted[file.path] = left.pop().path
    return moved, shifted


_Values = frozenset[tuple[str, str]]
"""The values that folders give to the rows of a file, by column."""


def _values(path: str, columns: Collection[str] | None) -> _Values:
    return frozenset(folder_values(path, columns).items()) if "=" in path else frozenset()


def _columns_of_other_values(shifted: Mapping[str, str]) -> set[str]:
    """The columns in small letters of which moved files have other values."""
    return {name for now, old in shifted.items() for name, _ in _values(now, None) ^ _values(old, None)}


def _renamed(paths: Iterable[str], former: Mapping[str, str], columns: Collection[str] | None) -> dict[str, str]:
    """The path and the former path of loaded files whose folders give other values, seen from another connection."""
    there = ((path, former[path]) for path in paths if path in former)
    return {path: old for path, old in there if _values(path, columns) != _values(old, columns)}


def _copied(new: Iterable[LoadedFile], gone: Iterable[LoadedFile]) -> tuple[str, ...]:
    contents = {(file.size, file.etag or file.digest) for file in gone}
    return tuple(sorted(f.path for f in new if (f.etag or f.digest) and (f.size, f.etag or f.digest) in contents))


def _other_rows(
    paths: Sequence[str], shifted: Mapping[str, str], label: str, traits: WriteTraits, needed: Collection[str]
) -> IncrementError:
    rewritten = [path for path in paths if path not in shifted]
    moves = [f"{shifted[path]} to {path}" for path in paths if path in shifted]
    texts, back = [], []
    if rewritten:
        was, has = ("was", "has") if len(rewritten) == 1 else ("were", "have")
        texts.append(f"{was} loaded and {has} other content now: {_some(rewritten)}")
        back.append("put it back as it was, and land what is new under another name")
    if moves:
        was = "was" if len(moves) == 1 else "were"
        texts.append(f"{was} loaded and moved to folders of other values, which are columns: {_some(moves)}")
        back.append("move it back")
        if not _columns_of_other_values(shifted) & {name.lower() for name in needed}:
            back.append("or give a `read.schema` without these columns")
    count = len(rewritten) or len(moves)
    text = f"{counted(count, 'file')} of {label} {texts[0]}"
    text += f"; {counted(len(moves), 'file')} {texts[1]}" if len(texts) > 1 else ""
    return IncrementError(text, fix="; ".join([*back, *_ways_on(traits)]), paths=tuple(paths))


def _ways_on(traits: WriteTraits) -> Iterator[str]:
    """What else may be done about a loaded file that gives other rows now."""
    if traits.takes_rows_again:
        yield "or set `incremental.on_change` to `reload` (loads the file again as it is now)"
    else:
        yield "or write with `upsert`, which loads the file again in the place of its former rows"
    if traits.increment == "rows":
        yield "or set `incremental.on_change` to `ignore` (keeps what was loaded)"
    yield "or load everything again with odi run --full-refresh"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
