"""Writes documents to files: whole or not at all, and never back to an earlier position unless that is asked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from odi_assets.cursors.compare import StreamMove, compare
from odi_assets.cursors.model import CursorDocument
from odi_assets.cursors.moves import Move
from odi_assets.cursors.reading import inspect_file
from odi_assets.errors import CursorDocumentError
from odi_assets.util.durable import sync_folder

BACKWARDS = frozenset({Move.BACK, Move.GONE, Move.INCOMPARABLE})
"""Moves after which a tool reads rows again, or of which that cannot be ruled out."""
_SHOWN = 10


def save(document: CursorDocument, path: str | Path, *, force: bool = False) -> tuple[StreamMove, ...]:
    """Write ``document.text`` to a file, in one step that no reader and no kill can meet half done.

    Args:
        force: also over a file that is further, or that cannot be read.

    Returns:
        How its streams moved from what the file held; nothing for a new file.

    Raises:
        CursorDocumentError: a stream would go back, or the file holds no document; fields path, moves.
        OSError: the file cannot be written.
    """
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


def write_file(path: Path, text: str) -> None:
    """Put a text in the place of a file, whole, and on the disk.

    Raises:
        OSError: the file cannot be written.
    """
    # What a link leads to is replaced, not the link.
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", errors="surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o7777)
        else:
            Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
