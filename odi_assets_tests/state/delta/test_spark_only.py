"""System tables with Delta features that deltalake cannot handle: told by name, or read and written through Spark.

Delta's connector for Spark is not on PyPI, so the session with it is stood for by a double: it reads and writes Parquet
through the suite's Spark, and the log by the protocol. Everything else is real: the tables, the refusals, the frames.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets.errors import StateConflictError, StateError, Transient
from odi_assets_tests.state.delta.test_catalog import opened, run, table

READ_AND_WRITE = {"readerFeatures": ["vacuumProtocolCheck"], "writerFeatures": ["vacuumProtocolCheck"]}
WRITE_ONLY = {"writerFeatures": ["rowTracking", "domainMetadata"]}


def commit(uri: str | Path, *actions: dict[str, Any]) -> None:
    log = Path(uri) / "_delta_log"
    number = DeltaTable(str(uri)).version() + 1 if log.exists() else 0
    log.mkdir(parents=True, exist_ok=True)
    with (log / f"{number:020}.json").open("x") as file:
        file.writelines(json.dumps(action) + "\n" for action in actions)


def require(folder: Path, features: dict[str, Any]) -> None:
    """Make the table need ``features``."""
    commit(folder, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], **features}})


class DeltaSession:
    """A session with Delta's connector, as far as a backend uses it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def read(self) -> DeltaSession:
        return self

    def format(self, name: str) -> DeltaSession:
        assert name == "delta"
        return self

    def load(self, uri: str) -> Any:
        return self._spark.read.option("mergeSchema", "true").parquet(*DeltaTable(uri).file_uris())

    def createDataFrame(self, rows: Any, schema: str) -> DeltaFrame:
        return DeltaFrame(self._spark.createDataFrame(rows, schema))


class DeltaFrame:
    """A frame that can be appended to a Delta table: once for each `txnVersion` of a `txnAppId`."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._options: dict[str, str] = {}

    def selectExpr(self, *expressions: str) -> DeltaFrame:
        return DeltaFrame(self._frame.selectExpr(*expressions))

    @property
    def write(self) -> DeltaFrame:
        return self

    def format(self, name: str) -> DeltaFrame:
        assert name == "delta"
        return self

    def mode(self, name: str) -> DeltaFrame:
        assert name == "append"
        return self

    def option(self, name: str, value: str) -> DeltaFrame:
        self._options[name] = value
        return self

    def save(self, uri: str) -> None:
        app, number = self._options.get("txnAppId"), int(self._options.get("txnVersion", 0))
        actions: list[dict[str, Any]] = []
        if app is not None:
            if (DeltaTable(uri).transaction_version(app) or 0) >= number:
                return
            actions.append({"txn": {"appId": app, "version": number}})
        commit(uri, *actions, added(Path(uri), self._frame.toArrow()))


def added(folder: Path, rows: pa.Table) -> dict[str, Any]:
    file = folder / f"{uuid4()}.parquet"
    pq.write_table(rows, file)
    now = int(time.time() * 1000)
    sizes = {"size": file.stat().st_size, "modificationTime": now, "stats": json.dumps({"numRecords": len(rows)})}
    return {"add": {"path": file.name, "partitionValues": {}, "dataChange": True, **sizes}}


@pytest.mark.parametrize("features", [READ_AND_WRITE, WRITE_ONLY])
def test_without_spark_the_features_are_named_and_nothing_is_tried_again(
    tmp_path: Path, features: dict[str, Any]
) -> None:
    opened(tmp_path).set_hwm("k", 1)
    require(tmp_path / "meta_state", features)
    backend = opened(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="Delta features that deltalake") as told:
        backend.set_hwm("k", 2)
    assert {name.lower() for name in told.value.features} == {name.lower() for name in features["writerFeatures"]}
    assert not isinstance(told.value, Transient)
    assert "spark_session" in str(told.value)
    assert "odi state migrate" in str(told.value)
    if "readerFeatures" in features:
        with pytest.raises(UnsupportedFeatureError, match="VacuumProtocolCheck"):
            backend.get_hwm("k")
    else:
        assert backend.get_hwm("k") == 1


def test_with_spark_such_a_table_is_read_and_written(tmp_path: Path, spark: SparkSession) -> None:
    first = opened(tmp_path)
    first.set_hwm_batch([{"key": "k", "value": 1}, {"key": "it's \\ odd", "value": "x"}])
    opened(tmp_path, environment="dev").set_hwm("k", "dev")
    require(tmp_path / "meta_state", READ_AND_WRITE)
    backend = opened(tmp_path, spark_session=DeltaSession(spark))
    assert backend.get_hwm("k") == 1
    assert backend.set_hwm("k", 2).revision == 2
    with pytest.raises(StateError, match="lies before"):
        backend.set_hwm("k", 1)
    backend.set_hwm_batch([{"key": "k", "value": 3}, {"key": "new", "value": None}])
    with pytest.raises(StateConflictError):
        backend.compare_and_set("k", 9, expected_revision=1)
    assert backend.delete_hwm("it's \\ odd")
    assert [(e.key, e.value) for e in backend.list_hwms()] == [("k", 3), ("new", None)]
    assert [(e.value, e.revision) for e in backend.history("k")] == [(3, 3), (2, 2), (1, 1)]
    assert backend.environments() == [None, "dev"]
    assert backend.in_environment("dev").get_hwm("k") == "dev"
    assert set(backend.maintain().values()) == {0}


def test_of_two_writers_through_spark_the_second_looks_again(tmp_path: Path, spark: SparkSession) -> None:
    opened(tmp_path).set_hwm("k", 1)
    require(tmp_path / "meta_state", READ_AND_WRITE)
    session = DeltaSession(spark)
    backend, rival = (opened(tmp_path, spark_session=session) for _ in range(2))
    write, others = session.createDataFrame, [lambda: rival.set_hwm("k", 90)]

    def overtaken(rows: Any, schema: str) -> DeltaFrame:
        if others:
            others.pop()()
        return write(rows, schema)

    session.createDataFrame = overtaken  # type: ignore[method-assign]
    with pytest.raises(StateError, match="lies before its present value 90"):
        backend.set_hwm("k", 80)
    assert [e.value for e in backend.history("k")] == [90, 1]


def test_with_spark_runs_are_recorded_and_found(tmp_path: Path, spark: SparkSession) -> None:
    opened(tmp_path).record_runs([run(1)])
    require(tmp_path / "meta_runs", WRITE_ONLY)
    backend = opened(tmp_path, spark_session=DeltaSession(spark))
    backend.record_runs([run(2), run(3)])
    backend.record_runs([])
    assert backend.list_runs() == [run(3), run(2), run(1)]
    assert backend.list_runs(limit=1, pipeline=run(1).pipeline_name) == [run(3)]
    assert backend.get_last_run(run(1).pipeline_name, run(1).node_name) == run(3)
    assert opened(tmp_path).list_runs() == backend.list_runs()


def test_a_session_without_deltas_connector_is_told(tmp_path: Path, spark: SparkSession) -> None:
    opened(tmp_path).set_hwm("k", 1)
    require(tmp_path / "meta_state", READ_AND_WRITE)
    with pytest.raises(StateError, match=r"Spark failed reading .*meta_state") as told:
        opened(tmp_path, spark_session=spark).get_hwm("k")
    assert "Delta's connector" in str(told.value)


def test_a_table_with_renamed_columns_is_never_folded_by_their_logical_names(tmp_path: Path) -> None:
    """Column mapping: the files' columns have names of their own."""
    opened(tmp_path / "like").set_hwm("k", 0)
    schema = json.loads(table(tmp_path / "like").schema().to_json())
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    columns = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(schema["fields"]))}
    metadata = {"id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    commit(
        tmp_path / "meta_state",
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {**metadata, "schemaString": json.dumps(schema), "configuration": columns}},
    )
    backend = opened(tmp_path)
    for number in range(3):
        backend.set_hwm("k", number)
    with pytest.raises(UnsupportedFeatureError, match="Column mapping"):
        backend.maintain()
    assert [e.value for e in opened(tmp_path).history("k")] == [2, 1, 0]
