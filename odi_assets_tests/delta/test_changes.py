"""What a table gained between two versions, read from its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.table import TableHandle
from odi_assets_tests.work import grows_with_the_input, steps


class Log(TableHandle):
    """A table of which nothing but its log is looked at: one column, and a file in each version."""

    columns: Mapping[str, Any] = {"id": "long"}

    def __init__(self, folder: Path) -> None:
        super().__init__(Location(str(folder)), None)

    def commit(self, version: int, restores: int | None = None) -> None:
        """Append a file; or bring back the rows of a version."""
        operation: dict[str, Any] = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
        if restores is not None:
            operation = {"operation": "RESTORE", "operationParameters": {"version": str(restores)}}
        add = {"path": f"{version}.parquet", "size": 1, "partitionValues": {}, "dataChange": True}
        log = Path(self.location.uri) / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"commitInfo": operation}), json.dumps({"add": add})]
        (log / f"{version:020}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("restores", "kept"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({4: 1}, [1, 5, 6]),
        ({4: 0}, [5, 6]),
        ({3: 1, 5: 2}, [1, 2, 6]),
        ({4: 1, 5: 3}, [1, 2, 3, 6]),
        ({3: 1, 6: 3}, [1]),
    ],
)
def test_what_a_restore_undid_is_not_among_the_changes(
    restores: dict[int, int], kept: list[int], tmp_path: Path
) -> None:
    log = Log(tmp_path)
    for version in range(1, 7):
        log.commit(version, restores.get(version))
    found = changes(log, 0, 6)
    assert [file.path for file in found.files] == [f"{version}.parquet" for version in kept]


def test_a_long_log_is_read_in_one_pass(tmp_path: Path) -> None:
    def work(size: int) -> int:
        log = Log(tmp_path / str(size))
        for version in range(1, size + 1):
            log.commit(version)
        return steps(lambda: changes(log, 0, size))

    assert grows_with_the_input(work, 800)
