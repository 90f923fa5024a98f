"""Whether two looks at a file saw the same content, without reading all of it."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError
from odi_assets.sources.files.ledger import LoadedFile
from odi_assets.sources.files.listing import SourceFile

_END = 64 * 1024
"""Bytes read at either end of a file. For files of up to twice that, the digest covers the whole content."""

_READERS = 8


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
            LoadedFile(file.path, file.mtime_ns, file.size, "", digest)
            for file, digest in zip(files, digests, strict=True)
        ]


def same_content(before: LoadedFile, now: LoadedFile) -> bool:
    """Whether a file with a new time still has the loaded content; False if that cannot be told."""
    if before.size != now.size:
        return False
    if before.etag or now.etag:
        return before.etag == now.etag
    return bool(now.digest) and before.digest == now.digest and now.size <= 2 * _END


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
        raise SourceError(
            f"{path} cannot be read: {error.strerror}",
            fix="give odi the right to read it; a file that is not to be loaded gets a name that begins with `_`",
            path=str(path),
        ) from error
    return digest.hexdigest()
