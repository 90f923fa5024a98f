"""What a session of ours spares each small job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import py4j.clientserver
import pytest
from py4j.java_gateway import JavaPackage, java_import
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.mark.usefixtures("spark")
def test_a_class_and_a_function_of_the_jvm_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    send = py4j.clientserver.ClientServerConnection.send_command

    def counted(self: Any, command: str) -> Any:
        asked[command[0]] += 1
        return send(self, command)

    F.upper(F.lit("a"))
    monkeypatch.setattr(py4j.clientserver.ClientServerConnection, "send_command", counted)
    for _ in range(10):
        F.upper(F.lit("a"))
    assert asked["r"] == 0
    assert asked["c"] > 10


def test_what_the_jvm_has_not_yet_is_found_once_it_is_there(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert type(jvm.BitSet) is JavaPackage
    java_import(jvm, "java.util.BitSet")
    assert jvm.BitSet(64).size() == 64
    assert jvm.java.lang.Integer.MAX_VALUE == 2**31 - 1


def test_hadoops_settings_are_sent_without_the_files_they_came_from(spark: SparkSession) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    spark.range(1).count()
    assert configuration.size() > 500
    assert configuration.getPropertySources("io.file.buffer.size") is None
    assert configuration.get("io.file.buffer.size") is not None
