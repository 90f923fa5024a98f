"""A session of a node's own, where the node is interrupted."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERRUPTED = """
import signal
from odi_assets.config.models import SparkConfig
from odi_assets.spark.own_session import OwnSession
from odi_assets.spark.session import open_session

def interrupt(*_):
    raise KeyboardInterrupt

spark = open_session(SparkConfig(master="local[1]", conf={"spark.ui.enabled": "false"})).spark
own, sleep = OwnSession(spark), spark._jvm.java.lang.Thread.sleep
signal.signal(signal.SIGALRM, interrupt)
try:
    with own:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        sleep(2000)
except BaseException as error:
    # As long as the traceback is there, so is the connection.
    print(repr(error), [row.id for row in spark.range(3).collect()])
with own:
    print(spark.range(5).count())
spark.stop()
"""


@pytest.mark.usefixtures("jvm")
def test_an_interrupt_in_the_middle_of_a_call_to_the_jvm_stays_one_and_later_calls_get_their_own_answers() -> None:
    # The JVM that tests share is talked to in another way.
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.split("\n")[:2] == ["KeyboardInterrupt() [0, 1, 2]", "5"], ended.stderr
    assert ended.returncode == 0, ended.stderr


def test_an_interrupt_stays_one_where_the_jvm_closes_the_next_connection_as_well(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.protocol import Py4JNetworkError

    from odi_assets.spark.own_session import OwnSession

    own, session_class, failed = OwnSession(spark), spark._get_j_spark_session_class, []

    def closed_once(jvm: Any) -> Any:
        if not failed:
            failed.append(jvm)
            raise Py4JNetworkError("Answer from Java side is empty")
        return session_class(jvm)

    def interrupted() -> None:
        with own:
            monkeypatch.setattr(type(spark), "_get_j_spark_session_class", staticmethod(closed_once))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert failed
    assert spark.range(3).count() == 3
