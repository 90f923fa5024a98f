"""What a checkpoint says of itself, and what is said of one that is damaged; the checkpoints are Spark's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odi_assets.checkpoints import inspect
from odi_assets.errors import CheckpointError
from odi_assets_tests.checkpoints.queries import HDFS_BACKED, ROCKSDB


@pytest.fixture
def damaged(join_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to be damaged, without the state stores' data."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(join_checkpoint, copy, ignore=shutil.ignore_patterns("*.sst", "*.zip", "*.changelog", ".*"))
    return copy


def test_a_finished_query_is_described(join_checkpoint: Path) -> None:
    found = inspect(join_checkpoint)
    assert found.query_id == json.loads((join_checkpoint / "metadata").read_text())["id"]
    assert [batch.batch_id for batch in found.batches] == [0, 1, 2, 3]
    assert found.last_committed is not None
    assert found.last_committed.batch_id == 3
    assert found.in_flight is None
    assert found.shuffle_partitions == 2
    assert found.state_store_provider == ROCKSDB


def test_the_watermark_is_the_next_batchs_and_each_batch_has_its_own(join_checkpoint: Path) -> None:
    found = inspect(join_checkpoint)
    morning, evening = (datetime(2024, 1, 1, *time, tzinfo=UTC) for time in ((9, 51), (19, 50)))
    assert [batch.watermark for batch in found.batches] == [None, morning, morning, evening]
    assert found.watermark == evening


def test_each_batch_names_how_far_its_sources_were_read(join_checkpoint: Path) -> None:
    found = inspect(join_checkpoint)
    assert [batch.offsets for batch in found.batches[1:3]] == [
        {"0": '{"logOffset":0}', "1": '{"logOffset":0}'},
        {"0": '{"logOffset":1}', "1": '{"logOffset":1}'},
    ]
    assert all(batch.planned_at and batch.planned_at.year > 2023 for batch in found.batches)


def test_operators_are_found_with_their_stores(join_checkpoint: Path, count_checkpoint: Path) -> None:
    (join,) = inspect(join_checkpoint).operators
    assert (join.operator_id, join.name, join.is_join) == (0, "symmetricHashJoin", True)
    assert {store.name for store in join.stores} == {
        f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")
    }
    assert {store.partitions for store in join.stores} == {2}
    (count,) = inspect(count_checkpoint).operators
    assert (count.name, [store.name for store in count.stores]) == ("stateStoreSave", ["default"])
    assert inspect(count_checkpoint).state_store_provider == HDFS_BACKED


def test_a_file_uri_names_a_folder_too(join_checkpoint: Path) -> None:
    assert inspect(join_checkpoint.as_uri()) == inspect(str(join_checkpoint))


def test_a_batch_that_did_not_finish_is_in_flight(damaged: Path) -> None:
    (damaged / "commits" / "3").unlink()
    found = inspect(damaged)
    assert found.in_flight is not None
    assert found.in_flight.batch_id == 3
    assert found.last_committed is not None
    assert found.last_committed.batch_id == 2
    assert found.watermark == datetime(2024, 1, 1, 19, 50, tzinfo=UTC)


def test_a_query_that_has_not_planned_a_batch_is_a_checkpoint(damaged: Path) -> None:
    for part in ("offsets", "commits", "state"):
        shutil.rmtree(damaged / part)
    found = inspect(damaged)
    assert (found.batches, found.operators, found.last_committed, found.in_flight) == ((), (), None, None)
    assert (found.shuffle_partitions, found.state_store_provider, found.watermark) == (None, None, None)


def test_the_second_version_of_the_logs_is_read(damaged: Path) -> None:
    head = (damaged / "offsets" / "3").read_text().split("\n")[1]
    (damaged / "offsets" / "4").write_text(f'v2\n{head}\norders:{{"logOffset":2}}\npayments:-')
    (damaged / "commits" / "4").write_text('v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')
    described = (damaged / "state" / "0" / "_metadata" / "metadata").read_text().split("\n")[1]
    (damaged / "state" / "0" / "_metadata" / "v2").mkdir()
    (damaged / "state" / "0" / "_metadata" / "v2" / "4").write_text(f"v2\n{described.replace('symmetric', 'a')}")
    found = inspect(damaged)
    assert found.batches[-1].offsets == {"orders": '{"logOffset":2}', "payments": None}
    assert found.operators[0].name == "aHashJoin"


def test_spark_files_that_are_no_log_are_passed_over(damaged: Path) -> None:
    (damaged / "offsets" / ".4.crc").write_bytes(b"\x00")
    (damaged / "offsets" / ".4.0f-tmp").write_text("v1")
    assert len(inspect(damaged).batches) == 4


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("offsets/3", "", "it is empty"),
        ("offsets/3", "v1", "ends after its version"),
        ("offsets/3", 'v1\n{"batchWatermarkMs":17', "its JSON ends or breaks"),
        ("offsets/3", 'v1\n{"batchWatermarkMs":"x"}', "is not a time"),
        ("offsets/3", "v1\n[]", "is not an object"),
        ("offsets/3", "{}", "not with a version"),
        ("offsets/3", "v1\n{}\n{}\n\n", "line 4 is not a source's offset"),
        ("commits/3", "", "it is empty"),
        ("commits/3", "v1\n{", "its JSON ends or breaks"),
        ("commits/3", "v1\n", "its JSON ends or breaks"),
        ("metadata", '{"id":', "its JSON ends or breaks"),
        ("metadata", "{}", "does not name a query"),
        ("state/0/_metadata/metadata", 'v1\n{"operatorInfo":{}}', "does not describe an operator"),
    ],
)
def test_a_torn_file_is_named(damaged: Path, file: str, content: str, fault: str) -> None:
    (damaged / file).write_text(content)
    with pytest.raises(CheckpointError, match="is torn") as caught:
        inspect(damaged)
    assert caught.value.path == str(damaged / file)
    assert fault in str(caught.value)


def test_bytes_that_are_no_text_are_a_torn_file(damaged: Path) -> None:
    (damaged / "offsets" / "2").write_bytes(b"v1\n\xff")
    with pytest.raises(CheckpointError, match="byte 3 is not UTF-8"):
        inspect(damaged)


def test_a_log_of_a_later_spark_is_not_guessed_at(damaged: Path) -> None:
    (damaged / "offsets" / "3").write_text("v3\n{}\n{}")
    with pytest.raises(CheckpointError, match="version 3; this package reads versions 1 to 2"):
        inspect(damaged)


def test_a_commit_without_its_plan_is_a_checkpoint_cut_apart(damaged: Path) -> None:
    (damaged / "offsets" / "3").unlink()
    with pytest.raises(CheckpointError, match="has commits/3 and no offsets/3"):
        inspect(damaged)


def _a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda folder: folder / "none", "does not exist"),
        (_a_file, "is a file, not a folder"),
        (lambda folder: folder, "is not a checkpoint: it has no file called metadata"),
        (lambda _: "abfss://c@a.dfs.core.windows.net/x", "is not a folder of this machine"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, made: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        inspect(made(tmp_path))


def test_the_folder_above_a_checkpoint_points_to_it(damaged: Path) -> None:
    with pytest.raises(CheckpointError, match=f"did you mean {damaged}"):
        inspect(damaged.parent)


def test_inspecting_imports_no_spark() -> None:
    check = "import sys; from odi_assets.checkpoints import inspect; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
