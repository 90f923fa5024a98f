"""Damages every file of real checkpoints, and compares the verdict of ``odi checkpoint files`` with what Spark does.

Each file is removed, emptied, cut to its half, or has a byte flipped, in a copy of the checkpoint. Spark then restarts
the query on the copy, reads the state after each retained batch, and its change feed. The verdict has to agree: where
Spark fails, or reads other rows than from the whole checkpoint, it must not say that all is well; where Spark works, it
must not say otherwise.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Options, Row
from odi_assets.checkpoints.inspect import JOIN_STORES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORES = "org.apache.spark.sql.execution.streaming.state"
_PROVIDERS = {
    "rocksdb": f"{_STORES}.RocksDBStateStoreProvider",
    "hdfs": f"{_STORES}.HDFSBackedStateStoreProvider",
}
_SEED = 2026
_BATCHES = 4
_TRIES = 20


def _emptied(data: bytes) -> bytes:
    del data
    return b""


def _halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :] if data else data


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "removed": None,
    "emptied": _emptied,
    "cut to half": _halved,
    "a byte flipped": _flipped,
}


@dataclass(frozen=True)
class Outcome:
    """What becomes of a checkpoint.

    Attributes:
        restarts: the query goes on, and reads what is new; before that the last batch again, if it has no commit.
        readable: the batches whose state can be read.
        feeds: the batches whose changes can be read.
        error: why it does not restart.
    """

    restarts: bool
    readable: frozenset[int]
    feeds: frozenset[int]
    error: str = ""

    def __str__(self) -> str:
        return (
            f"restarts {self.restarts}, state {sorted(self.readable)}, feed {sorted(self.feeds)} {self.error}".rstrip()
        )


@dataclass
class Subject:
    """A query with its landing zone and its whole checkpoint."""

    spark: SparkSession
    root: Path
    kind: str
    provider: str

    @property
    def checkpoint(self) -> Path:
        """The whole checkpoint."""
        return self.root / "whole"

    @property
    def place(self) -> Path:
        """Where it was written, and where it is damaged: it names files of its own by their whole paths."""
        return self.root / "checkpoint"

    def make(self) -> None:
        """Run the batches of the whole checkpoint, and land what a restart is to read."""
        for number in range(_BATCHES):
            self._land(number)
            self.run(self.place)
        self._land(_BATCHES)
        self.place.rename(self.checkpoint)

    def copied(self) -> Path:
        """A copy of the whole checkpoint, in its place."""
        # The maintenance of Spark's state stores may write beside.
        for _ in range(_TRIES):
            shutil.rmtree(self.place, ignore_errors=True)
            with suppress(FileExistsError, shutil.Error):
                return Path(shutil.copytree(self.checkpoint, self.place))
        raise RuntimeError(f"{self.place} is written again whenever it was removed")

    def _land(self, number: int) -> None:
        folder = self.root / "landing"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"id": f"{number}-{i}", "at": f"2024-01-01T{10 + number}:{i:02}:00Z"}) for i in range(3)]
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        read = self.spark.readStream.schema("id STRING, at TIMESTAMP").json(str(self.root / "landing"))
        rows = read.withWatermark("at", "5 minutes")
        if self.kind == "stateless":
            return rows
        if self.kind == "aggregation":
            return rows.groupBy(F.window("at", "10 minutes")).count()
        if self.kind == "deduplication":
            return rows.dropDuplicates(["id", "at"])
        other = self.spark.readStream.schema("id STRING, at TIMESTAMP").json(str(self.root / "landing"))
        right = other.withWatermark("at", "5 minutes").toDF("other", "then")
        if self.kind == "join":
            return rows.join(right, F.expr("id = other AND then BETWEEN at AND at + INTERVAL 1 HOUR"))
        return _counted(rows)

    def run(self, checkpoint: Path) -> list[str]:
        """Run the query to its end; the names of the files that it read."""
        seen: list[str] = []

        def batch(rows: DataFrame, number: int) -> None:
            del number
            rows.write.format("noop").mode("overwrite").save()

        writer = self.rows().writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        for progress in query.recentProgress:
            seen += [str(source.numInputRows) for source in progress.sources if source.numInputRows]
        return seen


def _counted(rows: DataFrame) -> DataFrame:
    """Rows counted by ``transformWithState``."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    # Made in here, so that Spark's Python workers get it whole.
    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            del key, timerValues
            count = self.total.get() if self.total.exists() else None
            self.total.update(((count[0] if count else 0) + sum(1 for _ in rows),))
            yield from ()

        def close(self) -> None:
            pass

    return rows.groupBy("id").transformWithState(Counting(), "nothing INT", "Append", "EventTime")


def spark_conf(provider: str) -> dict[str, str]:
    """The settings that queries run under."""
    return {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.stateStore.providerClass": _PROVIDERS[provider],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag": "false",
        "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def truth(subject: Subject, copy: Path, whole: dict[Any, Any]) -> Outcome:
    """What Spark makes of a copy, compared with what it makes of the whole checkpoint."""
    batches = sorted(int(one.name) for one in (subject.checkpoint / "commits").iterdir() if one.name.isdecimal())
    readable = frozenset(one for one in batches if _state(subject, copy, one) == whole["state", one])
    feeds = frozenset(one for one in batches if _feed(subject, copy, one) == whole["feed", one])
    wanted, again = whole["restart"], 0 if (copy / "commits" / str(max(batches))).exists() else 1
    try:
        read = subject.run(copy)
    # Whatever it is, Spark did not restart the query.
    except Exception as error:  # noqa: BLE001
        return Outcome(False, readable, feeds, str(error).splitlines()[0][:150])
    goes_on = read in (wanted, read[:again] + wanted)
    return Outcome(goes_on, readable, feeds, "" if goes_on else f"read {read}")


def whole_outcome(subject: Subject) -> dict[Any, Any]:
    """What Spark reads from the whole checkpoint."""
    copy = subject.copied()
    batches = sorted(int(one.name) for one in (copy / "commits").iterdir() if one.name.isdecimal())
    found: dict[Any, Any] = {("state", one): _state(subject, copy, one) for one in batches}
    found |= {("feed", one): _feed(subject, copy, one) for one in batches}
    found["restart"] = subject.run(copy)
    return found


def _stores(subject: Subject) -> list[dict[str, str]]:
    if subject.kind == "stateless":
        return []
    if subject.kind == "join":
        return [{"storeName": name} for name in JOIN_STORES]
    if subject.kind == "transformWithState":
        return [{"stateVarName": "total"}]
    return [{}]


def _state(subject: Subject, copy: Path, batch: int) -> object:
    return _read(subject, copy, {"batchId": batch})


def _feed(subject: Subject, copy: Path, batch: int) -> object:
    return _read(subject, copy, {"readChangeFeed": True, "changeStartBatchId": batch, "changeEndBatchId": batch})


def _read(subject: Subject, copy: Path, how: dict[str, Any]) -> object:
    options = {name: str(value).lower() for name, value in how.items()}
    try:
        return [
            sorted(
                str(row)
                for row in subject.spark.read.format("statestore").options(**options, **store).load(str(copy)).collect()
            )
            for store in _stores(subject)
        ]
    # Whatever it is, Spark did not read it.
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}"


def verdict(subject: Subject, copy: Path) -> Outcome:
    """What ``odi checkpoint files`` says of a node's checkpoint, whose operators are recorded."""
    from odi_assets.checkpoints import judge

    state = subject.checkpoint / "state"
    found = judge(copy, [int(folder.name) for folder in state.glob("*") if folder.name.isdecimal()])
    return Outcome(found.restarts, frozenset(found.readable), frozenset(found.feeds), found.why)


def cases(subject: Subject) -> Iterator[tuple[str, str]]:
    """Every file of the checkpoint with every damage, and every folder removed, in an order of its own."""
    paths = sorted(subject.checkpoint.rglob("*"))
    found = [
        (path.relative_to(subject.checkpoint).as_posix(), damage)
        for path in paths
        for damage in (["removed"] if path.is_dir() else DAMAGES)
    ]
    random.Random(f"{_SEED} {subject.kind} {subject.provider}").shuffle(found)
    yield from found


def damaged(subject: Subject, name: str, damage: str) -> Path:
    """A copy of the checkpoint in which one file is damaged, or a folder is gone."""
    copy = subject.copied()
    change = DAMAGES[damage]
    file = copy / name
    if file.is_dir():
        shutil.rmtree(file)
    elif change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    return copy


KINDS = (
    ("stateless", "rocksdb"),
    ("aggregation", "rocksdb"),
    ("aggregation", "hdfs"),
    ("deduplication", "hdfs"),
    ("join", "rocksdb"),
    ("join", "hdfs"),
    ("transformWithState", "rocksdb"),
)


def disagreements(
    spark: SparkSession, root: Path, kind: str, provider: str, most: int | None, say: Callable[[str], None]
) -> tuple[int, list[str]]:
    """How many damages were tried on a query's checkpoint, and those of which the verdict is another than Spark's."""
    subject, wrong, tried = Subject(spark, root, kind, provider), [], 0
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in spark_conf(provider)}
    for name, value in spark_conf(provider).items():
        spark.conf.set(name, value)
    try:
        subject.make()
        whole = whole_outcome(subject)
        for name, damage in cases(subject):
            if most is not None and tried >= most:
                break
            copy = damaged(subject, name, damage)
            said = verdict(subject, copy)
            really = truth(subject, copy, whole)
            tried += 1
            # Without state, there is nothing to read.
            is_same = said.restarts == really.restarts and (
                kind == "stateless" or (said.readable, said.feeds) == (really.readable, really.feeds)
            )
            if not is_same:
                wrong.append(f"{kind}, {provider}: {name} {damage}: Spark {really}; said {said}")
                say(wrong[-1])
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
    return tried, wrong


def damage(options: Options) -> list[Row]:
    """Each kind of query: damages on which the verdict and Spark disagree."""
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    rows = []
    handle = open_session(SparkConfig(master="local[1]"))
    try:
        for kind, provider in KINDS:
            with TemporaryDirectory(prefix="odi-benchmark-", ignore_cleanup_errors=True) as folder:
                tried, wrong = disagreements(handle.spark, Path(folder), kind, provider, options.steps, options.say)
            name = f"{kind}, {provider}: {tried} damaged files; verdicts that Spark does not share"
            rows.append(Row(name, len(wrong), None, "Spark itself", None, "0", not wrong))
    finally:
        handle.stop()
    return rows
