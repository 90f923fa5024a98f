"""Processes that commit versions of one state store; each says what became of its commits, a line at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from odi_assets.errors import FencedError
from odi_assets.store import StateStoreProvider


def race(provider: StateStoreProvider, until: int) -> None:
    """Commit the next version, whichever that is, until there are so many."""
    version = provider.latest_version()
    while version < until:
        store = provider.get_store(version)
        store.put(b"%d" % (version + 1), provider.writer.encode())
        try:
            tell("won", store.commit())
        except FencedError as error:
            tell(error.winner, error.version)
        version = provider.latest_version()


def forever(provider: StateStoreProvider, _until: int) -> None:
    """Commit one version after the other."""
    version = provider.latest_version()
    while True:
        store = provider.get_store(version)
        store.put(b"%d" % (version % 5), b"%d" % (version + 1))
        version = store.commit()
        tell("won", version)


def tell(*words: object) -> None:
    print(*words, flush=True)


def start(folder: Path, job: str, until: int, writers: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Start one process per writer; they wait for :func:`odi_assets_tests.state.writers.go`."""
    return [
        subprocess.Popen(
            [sys.executable, "-m", "odi_assets_tests.store.writers", json.dumps([str(folder), job, until, name])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in writers
    ]


if __name__ == "__main__":
    folder_, job_, until_, name_ = json.loads(sys.argv[1])
    opened = StateStoreProvider(Path(folder_) / "store", writer=name_, snapshot_every=4, retain=50)
    print("ready", flush=True)
    sys.stdin.readline()
    globals()[job_](opened, until_)
