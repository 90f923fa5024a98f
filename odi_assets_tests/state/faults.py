"""Faults of the store, put in below the backends: in deltalake's calls, and in those of the operating system."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from odi_assets.delta import table as delta_tables
from odi_assets.state.delta import table as system_tables

ABSORBED = "absorbed"
"""The backend gets over it: what was asked is done, once."""
REFUSED = "refused"
"""An error, and nothing was changed."""
EITHER = "either"
"""An error that cannot tell: all of it is there, or nothing."""

Fault = Callable[[pytest.MonkeyPatch], None]


def _appends(wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> Fault:
    def put_in(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(system_tables, "write_deltalake", wrap(system_tables.write_deltalake))

    return put_in


def _raising(error: Callable[[], Exception], times: int = 1_000_000) -> Fault:
    def wrap(real: Callable[..., None]) -> Callable[..., None]:
        left = [times]

        def append(*args: Any, **options: Any) -> None:
            left[0] -= 1
            if left[0] >= 0:
                raise error()
            real(*args, **options)

        return append

    return _appends(wrap)


def _answer_lost(real: Callable[..., None]) -> Callable[..., None]:
    def append(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise ConnectionError("reset by peer")

    return append


def gone_after_the_commit(calls: int) -> Fault:
    """The store stops to answer at the commit, and does so again after so many calls."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        real, real_table = system_tables.write_deltalake, delta_tables.DeltaTable
        left = [calls]

        def table(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                raise TimeoutError("the store does not answer")
            return real_table(*args, **options)

        table.create = real_table.create  # type: ignore[attr-defined]

        def append(*args: Any, **options: Any) -> None:
            patch.setattr(system_tables, "write_deltalake", real)
            real(*args, **options)
            patch.setattr(delta_tables, "DeltaTable", table)
            raise ConnectionError("reset by peer")

        patch.setattr(system_tables, "write_deltalake", append)

    return put_in


CATALOG: dict[str, tuple[Fault, str]] = {
    "conflict": (_raising(lambda: CommitFailedError("a concurrent commit"), 1), ABSORBED),
    "conflicts without end": (_raising(lambda: CommitFailedError("a concurrent commit")), REFUSED),
    "busy store": (_raising(lambda: OSError(errno.EAGAIN, "busy"), 2), ABSORBED),
    "no store": (_raising(lambda: TimeoutError("no answer")), REFUSED),
    "full disk": (_raising(lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), REFUSED),
    "lost answer": (_appends(_answer_lost), ABSORBED),
    "store gone for a while after the commit": (gone_after_the_commit(1), ABSORBED),
    "store gone after the commit": (gone_after_the_commit(1_000_000), EITHER),
}


def _fsync_fails(number: int, code: int) -> Fault:
    """The ``number``-th fsync fails: first of the file, then of its folder."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        real, calls = os.fsync, [0]

        def fsync(descriptor: int) -> None:
            calls[0] += 1
            if calls[0] == number:
                raise OSError(code, os.strerror(code))
            real(descriptor)

        patch.setattr(os, "fsync", fsync)

    return put_in


def _half_written(patch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle of a file."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = real(path, mode, *args, **options)
        return _ShortOf(file) if mode in ("wb", "ab") else file

    patch.setattr(Path, "open", opened)


class _ShortOf:
    """A file that takes half of what it is given."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def writelines(self, lines: Any) -> None:
        self.write(b"".join(lines))

    def __enter__(self) -> _ShortOf:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _rename_fails(patch: pytest.MonkeyPatch) -> None:
    def replace(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch.setattr(Path, "replace", replace)


LOCAL: dict[str, tuple[Fault, str]] = {
    "full disk": (_fsync_fails(1, errno.ENOSPC), REFUSED),
    "full disk in the middle": (_half_written, REFUSED),
    "folder not synced": (_fsync_fails(2, errno.EIO), EITHER),
    "rename fails": (_rename_fails, REFUSED),
}


@contextmanager
def injected(fault: Fault) -> Iterator[None]:
    """The fault, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        # Retries of a young table wait for milliseconds on the clock itself.
        patch.setattr(time, "sleep", lambda _seconds: None)
        fault(patch)
        yield
