"""A JVM that dies is named in the shell and in the run history, with what helps; the next run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from odi_assets.spark import death
from odi_assets.spark.death import death_named, death_of_spark

pytestmark = pytest.mark.usefixtures("jvm")

PROJECT = """
project: dies
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
spark: {master: "local[1]"}
pipelines:
- pipeline: batch
  nodes:
  - name: first
    read: {connection: landing, format: json, path: "*", schema: "id STRING", incremental: files}
    write: {connection: lake, path: first, mode: append}
  - name: second
    inputs: {first: first}
    transform: {function: "fn:second"}
    write: {connection: lake, path: second, mode: overwrite}
- pipeline: streams
  nodes:
  - name: stream
    read: {connection: landing, format: json, path: "*", schema: "id STRING"}
    stream: {inputs: {df: {max_files_per_batch: 1}}}
    transform: {function: "fn:stream"}
    write: {connection: lake, path: stream, mode: append}
"""
FUNCTIONS = """
import os, signal, threading, time
from pathlib import Path
from pyspark import SparkContext


def kill():
    if os.path.exists("kill"):
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        SparkContext._gateway.proc.wait()


def second(first):
    kill()
    return first


def stream(df):
    def once_a_batch_is_there():
        while not any(Path("lake/stream/_delta_log").glob("*.json")):
            time.sleep(0.01)
        kill()

    threading.Thread(target=once_a_batch_is_there, daemon=True).start()
    return df
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    for number in range(3):
        (tmp_path / "landing" / f"{number}.json").write_text(f'{{"id": "{number}"}}\n', encoding="utf-8")
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "fn.py").write_text(FUNCTIONS, encoding="utf-8")
    (tmp_path / "kill").touch()
    return tmp_path


def odi(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "odi_assets.cli", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "pipeline"),
    [
        (("run", "batch"), "batch"),
        (("run", "streams"), "streams"),
        (("stream", "run", "streams.stream", "--every", "1s"), "streams"),
    ],
    ids=["between nodes", "a stream", "a service"],
)
def test_who_kills_the_jvm_of_a_run_reads_that_it_died_and_the_next_run_goes_on(
    project: Path, command: tuple[str, ...], pipeline: str
) -> None:
    done = odi(project, *command)
    assert done.returncode == 1
    history = odi(project, "runs", "last", pipeline)
    said = done.stderr + history.stdout + history.stderr
    assert said.count("the JVM in which Spark runs died") >= 2
    assert "spark.driver.memory" in said
    assert "the next run goes on" in said
    assert "ConnectionRefused" not in said
    assert "Traceback" not in said
    (project / "kill").unlink()
    again = odi(project, "run", pipeline)
    assert again.returncode == 0, again.stderr
    shown = odi(project, "show", "stream" if pipeline == "streams" else "second", "--json")
    assert sorted(shown.stdout.split('"')[3::4]) == ["0", "1", "2"]


def test_nodes_that_come_after_the_death_of_the_jvm_name_it_too(project: Path) -> None:
    file = project / "odibi.yaml"
    own, _, _ = file.read_text(encoding="utf-8").partition("- pipeline: streams")
    later = own[own.index("- pipeline: batch") : own.index("  - name: second")]
    file.write_text(own + later.replace("batch", "later").replace("first", "third"), encoding="utf-8")
    done = odi(project, "run")
    assert done.returncode == 1
    assert "later.third failed: SparkDiedError: the JVM in which Spark runs died" in done.stderr
    assert "ConnectionRefused" not in done.stderr
    (project / "kill").unlink()
    assert odi(project, "run").returncode == 0


def test_memory_that_spark_lacks_is_named_with_the_setting_that_gives_it_more(project: Path) -> None:
    (project / "kill").unlink()
    file = project / "odibi.yaml"
    text = file.read_text(encoding="utf-8").replace('"local[1]"', '"local[1]", conf: {spark.driver.memory: 512m}')
    sql = '{sql: "SELECT size(collect_list(repeat(CAST(id AS STRING), 200))) AS n FROM range(100000000)"}'
    file.write_text(text.replace('{function: "fn:second"}', sql), encoding="utf-8")
    done = odi(project, "run", "batch")
    assert done.returncode == 1
    assert "no memory left" in done.stderr
    assert "spark.driver.memory" in done.stderr


def test_an_error_of_another_kind_is_left_as_it_is(spark: SparkSession) -> None:
    with pytest.raises(ConnectionRefusedError), death_named("it ran"):
        raise ConnectionRefusedError(111, "Connection refused")
    assert death_of_spark(ValueError("no")) is None
    assert spark.range(1).count() == 1


def test_a_jvm_that_answers_with_an_error_is_not_waited_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited() -> None:
        raise AssertionError("it was asked whether the JVM ends")

    monkeypatch.setattr(death, "_exit_code", waited)
    with pytest.raises(AnalysisException) as raised, death_named("it ran"):
        spark.sql("SELECT nothing_like_that")
    assert death_of_spark(raised.value) is None
