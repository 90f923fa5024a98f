"""A JVM with Spark that outlives the runs which use it: starting one for each of thousands of runs would take hours.

``python -m benchmarks.kill_sweep.jvm [JAR…]`` starts it, prints how to reach it as one line of JSON, and ends it with
its own stdin. A child :func:`adopt`\\ s its SparkContext in a tenth of a second, with a session of its own. When the
child is killed, the JVM goes on with what it was told: files may still appear in the table's folder after the next run
began, which a driver that takes its JVM along never does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each connection gets a thread of the JVM: pinning them to threads of one Python process is for one process alone.
PLAIN_GATEWAY = {"PYSPARK_PIN_THREAD": "false"}
_CONF = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # Tables of a few rows, for minutes: compiling queries and the JVM's own code costs more than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # It keeps the newest of so many jobs and queries in memory, for a UI that nobody looks at.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
}


def adopt(port: int, secret: str) -> SparkSession:
    """A session of its own in the JVM that listens on ``port``."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ |= {**PLAIN_GATEWAY, "PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    java_context = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    root = jvm.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    return SparkSession(context, jsparkSession=root.newSession())


def main() -> None:
    """Serve until stdin ends."""
    os.environ |= PLAIN_GATEWAY
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    jars = {"spark.jars": ",".join(sys.argv[1:])} if sys.argv[1:] else {}
    handle = open_session(SparkConfig(master="local[2]", conf={**_CONF, **jars}), app_name="kill sweep")
    parameters = handle.spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    print(json.dumps({"port": parameters.port, "secret": parameters.auth_token}), flush=True)
    sys.stdin.read()
    handle.stop()


if __name__ == "__main__":
    main()
