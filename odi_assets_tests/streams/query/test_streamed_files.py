"""What a batch of landing files had is read once more as the stream read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import StreamInput, StreamSettings, WriteMode
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError, SourceError
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.files.source import LandingFiles
from odi_assets.sources.files.stream import StreamedFiles
from odi_assets.sources.source import Target
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.relocate import relocated
from odi_assets.streams.query.run import query_conf
from odi_assets_tests.checkpoints.queries import settings


@pytest.mark.parametrize(("path", "day"), [("days", "2024 05"), ("days/day=2024 05/*.json", "2024 05")])
def test_files_with_odd_names_and_folders_that_are_columns(
    spark: SparkSession, tmp_path: Path, path: str, day: str | None
) -> None:
    root = tmp_path / "a place"
    folder = root / "days" / "day=2024 05"
    folder.mkdir(parents=True)
    for number, name in enumerate(("a b", "100%25", "+&", "süß")):
        (folder / f"{name}.json").write_text(f'{{"id": {number}}}\n', encoding="utf-8")
    files = files_of(root, path)
    streamed: list[tuple[int, str | None]] = []
    with settings(spark, query_conf(StreamSettings())):
        writer = files.raw_stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda rows, _: streamed.extend(tuple(row) for row in rows.collect()))
        query.trigger(availableNow=True).start().awaitTermination()
    log = ProgressLog(Location(str(tmp_path / "checkpoint")))
    again = files.raw_batch(spark, log, None, {"logOffset": 0})
    assert again is not None
    assert sorted(map(tuple, again.collect())) == sorted(streamed)
    assert sorted(streamed) == [(number, day) for number in range(4)]


def test_files_that_were_read_in_another_store_are_known_without_asking_it(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "1.json").write_text("{}\n", encoding="utf-8")
    log = tmp_path / "checkpoint" / "sources" / "df"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{"path":"s3://bucket/in/days/1.json","timestamp":1,"batchId":0}', encoding="utf-8")
    read = files_of(tmp_path, "days/*.json").plan(ProgressLog(Location(str(log.parents[1]))), {"logOffset": 0})
    assert read.elsewhere is not None
    assert (read.elsewhere.folder, read.elsewhere.files) == ("s3://bucket/in/days", 1)
    folders = {"df": (read.elsewhere.folder, "s3://bucket/in/days of 2024")}
    moved = relocated(ProgressLog(Location(str(log.parents[1]))), Location(str(tmp_path / "copy")), folders)
    assert list(moved.read_files("df")) == ["s3://bucket/in/days%20of%202024/1.json"]


@pytest.mark.parametrize("left", [(), (0,), (1,), ("1.compact",)])
def test_a_log_of_files_that_ends_before_what_a_batch_read_is_damage(tmp_path: Path, left: tuple[object, ...]) -> None:
    # Spark would write what is missing again, of the files that are there now.
    (tmp_path / "days").mkdir()
    log = tmp_path / "checkpoint" / "sources" / "df"
    log.mkdir(parents=True)
    for name in left:
        entry = {"path": (tmp_path / "days" / "1.json").as_uri(), "timestamp": 1, "batchId": 1}
        (log / str(name)).write_text(f"v1\n{json.dumps(entry)}", encoding="utf-8")
    files, progress = files_of(tmp_path, "days/*.json"), ProgressLog(Location(str(log.parents[1])))
    with pytest.raises(CheckpointError, match=r"sources/df/\d is missing"):
        files.plan(progress, {"logOffset": 2})
    if left == ("1.compact",):
        assert files.plan(progress, {"logOffset": 1}).file_count == 0


def test_names_that_make_spark_read_rows_twice_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "days" / "1"
    folder.mkdir(parents=True)
    (folder / "a[1].json").write_text("{}", encoding="utf-8")
    log = ProgressLog(Location(str(tmp_path / "checkpoint")))
    assert files_of(tmp_path, "days/*/*.json").plan(log, None).file_count == 1
    (folder / "b.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\[1\].json has a character of globs"):
        files_of(tmp_path, "days/*/*.json").plan(log, None)
    one_by_one = StreamInput(max_files_per_batch=1)
    assert files_of(tmp_path, "days/*/*.json", one_by_one).plan(log, None).file_count == 2


def files_of(root: Path, path: str, settings: StreamInput | None = None) -> StreamedFiles:
    source = LandingFiles(
        name="df",
        label="files",
        target=Target("main.rows", Location(str(root / "target")), WriteMode.APPEND.traits, ()),
        format=FileFormat.JSON,
        base=Location(str(root)),
        path=path,
        schema_ddl="id INT, day STRING",
    )
    return source.streamed(settings or StreamInput())
