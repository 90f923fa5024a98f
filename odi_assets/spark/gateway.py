"""Starts the JVM of a classic session, without the terminal output that a user does not need."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from io import RawIOBase
from pathlib import Path
from typing import Any

DEBUG_VARIABLE = "ODI_DEBUG"
"""When set, Spark logs as it does by itself, stacks and all. ``0`` and ``false`` count as not set."""

LOG_LEVEL_VARIABLE = "ODI_SPARK_LOG_LEVEL"
"""Spark's log level from its first line on: ``error`` unless set. Read by log4j2.properties in this package."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
_OF_SPARKS_OPTIONS = (b"Using incubator modules: jdk.incubator.vector", b"package sun.security.action not in java.base")
"""What the JVM warns of as it starts, because of options that Spark gives it; the second one since Java 24."""

_CHATTER = re.compile(rb"^(?:Starting )?Streaming TransformWithState\w* Python worker\b.*\n(?:\n|(?=.))", re.MULTILINE)
_CHATTER_BEGINS = (b"Starting Streaming TransformWithState", b"Streaming TransformWithState")
"""What the Python worker of ``transformWithState`` prints at first (``transform_with_state_driver_worker``)."""

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CHUNK = 65536


def debugging() -> bool:
    """Whether :data:`DEBUG_VARIABLE` asks for all output."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in {"", "0", "false", "no"}


def quiet_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """``conf`` with this package's log settings for the JVM, unless it brings its own or ODI_DEBUG is set."""
    options = conf.get(_JAVA_OPTIONS, "")
    if debugging() or "log4j2.configurationFile" in options:
        return dict(conf)
    return {**conf, _JAVA_OPTIONS: f"{options} -Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}".strip()}


def quiet_query_errors() -> None:
    """Stop PySpark from logging, as a line of JSON with its stack, each error of a query that it raises anyway."""
    from pyspark.logger import PySparkLogger

    if not debugging():
        for name in _QUERY_LOGGERS:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start a JVM, and a Spark context with ``conf`` in it; do nothing if this process has a JVM already.

    The JVM's first lines, warnings that Spark itself causes, are dropped; everything else goes to stderr as it is.

    Raises:
        Exception: whatever PySpark raises when the JVM or the context does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # Spark's Python workers must be this Python: `python3` of PATH, its default, need not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._gateway is not None:
        return
    spark_conf = SparkConf()
    for key, value in conf.items():
        spark_conf.set(key, value)
    source, sink = os.pipe()
    pump = threading.Thread(target=_forward, args=(source,), name="odi-spark-stderr", daemon=True)
    pump.start()
    try:
        launch: Any = launch_gateway
        gateway = launch(spark_conf, popen_kwargs={"stderr": sink})
    except BaseException:
        os.close(sink)
        pump.join(timeout=5)
        raise
    os.close(sink)
    SparkContext(conf=spark_conf, gateway=gateway)


def drop_connection(spark: Any) -> None:
    """Close this thread's connection to the JVM of a classic session; the next call opens another one.

    For a thread that was interrupted in the middle of a call, as by *Terminate* in Dagster: the answer is still to
    come, and the next call would take it for its own.
    """
    client = spark._jvm._gateway_client
    # Without a connection per thread (PYSPARK_PIN_THREAD=false), py4j itself does not use such a connection any more.
    connection = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    if connection is not None:
        connection.close()


def _forward(source: int) -> None:
    """Copy the JVM's stderr to ours, without the warnings that it begins with and without its workers' chatter."""
    with open(source, "rb", buffering=0) as stream:
        pending, held = _after_warnings(stream), b""
        alive = True
        while pending or (pending := stream.read(_CHUNK)):
            told, held = _without_chatter(held + pending)
            # Reading goes on when our stderr is closed: a full pipe would stop the JVM.
            alive = alive and _written(told)
            pending = b""
        if alive and held:
            _written(_CHATTER.sub(b"", held + b"\n"))


def _after_warnings(stream: RawIOBase) -> bytes:
    """What comes first after the lines that warn of Spark's options, read to the end of a line."""
    head = b""
    while chunk := stream.read(_CHUNK):
        head += chunk
        while b"\n" in head:
            line, _, rest = head.partition(b"\n")
            if not any(warning in line for warning in _OF_SPARKS_OPTIONS):
                return head
            head = rest
    return head


def _without_chatter(text: bytes) -> tuple[bytes, bytes]:
    """``text`` without chatter; and its last line, if that may become some, or the blank line after it is to come."""
    text = _CHATTER.sub(b"", text)
    begin = text.rfind(b"\n", 0, -1) + 1
    last = text[begin:]
    may_be = bool(last) and any(last.startswith(one[: len(last)]) for one in _CHATTER_BEGINS)
    return (text[:begin], last) if may_be else (text, b"")


def _written(data: bytes) -> bool:
    try:
        while data:
            # By descriptor: the lock of sys.stderr may be held for ever when the interpreter ends.
            data = data[os.write(2, data) :]
    except OSError:
        return False
    return True
