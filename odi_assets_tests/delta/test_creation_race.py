"""Several processes that create one table at the same moment: one of them does, and the others have written nothing."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

from odi_assets.config.models import LocalConnection
from odi_assets.connections.location import Location, resolve
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.table import TableHandle
from odi_assets.errors import FencedError, TableConflictError

ROUNDS, PROCESSES = 6, 6
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})


def table(root: Path, number: int) -> Location:
    return resolve(LocalConnection(base_path=str(root)), f"t{number}", root)


def create(root: Path, process: int, barrier: Any, outcomes: Any) -> None:
    for number in range(ROUNDS):
        handle = TableHandle.open(table(root, number))
        file = root / f"t{number}" / f"{process}.parquet"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"1")
        add = WrittenFile(file.name, 1, int(time.time() * 1000), 1, {}, json.dumps({"numRecords": 1}))
        barrier.wait(60)
        try:
            commit(handle, SCHEMA, (), FileChanges("rows", [add]), Stamp("app", 1, {"run_id": f"run-{process}"}))
            outcomes.put((number, "created"))
        except (FencedError, TableConflictError):
            outcomes.put((number, "refused"))


def test_of_processes_that_create_a_table_at_once_exactly_one_does(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, outcomes = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=create, args=(tmp_path, process, barrier, outcomes)) for process in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    ended = [outcomes.get(timeout=90) for _ in range(ROUNDS * PROCESSES)]
    for process in processes:
        process.join(60)
    for number in range(ROUNDS):
        assert ended.count((number, "created")) == 1
        handle = TableHandle.open(table(tmp_path, number))
        assert (handle.version, len(handle.live_files)) == (0, 1)
