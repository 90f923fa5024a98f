"""What every write mode has, and what it costs to find the files that a partition_overwrite replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from odi_assets.config.write_modes import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.conflicts import is_unchanged
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.tables import modes
from odi_assets.tables.engine import WriteSpec
from odi_assets.tables.modes.base import Mode, Write, mode_of


def test_every_write_mode_is_a_module_of_its_name_and_every_module_a_write_mode() -> None:
    assert all(isinstance(mode_of(mode), Mode) for mode in WriteMode)
    names = {path.stem for path in Path(modes.__path__[0]).glob("*.py")}
    assert names == {*WriteMode, "base", "__init__"}


class Counted(dict[str, str | None]):
    """A partition that counts how often it is looked at."""

    looks = 0

    def _count(self) -> None:
        Counted.looks += 1

    def __getitem__(self, name: str) -> str | None:
        self._count()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._count()
        return super().get(name, default)


class Table(TableHandle):
    """A table of ``size`` partitions with two files each."""

    def __init__(self, size: int) -> None:
        super().__init__(Location("/table"), None)
        self.exists = True
        partitions = [Counted(day=str(day), carrier="UA") for day in range(size) for _ in range(2)]
        self.live_files = tuple(LiveFile(f"{n}", 1, 1, partition) for n, partition in enumerate(partitions))

    table_id = "one"


class Staged(Write):
    """A write that has staged a file for every partition of its table."""

    def stage(self, df: Any, step: str = "") -> list[WrittenFile]:
        del df, step
        partitions = {file.partition["day"]: file.partition for file in self.handle.live_files}
        return [WrittenFile("new", 1, 0, 1, partition, "{}") for partition in partitions.values()]


def looks_of_a_write(size: int, named: list[PartitionValues] | None) -> int:
    spec = WriteSpec(WriteMode.PARTITION_OVERWRITE, partition_by=("day", "carrier"), replace=named)
    fields = [{"name": name, "type": "string"} for name in spec.partition_by]
    write = Staged(cast(Any, None), Table(size), spec, Stamp("app", 1), json.dumps({"fields": fields}))
    Counted.looks = 0
    outcome = mode_of(spec.mode).stage(write)
    assert len(outcome.removed) == 2 * size
    return Counted.looks


def looks_of_a_conflict_check(size: int) -> int:
    then, now = Table(size), Table(size)
    replaced = [file.partition for file in then.live_files]
    Counted.looks = 0
    assert is_unchanged(then, now, "partitions", replaced)
    return Counted.looks


@pytest.mark.parametrize("names_partitions", [False, True])
def test_the_files_that_a_partition_overwrite_replaces_are_found_in_one_pass(names_partitions: bool) -> None:
    def looks(size: int) -> int:
        named: list[PartitionValues] = [Counted(day=str(day)) for day in range(size)]
        return looks_of_a_write(size, named if names_partitions else None)

    assert 0 < looks(400) <= 2.1 * looks(200)


def test_partitions_that_are_named_by_other_columns_are_told_apart() -> None:
    table = Table(3)
    replaced: list[PartitionValues] = [{"day": "1"}, {"carrier": "AA"}, {"day": "2", "carrier": "AA"}]
    later = Table(3)
    later.live_files = (*table.live_files, LiveFile("new", 1, 1, {"day": "2", "carrier": "UA"}))
    assert is_unchanged(table, later, "partitions", replaced)
    for partition in ({"day": "1", "carrier": "B6"}, {"day": "9", "carrier": "AA"}):
        later.live_files = (*table.live_files, LiveFile("new", 1, 1, partition))
        assert not is_unchanged(table, later, "partitions", replaced)


def test_the_conflict_check_of_partitions_is_one_pass() -> None:
    assert 0 < looks_of_a_conflict_check(400) <= 2.1 * looks_of_a_conflict_check(200)
