"""Writes documents to files: whole or not at all, and never back to an earlier position unless that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from odi_assets.documents.compare import StreamMove, compare
from odi_assets.documents.model import CursorDocument
from odi_assets.documents.moves import Move
from odi_assets.documents.reading import inspect_file
from odi_assets.errors import CursorDocumentError
from odi_assets.util.durable import write_file

BACKWARDS = frozenset({Move.BACK, Move.GONE, Move.INCOMPARABLE})
"""Moves after which a tool reads rows again, or of which that cannot be ruled out."""
_SHOWN = 10
_LOCK_SECONDS, _POLL_SECONDS = 60.0, 0.01


@contextmanager
def held(path: str | Path) -> Iterator[None]:
    """Keep the other processes and threads of this machine that write a document by :func:`save` away from its file,
    for one read and change. A thread may hold a file twice.

    Other tools know nothing of the lock.

    Raises:
        CursorDocumentError: somebody else held it for a minute.
        OSError: there can be no lock there.
    """
    target = Path(path).resolve()
    lock_path = target.with_name(f".{target.name}.lock")
    lock = FileLock(lock_path, timeout=_LOCK_SECONDS, poll_interval=_POLL_SECONDS, is_singleton=True)
    try:
        lock.acquire()
    except Timeout as error:
        raise CursorDocumentError(
            f"another process has held the lock of {path} for {_LOCK_SECONDS:.0f} s",
            fix=f"find the process that holds {lock_path} (a stopped one holds it too) and end it",
            path=str(path),
        ) from error
    try:
        yield
    finally:
        lock.release()


def save(
    document: CursorDocument, path: str | Path, *, force: bool = False, read: CursorDocument | None = None
) -> tuple[StreamMove, ...]:
    """Write ``document.text`` to a file, in one step that no reader and no kill can meet half done.

    Args:
        force: also over a file that is further, or that cannot be read.
        read: what the file held when ``document`` was made of it: it must hold that still, also with ``force``.

    Returns:
        How its streams moved from what the file held; nothing for a new file.

    Raises:
        CursorDocumentError: a stream would go back, the file holds no document, or another one than ``read``; fields
            path, moves.
        OSError: the file cannot be written.
    """
    with held(path):
        if read is not None:
            _require_same(read, path)
        return _save(document, path, force=force)


def _require_same(read: CursorDocument, path: str | Path) -> None:
    now = inspect_file(path, tool=read.tool).document
    if now is None or now.text != read.text:
        raise CursorDocumentError(
            f"{path} was changed by somebody else since it was read, and stays as it is",
            fix="stop the tool that writes it, and say the same again",
            path=str(path),
        )


def _save(document: CursorDocument, path: str | Path, *, force: bool) -> tuple[StreamMove, ...]:
    target = Path(path)
    moves: tuple[StreamMove, ...] = ()
    if target.exists():
        before = inspect_file(target, tool=document.tool)
        if before.document is not None:
            moves = compare(before.document, document)
            if not force:
                require_forward(moves, str(path))
        elif not force:
            raise CursorDocumentError(
                f"{path} holds no document of {document.tool} that can be read, so whether it is further is not known",
                fix="look at it with odi cursors check; then write over it with --force",
                path=str(path),
            )
    write_file(target, document.text)
    return moves


def require_forward(moves: Iterable[StreamMove], where: str) -> None:
    """Refuse moves that go back.

    Raises:
        CursorDocumentError: a stream goes back, is gone, or has no order; fields path, moves.
    """
    back = tuple(move for move in moves if move.move in BACKWARDS)
    if back:
        shown = "".join(f"\n  {move}" for move in back[:_SHOWN])
        more = f"\n  … and {len(back) - _SHOWN} more" if len(back) > _SHOWN else ""
        raise CursorDocumentError(
            f"{where} stays as it is: streams would go back, and their rows be read again:{shown}{more}",
            fix="say --force if that is meant",
            path=where,
            moves=back,
        )
