"""Writer processes: each says what it was acknowledged, a line at a time, so that a kill loses no word of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from odi_assets.errors import StateConflictError
from odi_assets.state import StateBackend
from odi_assets_tests.state.conftest import open_backend


def set_own_keys(backend: StateBackend, name: str, count: int) -> None:
    for number in range(1, count + 1):
        backend.set_hwm(f"{name}.{number % 5}", number)
        acknowledge(number)


def set_one_shared_document(backend: StateBackend, name: str, count: int) -> None:
    """All writers add to the same file, each under its own key."""
    for number in range(1, count + 1):
        backend.set_hwm(name, number)
        acknowledge(number)


def increment_shared(backend: StateBackend, _name: str, count: int) -> None:
    done = 0
    while done < count:
        entry = backend.get_entry("shared")
        value, revision = (entry.value, entry.revision) if entry else (0, None)
        with suppress(StateConflictError):
            backend.compare_and_set("shared", value + 1, expected_revision=revision)
            done += 1
            acknowledge(value + 1)


def acknowledge(number: int) -> None:
    print(number, flush=True)


def start(kind: str, folder: Path, job: str, count: int, names: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Start one process per name; they wait for :func:`go` so that their first writes meet."""
    return [
        subprocess.Popen(
            [sys.executable, "-m", "odi_assets_tests.state.writers", json.dumps([kind, str(folder), job, name, count])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]


def go(writers: Sequence[subprocess.Popen[str]]) -> None:
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()


def acknowledged(writers: Sequence[subprocess.Popen[str]]) -> list[list[int]]:
    """Wait for the writers to end, and return what each was acknowledged. None may have had to try again."""
    told = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        assert "trying again" not in err
        told.append([int(line) for line in out.split()])
    return told


if __name__ == "__main__":
    kind_, folder_, job_, name_, count_ = json.loads(sys.argv[1])
    opened = open_backend(kind_, Path(folder_))
    print("ready", flush=True)
    sys.stdin.readline()
    globals()[job_](opened, name_, count_)
