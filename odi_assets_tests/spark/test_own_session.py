"""A session of a node's own, where the node is interrupted."""

from __future__ import annotations

import subprocess
import sys

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


def test_an_interrupt_in_the_middle_of_a_call_to_the_jvm_stays_one_and_later_calls_get_their_own_answers() -> None:
    # The JVM that tests share is talked to in another way.
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.split("\n")[:2] == ["KeyboardInterrupt() [0, 1, 2]", "5"], ended.stderr
    assert ended.returncode == 0, ended.stderr
