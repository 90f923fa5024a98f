"""Which files arrived since a mark was set: those whose paths the mark does not know."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from odi_assets.sources.files.listing import SourceFile

_MOST = 500
"""Files that a mark knows. Of more, nothing is kept: the commit that sets the mark stays small."""
_DIGEST = 4


def known_files(files: Sequence[SourceFile]) -> str | None:
    """The files as a mark keeps them: a short digest of each path, and of its state; None of too many."""
    if len(files) > _MOST:
        return None
    return base64.b64encode(b"".join(sorted(_of_path(file) + _of_state(file) for file in files))).decode()


def arrived_since(files: Sequence[SourceFile], known: str) -> tuple[list[SourceFile], bool]:
    """The files whose paths are not among the ``known`` ones; and whether one of the others was rewritten."""
    kept = base64.b64decode(known)
    pairs = [kept[at : at + 2 * _DIGEST] for at in range(0, len(kept), 2 * _DIGEST)]
    paths, states = {pair[:_DIGEST] for pair in pairs}, set(pairs)
    new = [file for file in files if _of_path(file) not in paths]
    others = [file for file in files if _of_path(file) in paths]
    return new, any(_of_path(file) + _of_state(file) not in states for file in others)


def _of_path(file: SourceFile) -> bytes:
    return _short(file.path)


def _of_state(file: SourceFile) -> bytes:
    return _short(f"{file.size}\0{file.mtime_ns}\0{file.etag}")


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_DIGEST).digest()
