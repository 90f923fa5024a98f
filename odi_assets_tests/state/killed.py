"""Writers that are killed: each is a process of its own, and tells on a pipe what it was acknowledged."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from odi_assets.state import StateBackend
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.test_runs_contract import run

JOBS = ("set", "batch", "runs")


def write_until_killed(kind: str, folder: Path, name: str, told: Connection) -> None:
    """Count up: one key, then two keys in a batch, then two runs at once; and again."""
    backend = open_backend(kind, folder)
    number = 0
    while True:
        number += 1
        backend.set_hwm(name, number)
        told.send(("set", number))
        backend.set_hwm_batch([{"key": f"{name}.{part}", "value": number} for part in "ab"])
        told.send(("batch", number))
        backend.record_runs([run(number, pipeline=name, node=node) for node in "ab"])
        told.send(("runs", number))


@dataclass
class Writer:
    """A running writer, and what it was acknowledged."""

    name: str
    process: BaseProcess
    told: Connection
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JOBS, 0))

    def hear_one(self) -> None:
        assert self.told.poll(60), f"{self.name} was acknowledged nothing in a minute"
        job, number = self.told.recv()
        self.acknowledged[job] = number

    def kill(self) -> None:
        """kill -9, then hear what it had still told; its last word may be torn."""
        self.process.kill()
        self.process.join(60)
        assert self.process.exitcode == -9
        with suppress(EOFError, OSError):
            while self.told.poll(0):
                self.hear_one()
        self.told.close()

    def missing(self, backend: StateBackend) -> dict[str, tuple[int, set[int]]]:
        """What was acknowledged, beside what is there, where the two do not fit: a write may have landed without the
        word of it, and its parts are all there or none."""
        runs = backend.list_runs(pipeline=self.name)
        counts = {sum(r.node_name == node for r in runs) for node in "ab"}
        found = {
            "set": {backend.get_hwm(self.name) or 0},
            "batch": {backend.get_hwm(f"{self.name}.{part}") or 0 for part in "ab"},
            "runs": counts,
        }
        return {
            job: (self.acknowledged[job], there)
            for job, there in found.items()
            if len(there) != 1 or not there <= {self.acknowledged[job], self.acknowledged[job] + 1}
        }


@contextmanager
def started(kind: str, folder: Path, names: list[str]) -> Iterator[list[Writer]]:
    """Writers of these names; none outlives the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "odi_assets.state.delta.backend"])
    writers = []
    for name in names:
        hears, tells = context.Pipe(duplex=False)
        process = context.Process(target=write_until_killed, args=(kind, folder, name, tells), daemon=True)
        process.start()
        tells.close()
        writers.append(Writer(name, process, hears))
    try:
        yield writers
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.join(60)
