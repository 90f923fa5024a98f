"""Whether two looks at a file saw the same content.

A plan reads both ends of a new file, and of one that changed after it was loaded: a local file system notes that,
though a writer gives the file its former time back. A run that loads it reads all of it once more, beside Spark; so if
its time changes later, and nothing else, reading the whole file shows whether it was only touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.files.loaded.ledger import LoadedFile

_END = 64 * 1024
"""Bytes read at either end of a file."""

WHOLE_IS_KNOWN = 2 * _END
"""Bytes of the largest file whose ends are all of it."""

_READERS = 8
_PIECE = 1024 * 1024


def with_digests(base: Location, files: list[SourceFile]) -> list[LoadedFile]:
    """``files`` as the ledger lists them: with the object store's etag, or a digest of both ends of a local file.

    Raises:
        SourceError: a file cannot be read.
    """
    if not base.is_local:
        return [LoadedFile(file.path, file.mtime_ns, file.size, file.etag) for file in files]
    with ThreadPoolExecutor(max_workers=min(_READERS, len(files) or 1)) as pool:
        digests = pool.map(lambda file: _digest(base.local_path / file.path), files)
        return [
            LoadedFile(file.path, file.mtime_ns, file.size, "", digest, changed_ns=file.changed_ns)
            for file, digest in zip(files, digests, strict=True)
        ]


def same_content(base: Location, before: LoadedFile, now: LoadedFile) -> bool:
    """Whether a file with a new time still has the loaded content; False if that is not known.

    Raises:
        SourceError: the file cannot be read.
    """
    if before.size != now.size:
        return False
    if before.etag or now.etag:
        return before.etag == now.etag
    if not now.digest or before.digest != now.digest:
        return False
    if now.size <= WHOLE_IS_KNOWN or (before.mtime_ns == now.mtime_ns and not before.whole):
        return True
    return before.whole == _whole(base.local_path / now.path)


def with_whole_digests(base: Location, files: Sequence[LoadedFile], new: Collection[str]) -> list[LoadedFile]:
    """``files`` with a digest of all of their content, where they are ``new`` and both ends are not all of it.

    A file that is not any more as it was listed gets none: what Spark reads of it is not known.

    Raises:
        SourceError: a file cannot be read.
    """

    def looked_at(file: LoadedFile) -> LoadedFile:
        if file.path not in new or not file.digest or file.size <= WHOLE_IS_KNOWN:
            return file
        path = base.local_path / file.path
        whole, status = _whole(path), path.stat()
        current_state = status.st_mtime_ns, status.st_size, status.st_ctime_ns
        as_listed = current_state == (file.mtime_ns, file.size, file.changed_ns)
        return replace(file, whole=whole) if as_listed else file

    with ThreadPoolExecutor(max_workers=_READERS) as pool:
        return list(pool.map(looked_at, files))


def is_moved(before: LoadedFile, now: LoadedFile) -> bool:
    """Whether ``now`` is ``before`` under another name: a move keeps time, size and content."""
    if not now.digest:
        return False
    return (before.mtime_ns, before.size, before.digest) == (now.mtime_ns, now.size, now.digest)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            digest = hashlib.blake2b(stream.read(_END), digest_size=8)
            size = stream.seek(0, 2)
            if size > _END:
                stream.seek(max(_END, size - _END))
                digest.update(stream.read(_END))
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def _whole(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()[:32]


def _unreadable(path: Path, error: OSError) -> SourceError:
    return SourceError(
        f"{path} cannot be read: {error.strerror}",
        fix="give odi the right to read it; a file that is not to be loaded gets a name that begins with `_`",
        path=str(path),
    )
