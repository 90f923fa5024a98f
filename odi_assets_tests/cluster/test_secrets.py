"""What a Spark Connect server writes down: its log, in which each execution has its plan, and its events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
from odi_assets_tests.cluster.servers import connect_server
from odi_assets_tests.secret_connections import SECRET, reader_options

_LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server logs, as Spark does it unless told otherwise."""
    folder = tmp_path_factory.mktemp("connect-secrets")
    (folder / "events").mkdir()
    (folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    (folder / "rows.csv").write_text("id\n1\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[SparkSession]:
    """A session of ours on it."""
    more = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.joinpath("events").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "spark.sql.redaction.string.regex": "own-[a-z]+",
    }
    with connect_server(folder, "local[1]", more=more) as address:
        handle = open_session(SparkConfig(remote=address))
        # Whoever finds the session that is there hides what is hidden, and no less.
        open_session(SparkConfig(remote=address))
        yield handle.spark
        handle.stop()


def test_no_secret_of_an_option_stands_in_its_log_or_in_its_events(client: SparkSession, folder: Path) -> None:
    for kind, options in reader_options().items():
        rows = client.read.options(**options).schema("id LONG").csv(str(folder / "rows.csv"))
        rows.write.options(**options).parquet(str(folder / f"rows of {kind}"))
        rows.explain(extended=True)
        with pytest.raises(PySparkException):
            client.read.options(**options).csv(str(folder / "none")).collect()
    database = {"url": f"jdbc:postgresql://127.0.0.1:1/db?password={SECRET}", "password": SECRET, "user": "odi"}
    with pytest.raises(PySparkException) as raised:
        client.read.format("jdbc").options(
            **database, dbtable="orders", driver="org.postgresql.Driver"
        ).load().collect()
    with pytest.raises(PySparkException):
        client.read.jdbc(database.pop("url"), "orders", predicates=["1 = 1"], properties=database).collect()
    assert SECRET not in str(raised.value)
    client.sql("SELECT 'own-text' AS x").collect()
    log = (folder / "connect.log").read_text(encoding="utf-8", errors="replace")
    events = "".join(file.read_text(encoding="utf-8") for file in (folder / "events").rglob("*") if file.is_file())
    assert "rows.csv" in log
    assert "rows.csv" in events
    assert [line[:400] for text in (log, events) for line in text.splitlines() if SECRET in line] == []


def test_the_servers_own_pattern_stays(client: SparkSession) -> None:
    assert "own-[a-z]+" in str(client.conf.get("spark.sql.redaction.string.regex"))
    assert "url" in str(client.conf.get("spark.sql.redaction.options.regex"))
