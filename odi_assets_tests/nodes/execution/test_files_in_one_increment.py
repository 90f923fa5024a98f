"""Files of one increment that hold the same keys: what is stored is what a run for each of them would leave."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import TableError
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.execution.test_shapes_of_files import FILES, Zone

READ = f'format: csv, options: {{header: "true"}}, schema: "id BIGINT, v STRING, at INT, gone BOOLEAN", {FILES}'
WRITES = {
    "upsert": "mode: upsert, keys: [id]",
    "deletes": "mode: upsert, keys: [id], delete_when: gone",
    "newest": "mode: upsert, keys: [id], only_if_newer: at",
    "newest and deletes": "mode: upsert, keys: [id], only_if_newer: at, delete_when: gone",
    "append_once": "mode: append_once, keys: [id]",
}

CHECKS = ["[{not_null: id}, {unique: id}]", "[{range: {column: at, max: 2}}, {unique: id}]"]


def zone(root: Path, spark: SparkSession, write: str, read: str = READ) -> Zone:
    root.mkdir(parents=True, exist_ok=True)
    return Zone(root, spark, read, write)


def files(seed: int) -> list[list[str]]:
    """Deliveries of a few keys, so that they meet; some files have an older time than the ones before."""
    chance = random.Random(seed)

    def line(key: int, number: int) -> str:
        at, gone = chance.choice(["", "1", "2", "3"]), chance.choice(["", "", "true"])
        return f"{key},f{number},{at},{gone}"

    return [["id,v,at,gone", *(line(key, number) for key in chance.sample(range(1, 8), 5))] for number in range(5)]


@pytest.mark.parametrize(("write", "seed"), cases(WRITES, [1, 2], together=1))
def test_a_catch_up_and_a_full_refresh_leave_what_single_runs_leave(
    tmp_path: Path, spark: SparkSession, write: str, seed: int
) -> None:
    single, caught_up = (zone(tmp_path / name, spark, WRITES[write]) for name in ("single", "caught up"))
    wanted: list[dict[str, Any]] = []
    for number, lines in enumerate(files(seed)):
        # The order is the one of the times, and not of the names.
        name = f"in/a b%{9 - number}é.csv"
        single.land(name, lines)
        wanted = single.load()
        caught_up.land(name, lines)
        if number == 1:
            caught_up.load()
    assert caught_up.load() == wanted
    single.run("raw", full_refresh=True)
    assert single.stored() == wanted


@pytest.mark.parametrize(("write", "checks"), cases(WRITES, CHECKS, together=1))
def test_with_checks_too_a_catch_up_and_a_full_refresh_leave_what_single_runs_leave(
    tmp_path: Path, spark: SparkSession, write: str, checks: str
) -> None:
    # The template closes the braces of `write`.
    checked = f"{WRITES[write]}}}\n    quarantine: bad\n    checks: {checks}\n    #"
    single, caught_up = (zone(tmp_path / name, spark, checked) for name in ("single", "caught up"))
    wanted: list[dict[str, Any]] = []
    for number, lines in enumerate(files(3)):
        name = f"in/{9 - number}.csv"
        single.land(name, lines)
        wanted = single.load()
        caught_up.land(name, lines)
    assert caught_up.load() == wanted
    single.run("raw", full_refresh=True)
    assert single.stored() == wanted


def test_the_rows_read_are_counted_and_not_those_that_are_stored(tmp_path: Path, spark: SparkSession) -> None:
    box = zone(tmp_path, spark, WRITES["upsert"])
    box.land("in/1.csv", ["id,v,at,gone", "1,a,,", "2,b,,"])
    box.land("in/2.csv", ["id,v,at,gone", "1,c,,"])
    result = box.run("raw")
    assert (result.rows_read, result.rows_written) == (3, 2)


def test_one_file_with_a_key_twice_stops_as_it_would_alone(tmp_path: Path, spark: SparkSession) -> None:
    box = zone(tmp_path, spark, WRITES["upsert"])
    box.land("in/1.csv", ["id,v,at,gone", "1,a,,", "1,b,,"])
    box.land("in/2.csv", ["id,v,at,gone", "1,c,,"])
    text = r"p\.raw: 2 rows of one file .* have the same keys \(id=1\); they are in in/1\.csv$"
    with pytest.raises(TableError) as error:
        box.run("raw")
    assert re.search(text, error.value.message)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_files_of_other_formats_and_shapes_follow_each_other_too(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    box = zone(tmp_path, spark, "mode: upsert, keys: [id], schema: evolve", f"format: {kind}, {FILES}")
    if kind == "json":
        box.land("in/day=1/b.json", ['{"id": 1, "v": "old"}'])
        box.land("in/day=1/a.json", ['{"id": 1, "v": "new", "w": 1}', '{"id": 2, "v": "x"}'])
    else:
        box.parquet("in/day=1/b.parquet", id=[1], v=["old"])
        box.parquet("in/day=1/a.parquet", id=[1, 2], v=["new", "x"], w=[1, None])
    assert [(row["id"], row["v"], row["w"]) for row in box.load()] == [(1, "new", 1), (2, "x", None)]


def test_a_transform_of_all_files_still_has_to_leave_one_row_for_each_key(tmp_path: Path, spark: SparkSession) -> None:
    box = zone(tmp_path, spark, 'mode: upsert, keys: [id]}\n    transform: {sql: "SELECT id, v FROM df"')
    box.land("in/1.csv", ["id,v,at,gone", "1,a,,"])
    box.land("in/2.csv", ["id,v,at,gone", "1,b,,"])
    with pytest.raises(TableError, match="2 rows of one increment") as error:
        box.run("raw")
    assert "without a transform" in str(error.value.fix)


def test_of_a_transform_of_all_files_the_first_row_of_a_key_is_not_guessed(tmp_path: Path, spark: SparkSession) -> None:
    box = zone(tmp_path, spark, 'mode: append_once, keys: [id]}\n    transform: {sql: "SELECT id, v FROM df"')
    box.land("in/1.csv", ["id,v,at,gone", "1,first,,"])
    assert box.load() == [{"id": 1, "v": "first"}]
    # Of a key that is there, no row is added, and equal rows are one.
    box.land("in/2.csv", ["id,v,at,gone", "1,second,,", "2,same,,"])
    box.land("in/3.csv", ["id,v,at,gone", "1,third,,", "2,same,,"])
    wanted = [{"id": 1, "v": "first"}, {"id": 2, "v": "same"}]
    assert box.load() == wanted
    box.land("in/4.csv", ["id,v,at,gone", "3,a,,"])
    box.land("in/5.csv", ["id,v,at,gone", "3,b,,"])
    for full_refresh in (False, True):
        with pytest.raises(TableError, match=r"different rows of several files .* have the same keys") as error:
            box.run("raw", full_refresh=full_refresh, accept_loss=full_refresh)
        assert "row_number()" in str(error.value.fix)
        assert box.stored() == wanted
