"""The state of real queries, read back, and what is said of what cannot be read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from odi_assets.checkpoints import CheckpointReader, local_copy
from odi_assets.errors import CheckpointError
from odi_assets_tests.checkpoints.queries import REPORT_LAG, UPLOAD_ON_LAG, settings

ROWS = "left-keyWithIndexToValue"


def ids(frame: DataFrame, column: str) -> list[int]:
    return sorted(row[0] for row in frame.select(f"value.{column}").collect())


@pytest.fixture
def join(spark: SparkSession, join_checkpoint: Path) -> CheckpointReader:
    return CheckpointReader(join_checkpoint, spark)


@pytest.fixture
def count(spark: SparkSession, count_checkpoint: Path) -> CheckpointReader:
    return CheckpointReader(count_checkpoint, spark)


def test_metadata_has_a_row_for_each_store(join: CheckpointReader) -> None:
    rows = join.metadata().collect()
    assert {(row.operatorName, row.minBatchId, row.maxBatchId) for row in rows} == {("symmetricHashJoin", 0, 3)}
    assert len(rows) == 4
    assert len(join.metadata(batch=1).select("*", "_numColsPrefixKey").collect()) == 4


@pytest.mark.contract
def test_each_side_of_a_join_holds_what_still_waits(join: CheckpointReader) -> None:
    assert ids(join.read(side="left"), "id") == [7, 8, 9]
    assert ids(join.read(side="right"), "order_id") == [8, 9]


def test_the_state_of_an_earlier_batch_can_be_read(join: CheckpointReader) -> None:
    assert ids(join.read(side="left", batch=1), "id") == [1, 2]


def test_a_checkpoint_in_a_folder_whose_name_a_uri_escapes(
    spark: SparkSession, join_checkpoint: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(join_checkpoint, tmp_path / "of a süß 100%" / "checkpoint")
    reader = CheckpointReader(copy, spark)
    assert ids(reader.read(side="left"), "id") == [7, 8, 9]
    assert reader.metadata().count() == 4
    assert reader.changes(side="left").count() > 0


def test_of_a_checkpoint_in_a_store_a_copy_of_its_logs_tells_what_there_is(
    spark: SparkSession, join_checkpoint: Path
) -> None:
    with local_copy(f"file://{join_checkpoint}", logs_only=True) as copy:
        reader = CheckpointReader(f"file://{join_checkpoint}", spark, copy=copy, settings={"fs.some.key": "secret"})
        assert ids(reader.read(side="left", batch=1), "id") == [1, 2]
        assert {row["batch_id"] for row in reader.changes(side="left").collect()} == {0, 2, 3}
        with pytest.raises(CheckpointError, match="has no committed batch 99"):
            reader.read(side="left", batch=99)
        with pytest.raises(CheckpointError, match="has no store other"):
            reader.read("other")
        assert spark.conf.get("fs.some.key") == "secret"
        spark.conf.unset("fs.some.key")
        assert sum(path.stat().st_size for path in copy.rglob("*.changelog")) == 0


@pytest.mark.contract
def test_the_rows_of_a_side_are_written_as_json(join: CheckpointReader) -> None:
    found = join.read(side="right").selectExpr("to_json(value) AS row").where("row LIKE '%:8,%'").collect()
    assert [row["row"] for row in found] == ['{"order_id":8,"at":"x","paid":"2024-01-01T19:59:00.000Z"}']


def test_a_store_says_which_rows_found_a_partner(join: CheckpointReader) -> None:
    matched = {row["value"]["id"]: row["value"]["matched"] for row in join.read(ROWS).collect()}
    assert matched == {7: False, 8: False, 9: True}


@pytest.mark.contract
def test_the_change_feed_shows_what_was_purged_and_when(join: CheckpointReader) -> None:
    deleted = join.changes(side="left").where("change_type = 'delete'").selectExpr("batch_id", "key.field0").collect()
    assert sorted(map(tuple, deleted)) == [(3, 1), (3, 2)]
    assert {row.batch_id for row in join.changes(2, 2, store=ROWS).collect()} == {2}


@pytest.mark.contract
def test_an_aggregation_is_read_from_its_one_store(count: CheckpointReader) -> None:
    state = count.read().selectExpr("hour(key.window.start)", "value.count").collect()
    assert [tuple(row) for row in state] == [(11, 1)]
    assert count.read("default", batch=0).count() == 2


@pytest.mark.parametrize("before", ["true", "false"])
def test_reading_leaves_the_session_as_it_was(spark: SparkSession, join: CheckpointReader, before: str) -> None:
    with settings(spark, {REPORT_LAG: before, UPLOAD_ON_LAG: before}):
        join.read(side="left")
        assert (spark.conf.get(REPORT_LAG), spark.conf.get(UPLOAD_ON_LAG)) == (before, before)


def test_state_is_read_in_a_session_that_ran_no_streaming_query(join_checkpoint: Path) -> None:
    script = (
        "import sys\n"
        "from odi_assets.checkpoints import CheckpointReader\n"
        "with CheckpointReader(sys.argv[1]) as reader:\n"
        "    print(reader.read(side='left').count())\n"
    )
    command = [sys.executable, "-c", script, str(join_checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "3"


def test_a_reader_leaves_the_session_of_others_running(spark: SparkSession, join_checkpoint: Path) -> None:
    with CheckpointReader(join_checkpoint) as reader:
        assert reader.spark is spark
    assert spark.range(1).count() == 1


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda of: of.read(side="left", operator=4), r"no stateful operator 4(.|\n)*0 \(symmetricHashJoin\)"),
        (lambda of: of.read(side="left", batch=9), r"no committed batch 9(.|\n)*last one is 3"),
        (lambda of: of.read(side="left", store=ROWS), f"one; {ROWS} is that side"),
        (lambda of: of.read(side="middle"), "no side middle(.|\n)*left and right"),
        (lambda of: of.read(), "say which side"),
        (lambda of: of.read("none"), f"no store none(.|\n)*{ROWS}"),
        (lambda of: of.read(ROWS, variable="x"), "only transformWithState has variables"),
        (lambda of: of.read(ROWS, flatten=False), "only transformWithState has variables"),
        (lambda of: of.read(ROWS, snapshot_batch=1), "give both"),
        (lambda of: of.read(ROWS, snapshot_batch=3, snapshot_partition=0, batch=2), "comes after batch 2"),
        (lambda of: of.read(ROWS, snapshot_batch=1, snapshot_partition=0), "no snapshot after batch 1(.|\n)*none"),
        (lambda of: of.read(ROWS, snapshot_batch=1, snapshot_partition=2), "no partition 2(.|\n)*0 to 1"),
        (lambda of: of.changes(2, 1, side="left"), "batch 1 comes before batch 2"),
        (lambda of: of.changes(0, 7, side="left"), "no committed batch 7"),
        (lambda of: of.timers(), "only transformWithState has timers"),
        (lambda of: of.variables(0), "only transformWithState has variables"),
        (lambda of: of.metadata(batch=7), "no committed batch 7"),
    ],
)
def test_what_a_join_does_not_have_is_an_error_of_ours(
    join: CheckpointReader, ask: Callable[[CheckpointReader], Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        ask(join)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"side": "left"}, "no join in operator 0"), ({"store": "left"}, "its stores are default")],
)
def test_what_an_aggregation_does_not_have_is_one_too(
    count: CheckpointReader, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        count.read(**options)


def test_a_checkpoint_that_does_not_exist_is_an_error_and_not_an_empty_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        CheckpointReader(tmp_path / "none", spark).metadata()
    with pytest.raises(CheckpointError, match="does not exist"):
        CheckpointReader(tmp_path / "none", spark).read()
    with pytest.raises(CheckpointError, match="Spark cannot read"):
        CheckpointReader(f"hdfs-like:{tmp_path}/none", spark).metadata()


def test_a_batch_that_is_not_kept_any_more_is_named_with_those_that_are(
    spark: SparkSession, join_checkpoint: Path, tmp_path: Path
) -> None:
    copy = copied(join_checkpoint, tmp_path)
    for batch in (0, 1):
        (copy / "offsets" / str(batch)).unlink()
        (copy / "commits" / str(batch)).unlink()
    with pytest.raises(CheckpointError, match=r"no batch 1 any more(.|\n)*2 to 3(.|\n)*minBatchesToRetain"):
        CheckpointReader(copy, spark).read(side="left", batch=1)


@pytest.mark.contract
def test_a_torn_file_is_found_before_rows_are_counted(
    spark: SparkSession, join_checkpoint: Path, tmp_path: Path
) -> None:
    copy = copied(join_checkpoint, tmp_path)
    torn = copy / "state" / "0" / "1" / ROWS / "2.changelog"
    torn.write_bytes(torn.read_bytes()[:-7])
    reader = CheckpointReader(copy, spark)
    assert ids(reader.read(side="left", batch=0), "id") == [1, 2]
    with pytest.raises(
        CheckpointError, match=r"partition 1 cannot be rebuilt(.|\n)*1/left.*2.changelog is torn"
    ) as error:
        reader.read(side="left")
    assert error.value.path == str(torn)
    with pytest.raises(CheckpointError, match=r"2.changelog is torn"):
        reader.changes(side="left")


@pytest.mark.contract
def test_what_spark_cannot_read_when_rows_are_counted_is_an_error_of_ours_too(
    spark: SparkSession, join_checkpoint: Path, tmp_path: Path
) -> None:
    copy = copied(join_checkpoint, tmp_path)
    reader = CheckpointReader(copy, spark)
    rows = reader.read(side="left")
    for file in copy.glob("state/0/1/left-*/3.changelog"):
        file.unlink()
    with pytest.raises(CheckpointError, match="CANNOT_READ_STREAMING_STATE_FILE"), reader.errors():
        rows.count()


def copied(checkpoint: Path, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint, folder / "copy"))
