"""Databases that are down, refuse, or change while they are read: every row once, and nothing taken for nothing new."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IncrementError, SourceError
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.orchestration.automation.source_lag import look, watched_nodes
from odi_assets.state.records import RunStatus
from odi_assets.util.extras import install_command
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import NODE, Make, both
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

STATEFUL = "table: events, incremental: {mode: stateful, column: at}"
EVENTS = NodeKey("p", "events")


@pytest.fixture(autouse=True)
def events(server: Server) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint, at bigint)")
    server.insert("events", (1, 10), (2, 20))


def ids(box: Sandbox) -> list[int]:
    return sorted(row[0] for row in box.rows("events"))


@both
def test_rows_that_come_while_a_run_reads_are_left_for_the_next(
    make: Make, server: Server, spark: SparkSession
) -> None:
    box = make(STATEFUL)
    plan = box.plan("events")
    server.insert("events", (3, 30))
    killed = compute(plan, spark)
    server.insert("events", (4, 40))
    assert killed.plan.hwm_after == NodeMark(20)
    # The run ends here, without a commit; the next one does its work.
    assert box.run("events").rows_written == 4
    plan = box.plan("events", full_refresh=True)
    server.insert("events", (5, 50))
    assert box.finish(plan).rows_written == 4
    assert box.run("events").rows_written == 1
    assert ids(box) == [1, 2, 3, 4, 5]
    assert box.run("events").status is RunStatus.NO_DATA


WRONG = [
    ("port: 1", "cannot be reached", "check `host` and `port`"),
    ("user: nobody", "refuses the login", "check `user` and `password`"),
    ("password: 'wr0ng'", "refuses the login", "check `user` and `password`"),
    ("database: nosuch", "there is no such database", "check `database`"),
    ("table: nosuch", "there is no such table", "check `table`"),
    ("query: SELEC 1", "does not understand the query", "correct `query`"),
]


@both
@pytest.mark.parametrize(("wrong", "what", "fix"), WRONG, ids=[wrong for wrong, *_ in WRONG])
def test_what_is_wrong_is_said_by_spark_as_by_a_plain_driver(
    server: Server, tmp_path: Path, spark: SparkSession, wrong: str, what: str, fix: str
) -> None:
    key = wrong.partition(":")[0]
    for follow in (", incremental: {mode: stateful, column: at}", ""):
        read = (wrong if key in ("table", "query") else "table: events") + follow
        connection = server.connection
        if key not in ("table", "query"):
            fields = connection.strip().removeprefix("db: {").removesuffix("}").split(", ")
            kept = [field for field in fields if not field.startswith(key + ":")]
            connection = f"  db: {{{', '.join([*kept, wrong])}}}\n"
        text = NODE.replace("READ", read).replace("WRITE", "mode: append")
        box = Sandbox(tmp_path, spark, text, connection)
        with pytest.raises(SourceError) as caught:
            box.run("events")
        assert what in caught.value.message, caught.value.message
        assert "db:" in caught.value.message
        assert fix in str(caught.value.fix)
        assert PASSWORD not in str(caught.value)
        assert "wr0ng" not in str(caught.value)


@both
@pytest.mark.usefixtures("server")
def test_a_missing_column_and_a_missing_driver_are_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(IncrementError, match="db:events has no column `nosuch`; it has id, at"):
        make(STATEFUL.replace("column: at", "column: nosuch")).run("events")
    with pytest.raises(IncrementError, match="db:events has no column `nosuch`; it has id, at"):
        make("table: events, partition_column: nosuch, pieces: 2").run("events")
    box = make()
    file = tmp_path / "odibi.yaml"
    file.write_text(file.read_text().replace(", user:", ", driver: no.such.Driver, user:"), encoding="utf-8")
    box.project = Project.load(file)
    with pytest.raises(SourceError, match=r"Spark has no JDBC driver no\.such\.Driver") as caught:
        box.run("events")
    assert "add `spark: {packages: [org." in str(caught.value.fix)


@both
def test_the_sensor_sees_rows_above_the_mark_and_a_server_that_is_down(make: Make, server: Server) -> None:
    box = make(STATEFUL.replace("column: at", "column: at, watermark_lag: 5"), "mode: upsert, keys: [id]")
    assert watched_nodes(box.project, "p") == (EVENTS,)
    assert list(look(box.project, "p", 30).ahead) == [EVENTS]
    box.run("events")
    assert look(box.project, "p", 30).current == {EVENTS: "20"}
    server.insert("events", (3, 30))
    assert "20" not in look(box.project, "p", 30).current
    assert list(look(box.project, "p", 30).ahead) == [EVENTS]
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text().replace(f"port: {server.port}", "port: 1"), encoding="utf-8")
    found = look(Project.load(file), "p", 30)
    assert (found.ahead, found.current) == ({}, {})
    assert "cannot be reached" in found.errors[EVENTS]


@both
def test_without_a_plain_driver_nothing_is_watched_and_the_line_to_add_is_named(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
    box = make(STATEFUL)
    (source,) = Node.of(box.project, EVENTS).sources
    assert watched_nodes(box.project, "p") == ()
    assert install_command(server.type) in str(source.change_since({}))
    assert box.run("events").rows_written == 2
    assert box.run("events").status is RunStatus.NO_DATA


@both
@pytest.mark.usefixtures("server")
def test_nothing_new_is_known_without_spark(make: Make) -> None:
    box = make(STATEFUL)
    box.run("events")
    code = (
        "import sys\nfrom odi_assets.config.graph import NodeKey\nfrom odi_assets.nodes.project import Project\n"
        "from odi_assets.nodes.planning.planner import plan_node\nproject = Project.load(sys.argv[1])\n"
        "plan = plan_node(project, project.open_state(), NodeKey('p', 'events'))\n"
        "assert plan.nothing_new and 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(box.root / "odibi.yaml")], check=True)


@both
def test_a_resumed_run_knows_whether_rows_came(make: Make, server: Server) -> None:
    box = make(STATEFUL)
    (source,) = Node.of(box.project, EVENTS).sources
    then = source.snapshot().position
    assert then == {"upper": "20", "without_cursor": 0}
    assert source.change_since(then) is None
    server.insert("events", (3, None))
    assert source.change_since(then) == "its rows without a cursor were 0 then, and are 1 now"
    server.insert("events", (4, 40))
    assert source.change_since(then) == "its greatest cursor was 20 then, and is 40 now"
    assert source.change_since(None) == "what it held was not recorded"
    (whole,) = Node.of(make().project, EVENTS).sources
    assert whole.change_since({}) == "what it holds is not known without reading it"


@both
@pytest.mark.usefixtures("server")
def test_the_password_is_nowhere(make: Make, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    box = make(STATEFUL)
    plan = box.plan("events")
    (source,) = Node.of(box.project, EVENTS).sources
    source.whole().load(spark).explain("extended")
    result = box.finish(plan)
    assert result.rows_written == 2
    log = "".join(file.read_text() for file in (box.root / "lake" / "events" / "_delta_log").glob("*.json"))
    said = [repr(box.project), repr(plan), str(plan.to_json()), repr(source), source.uri, repr(result), log]
    shown = "\n".join([*said, *capfd.readouterr()])
    assert "JDBCRelation" in shown
    assert PASSWORD not in shown
    assert PASSWORD.replace("'", "''") not in shown


def test_a_database_is_an_asset_that_dagster_shows(make: Make, server: Server) -> None:
    (spec,) = Sources(make().project).specs()
    assert spec.key.path == ["db", "events"]
    assert spec.metadata["dagster/uri"] == f"postgresql://127.0.0.1:{server.port}/{DATABASE}/events"


def test_any_database_with_a_jdbc_driver_is_followed_by_numbers_and_times(
    server: Server, tmp_path: Path, spark: SparkSession
) -> None:
    server.execute(
        "ALTER TABLE events ADD made timestamp, ADD name text", "UPDATE events SET made = '2024-03-10 02:30:00.5'"
    )
    secret = PASSWORD.replace("'", "''")
    connection = (
        f"  db: {{type: sql, url: 'jdbc:postgresql://127.0.0.1:{server.port}/{DATABASE}', "
        f"driver: org.postgresql.Driver, user: {USER}, password: '{secret}'}}\n"
    )
    for column, hwm in (("at", 20), ("made", datetime(2024, 3, 10, 2, 30, 0, 500_000))):
        read = f"table: events, incremental: {{mode: stateful, column: {column}}}"
        text = NODE.replace("READ", read).replace("WRITE", "mode: append")
        text = text.replace("name: events", f"name: by_{column}")
        box = Sandbox(tmp_path, spark, text.replace("path: events", f"path: by_{column}"), connection)
        assert box.run(f"by_{column}").hwm_after == NodeMark(hwm)
        assert box.run(f"by_{column}").status is RunStatus.NO_DATA
    text = NODE.replace("READ", STATEFUL.replace("column: at", "column: name")).replace("WRITE", "mode: append")
    box = Sandbox(tmp_path, spark, text, connection)
    with pytest.raises(IncrementError, match="`name` of db:events is string, and no cursor"):
        box.run("events")


@both
@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("1 AS a, 2 AS a", "1 AS a, 2 AS b"),
        ("1 AS a, 2 AS A", "1 AS a, 2 AS b"),
        ("1, 1", "1 AS a, 1 AS b"),
    ],
)
def test_columns_of_one_name_are_named_with_a_remedy(make: Make, asked: str, named: str) -> None:
    """It was Spark's `[COLUMN_ALREADY_EXISTS]`, and the advice to correct `it`."""
    with pytest.raises(SourceError, match=r"two of its columns have one name") as caught:
        make(f"query: 'SELECT id, {asked} FROM events'").run("events")
    assert "alias" in str(caught.value.fix)
    assert make(f"query: 'SELECT id, {named} FROM events'").run("events").rows_written == 2
