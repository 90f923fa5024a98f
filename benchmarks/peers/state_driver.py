"""Ours and Odibi driven by the same calls: ``python state_driver.py odi_assets|odibi``, in the interpreter of either.

Takes one JSON request a line on stdin and answers each with one JSON line. What a request measures is measured here.
Runs without this project's packages, so it imports nothing but the library that is named.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

LIBRARY = sys.argv[1]
OURS = LIBRARY == "odi_assets"
ENVIRONMENT = "benchmark"
WAIT_SECONDS = 0.5

# Odibi logs to stdout: the answers keep it for themselves.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

waits = []


def _counting(sleep):
    def counted(seconds):
        if seconds >= WAIT_SECONDS:
            waits.append(seconds)
        sleep(seconds)

    return counted


# Before the import: whoever takes `time.sleep` for a default takes the one that counts.
time.sleep = _counting(time.sleep)
state = importlib.import_module(f"{LIBRARY}.state")


class Driver:
    def __init__(self):
        self.kind = self.folder = self.backend = self.manager = self.catalog = None

    def open(self, kind, folder):
        self.kind, self.folder = kind, Path(folder)
        if kind == "local":
            self.backend = state.LocalJSONStateBackend(f"{folder}/state.json")
        else:
            tables = (f"{folder}/meta_runs", f"{folder}/meta_state")
            self.backend = state.CatalogStateBackend(*tables, environment=ENVIRONMENT)
        self.manager = state.StateManager(backend=self.backend)

    def get(self, key):
        return _seconds(lambda: self.manager.get_hwm(key))

    def set(self, key, value):
        return _seconds(lambda: self.manager.set_hwm(key, value))

    def batch(self, prefix, count, value):
        updates = [{"key": f"{prefix}{number}", "value": value} for number in range(count)]
        return _seconds(lambda: self.manager.set_hwm_batch(updates))

    def fill(self, prefix, keys, commits):
        for number in range(commits):
            self.manager.set_hwm(f"{prefix}{number % keys}", number)

    def values(self, keys):
        return [self.manager.get_hwm(key) for key in keys]

    def sets(self, prefix, count):
        """Set ``count`` keys once each; every set's seconds, or None if it failed."""
        waits.clear()
        took = []
        for number in range(count):
            try:
                took.append(self.set(f"{prefix}{number}", number))
            except Exception:  # noqa: BLE001  whatever it was, it is one set that failed
                took.append(None)
        return {"seconds": took, "waits": len(waits)}

    def increments(self, key, count, seconds):
        """Increment one key ``count`` times, for at most ``seconds``; how many times it was acknowledged."""
        done, until = 0, time.monotonic() + seconds
        while done < count and time.monotonic() < until:
            done += self._increment(key)
        return done

    def _increment(self, key):
        if not OURS:
            # No compare-and-set: reading and setting is what a caller can do.
            try:
                self.manager.set_hwm(key, (self.manager.get_hwm(key) or 0) + 1)
            except Exception:  # noqa: BLE001  whatever it was, it is one increment that failed
                return 0
            return 1
        from odi_assets.errors import StateConflictError

        entry = self.backend.get_entry(key)
        value, revision = (entry.value, entry.revision) if entry else (0, None)
        try:
            self.backend.compare_and_set(key, value + 1, expected_revision=revision)
        except StateConflictError:
            return 0
        return 1

    def record(self, first, count, nodes, together):
        """Record ``count`` runs of the pipeline's nodes in turn, so many in one commit."""
        for start in range(first, first + count, together):
            runs = [(f"run{number}", f"node{number % nodes}") for number in range(start, start + together)]
            (self._record_ours if OURS else self._record_odibi)(runs)

    def _record_ours(self, runs):
        from datetime import UTC, datetime

        from odi_assets.state import RunRecord, RunStatus

        now = datetime.now(UTC)
        self.backend.record_runs(
            RunRecord(run, "benchmark", "orders", node, RunStatus.SUCCESS, 1, 1, now) for run, node in runs
        )

    def _record_odibi(self, runs):
        if self.catalog is None:
            from odibi.pipeline import PipelineManager

            self.catalog = PipelineManager.from_yaml(str(self.folder.parent.parent / "odibi.yaml")).catalog_manager
        for run, node in runs:
            self.catalog.log_run(run, "orders", node, "SUCCESS", 1, 1, "{}")

    def status(self, node):
        def look():
            if self.manager.get_last_run_status("orders", node) is not True:
                raise LookupError(f"{node} has no run that succeeded")

        return _seconds(look)

    def version(self):
        from deltalake import DeltaTable

        return DeltaTable(f"{self.folder}/meta_state").version()

    def forever(self, prefix):
        """Set key after key, each acknowledged with a line, until killed."""
        number = 0
        while True:
            self.manager.set_hwm(f"{prefix}{number}", number)
            _answer(number)
            number += 1

    def unreadable(self):
        """The files that the state consists of and that cannot be read."""
        bad = []
        for path, read in self._files():
            try:
                read(path)
            except Exception as error:  # noqa: BLE001  whatever it was, the file is unreadable
                bad.append(f"{path}: {error!r}")
        return bad

    def _files(self):
        if self.kind == "local":
            return [(self.folder / "state.json", lambda path: json.loads(path.read_text()))]
        from deltalake import DeltaTable
        from pyarrow import parquet

        table = self.folder / "meta_state"
        log = table / "_delta_log"
        return [
            *((path.removeprefix("file://"), parquet.read_table) for path in DeltaTable(str(table)).file_uris()),
            *((path, _read_lines) for path in sorted(log.glob("*.json"))),
            *((path, parquet.read_table) for path in sorted(log.glob("*.parquet"))),
            *((path, _read_lines) for path in log.glob("_last_checkpoint")),
        ]


def _read_lines(path):
    for line in path.read_text().splitlines():
        json.loads(line)


def _seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _answer(result):
    answers.write(json.dumps(result) + "\n")
    answers.flush()


def main():
    driver = Driver()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            result = {"result": getattr(driver, name)(**arguments)}
        except Exception as error:  # noqa: BLE001  it is the answer, and raised again where it was asked
            result = {"error": f"{name}: {type(error).__name__}: {error}"}
        _answer(result)


if __name__ == "__main__":
    main()
    # Odibi's libraries abort when the interpreter ends in order.
    os._exit(0)
