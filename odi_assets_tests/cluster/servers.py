"""A Spark standalone cluster and a Spark Connect server on it: processes of their own, from the pyspark wheel alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pyspark

from odi_assets.spark.jvm.java import find_java
from odi_assets.spark.jvm.scripts_home import home_for_scripts
from odi_assets_tests.conftest import jvm_options

HOST = "127.0.0.1"
PATIENCE = 300.0
"""Seconds to wait for a server; it is up in a few on a machine that has nothing else to do."""


def executors() -> dict[str, str]:
    """Settings for an executor on each of two workers, so that two applications fit."""
    return {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.cores.max": "2",
    }


_HOME = Path(pyspark.__file__).parent
_POLL = 0.05
_Found = TypeVar("_Found")


def until(what: str, look: Callable[[], _Found | None]) -> _Found:
    """What ``look`` finds, as soon as it finds something."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = look()
        if found:
            return found
        time.sleep(_POLL)
    raise TimeoutError(f"{what}: not in {PATIENCE:.0f} s")


def local_environment(**more: str) -> dict[str, str]:
    """An environment in which Spark listens on this machine alone, and starts this Python for its workers."""
    leave_out = ("SPARK_", "ODI_", "PYSPARK_", "DAGSTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(leave_out)}
    local = {"SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_HOSTNAME": HOST, "PYSPARK_PYTHON": sys.executable}
    options = dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"), jvm_options())
    java = {"JAVA_HOME": str(home_for_scripts(find_java()))}
    return {**kept, **options, **local, **java, **more}


@dataclass(frozen=True)
class Server:
    """A running JVM, in a process group of its own, and the file that it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def says(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the log."""

        def look() -> re.Match[str] | None:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            found = re.search(pattern, text)
            if found is None and self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{text[-4000:]}")
            return found

        return until(f"{self.name} says {pattern!r} in {self.log}", look)


@contextmanager
def _started(name: str, folder: Path, command: list[str], environment: dict[str, str]) -> Iterator[Server]:
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield Server(name, process, log)
    finally:
        # The group, because what a server started (executors, Python workers) does not always end with it.
        _kill_group(process.pid)
        process.wait(60)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster.

    Attributes:
        master: its address, for ``spark.master``.
        workers: the worker processes; the executors are their children.
    """

    master: str
    workers: tuple[Server, ...]

    def executors(self) -> list[tuple[str, psutil.Process]]:
        """The executor JVMs that run now, each with the id of its application."""
        found = []
        for worker in self.workers:
            for child in psutil.Process(worker.process.pid).children(recursive=True):
                try:
                    line = child.cmdline()
                except psutil.Error:
                    continue
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in line:
                    found.append((line[line.index("--app-id") + 1], child))
        return found


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[Cluster]:
    """A master and workers with ``cores`` task slots each."""
    spark_class = str(_HOME / "bin" / "spark-class")
    environment = local_environment(
        SPARK_HOME=str(_HOME),
        SPARK_DAEMON_MEMORY="192m",
        SPARK_DAEMON_JAVA_OPTS=f"{jvm_options()} -Dspark.master.rest.enabled=false",
    )
    with ExitStack() as stack:
        arguments = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        command = [spark_class, "org.apache.spark.deploy.master.Master", *arguments]
        master = stack.enter_context(_started("master", folder, command, environment))
        address = master.says(rf"Starting Spark master at (spark://{re.escape(HOST)}:\d+)")[1]
        servers = []
        for number in range(1, workers + 1):
            size = ["--cores", str(cores), "--memory", "2g", "--work-dir", str(folder / f"work-{number}")]
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", *arguments, *size, address]
            servers.append(stack.enter_context(_started(f"worker-{number}", folder, command, environment)))
        for server in servers:
            server.says("Successfully registered with master")
        yield Cluster(address, tuple(servers))


@contextmanager
def connect_server(
    folder: Path,
    master: str,
    token: str | None = None,
    python: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A Spark Connect server with executors of its own on ``master``; gives its address. It logs to ``connect.log``.

    Args:
        token: what clients have to show.
        python: of its workers; this one if None.
        more: settings that go before those of here.
    """
    conf = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **({"spark.connect.authenticate.token": token} if token else {}),
        **executors(),
        **(more or {}),
    }
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    server_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [
        str(_HOME / "bin" / "spark-submit"),
        *("--master", master, *settings, "--class", server_class, "spark-internal"),
    ]
    workers = {"PYSPARK_PYTHON": python} if python else {}
    environment = local_environment(SPARK_HOME=str(_HOME), PYTHONPATH=str(Path(__file__).parents[2]), **workers)
    with _started("connect", folder, command, environment) as server:
        port = server.says(r"Spark Connect server started at: \S+:(\d+)")[1]
        yield f"sc://localhost:{port}/;token={token}" if token else f"sc://{HOST}:{port}"
