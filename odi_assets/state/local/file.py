"""One JSON document on disk that many processes change: locked, fsynced, replaced as a whole, never reset."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from odi_assets.connections.location import is_there
from odi_assets.errors import StateConflictError, StateError
from odi_assets.state.values import is_utf8
from odi_assets.util import durable

_LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.002


class JsonFile:
    """A JSON object at ``path``. Readers need no lock: the file is only ever replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the file's lock, of this machine's processes and threads, for one read and change.

        Raises:
            StateConflictError: another process held it for a minute.
            StateError: there can be no lock there.
        """
        lock = FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS, poll_interval=_POLL_SECONDS)
        try:
            with writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire()
        except Timeout as error:
            raise StateConflictError(
                f"another process has held the lock of {self.path} for {_LOCK_SECONDS:.0f} s",
                fix=f"find the process that holds {self.path}.lock (a stopped one holds it too) and end it",
                path=str(self.path),
            ) from error
        try:
            yield
        finally:
            lock.release()

    def read(self) -> dict[str, Any]:
        """The document; empty if there is no file.

        Raises:
            StateError: it is not known whether there is a file, or it cannot be read. Or it is not a JSON object: a
                copy is set aside, and the file itself stays until someone repairs or removes it, so that nobody takes
                it for empty state.
        """
        with reading(self.path):
            if not is_there(self.path):
                return {}
            raw = self.path.read_bytes()
        try:
            document = json.loads(raw.decode())
        except UnicodeDecodeError as error:
            before = raw[: error.start]
            line = before.count(b"\n") + 1
            column = len(before) - (before.rfind(b"\n") + 1) + 1
            raise self._corrupted(raw, line, column, "not UTF-8 text") from error
        except json.JSONDecodeError as error:
            raise self._corrupted(raw, error.lineno, error.colno, error.msg) from error
        if not isinstance(document, dict):
            raise self._corrupted(raw, 1, 1, "not a JSON object")
        return document

    def replace(self, document: dict[str, Any]) -> None:
        """Write ``document`` so that after a crash either it or the one before is there. Call it under the lock.

        Raises:
            StateError: it cannot be written; the document before it is there. Or it is there, and may not survive
                a power cut: the message says so.
        """
        replace_file(self.path, [_text(document).encode()])

    def malformed(self, part: str, why: str) -> StateError:
        """The error for a document that is JSON and still not ours; ``part`` is the path of the wrong key."""
        return self._corrupted(self.path.read_bytes(), 1, 1, f"`{part}` {why}")

    def _corrupted(self, raw: bytes, line: int, column: int, why: str) -> StateError:
        try:
            kept = f", and a copy is at {self._set_aside(raw)}"
        except OSError:
            # Whoever may only read cannot leave a copy, and does not need one.
            kept = ""
        return StateError(
            f"the state file {self.path}:{line}:{column} is damaged: {why}",
            fix=f"nothing was changed{kept}: repair the file, put a good copy in its place, or set it aside "
            "(odi tables repair --system) and take the HWMs from the logs of their tables (odi state recover)",
            path=str(self.path),
            line=line,
            column=column,
        )

    def _set_aside(self, raw: bytes) -> Path:
        number = 1
        while True:
            aside = self.path.with_name(f"{self.path.name}.corrupt-{number}")
            try:
                with aside.open("xb") as file:
                    file.write(raw)
            except FileExistsError:
                if aside.read_bytes() == raw:
                    return aside
                number += 1
            else:
                return aside


def _text(document: dict[str, Any]) -> str:
    """JSON with each part of the document where a reader finds it; only ``odi``, the longest, is not indented."""
    for escapes in (False, True):
        parts = (
            f"  {json.dumps(name)}: "
            + json.dumps(part, indent=None if name == "odi" else 2, ensure_ascii=escapes).replace("\n", "\n  ")
            for name, part in document.items()
        )
        text = "{\n" + ",\n".join(parts) + "\n}\n"
        if escapes or is_utf8(text):
            return text
    raise AssertionError("escaped JSON is always UTF-8")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Run calls that look for ``path`` and read it, with the system's errors as ours.

    Raises:
        StateError: no permission, a path that cannot be, a link that leads nowhere.
    """
    try:
        yield
    except OSError as error:
        raise StateError(
            f"the state file {path} cannot be read: {error}",
            fix="check its folder and its permissions; nothing was taken for missing, and nothing was changed",
            path=str(path),
        ) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Run calls that write ``path``, with the system's errors as ours.

    Raises:
        StateError: permissions, a full disk, a path that cannot be.
    """
    try:
        yield
    except Timeout:
        # The lock's, and an OSError too.
        raise
    except OSError as error:
        raise StateError(
            f"the state file {path} cannot be written: {error}",
            fix="check its folder, its permissions and the free space there; nothing was changed",
            path=str(path),
        ) from error


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write the file at ``path`` so that after a crash either it or the one before is there.

    Raises:
        StateError: it cannot be written; the one before is there. Or it is there, and may not survive a power cut.
    """
    scratch = path.with_name(f"{path.name}.tmp")
    with writing(path):
        with scratch.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and new files in ``folder`` survive a power cut; a no-op where folders cannot be opened.

    Raises:
        StateError: it cannot be done. What was written is there, and a power cut may take it back.
    """
    try:
        durable.sync_folder(folder)
    except OSError as error:
        raise StateError(
            f"the change in {folder} was written, but may not survive a power cut: {error}",
            fix="look at the state before you go on: the change is there now",
            path=str(folder),
        ) from error
