"""Projects that are made by a look at a database: what is read, what is left out, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from odi_assets.errors import ConfigError, SourceError
from odi_assets.nodes.project import Project
from odi_assets.scaffold.project import MadeProject, ProjectRequest, create_for, project_of
from odi_assets.sources.cdc.binlog.mariadb import MariadbSession
from odi_assets.sources.cdc.binlog.mysql import MysqlSession
from odi_assets_tests.as_shipped.shop_databases import server_of
from odi_assets_tests.sources.sql.servers import ADMIN, PASSWORD, USER, MariadbServer, Server

CDC = ProjectRequest(cdc=True)


@pytest.fixture
def server(databases: dict[str, Server | str]) -> Iterator[Server]:
    """A PostgreSQL with an empty database `look`, and a user `reader` who may do nothing."""
    found = server_of(databases, "postgres")
    secret = PASSWORD.replace("'", "''")
    made = ["CREATE DATABASE look", f"CREATE ROLE reader LOGIN PASSWORD E'{secret}'"]
    gone = ["DROP DATABASE IF EXISTS look WITH (FORCE)", "DROP ROLE IF EXISTS reader"]
    found.execute(*gone, *made)
    yield found
    found.execute(*gone)


def execute(server: Server, *statements: str) -> None:
    with opened(server) as database:
        for statement in statements:
            database.execute(statement.encode())


@contextmanager
def opened(server: Server) -> Iterator[psycopg.Connection[Any]]:
    place = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "dbname": "look"}
    with psycopg.connect(**place, autocommit=True) as database:  # type: ignore[arg-type]
        yield database


def url(server: Server, user: str = USER, database: str = "look", scheme: str = "postgresql") -> str:
    return f"{scheme}://{user}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{database}"


def loaded(made: MadeProject, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The nodes of a project, by name, as the loader reads them; it says nothing against the file."""
    monkeypatch.setenv(str(made.variable), "secret")
    (folder / "odibi.yaml").write_text(made.text, encoding="utf-8")
    project = Project.load(folder / "odibi.yaml")
    assert project.warnings == ()
    return {key.node: node for key, node in project.graph.nodes.items()}


def test_a_capture_has_every_table_whose_changes_the_log_has_and_names_the_others(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE events (id int)",
        "CREATE TABLE kept (id int); ALTER TABLE kept REPLICA IDENTITY FULL",
        "CREATE TABLE silent (id int PRIMARY KEY); ALTER TABLE silent REPLICA IDENTITY NOTHING",
        "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE VIEW seen AS SELECT 1; CREATE MATERIALIZED VIEW stored AS SELECT 1",
        'CREATE TABLE twice (id int PRIMARY KEY, "ID" int)',
        "CREATE TABLE marked (id int PRIMARY KEY, _deleted boolean)",
        "CREATE TABLE odd (id int PRIMARY KEY, until timestamptz); INSERT INTO odd VALUES (1, 'infinity')",
        "CREATE SCHEMA other; CREATE TABLE other.orders (id int PRIMARY KEY)",
        "ALTER TABLE orders ADD total int GENERATED ALWAYS AS (id * 2) STORED",
    )
    made = project_of(url(server), CDC)
    nodes = loaded(made, tmp_path, monkeypatch)
    assert nodes["changes"].read.tables == ("public.child", "public.kept", "public.orders")
    assert {name: node.apply.history for name, node in nodes.items() if node.apply} == {
        **{"child": False, "orders": False},
        "kept": True,
    }
    whys = {
        **{"events": "no primary key", "silent": "REPLICA IDENTITY NOTHING", "fast": "unlogged"},
        **{
            "parts": "partitions go with it: part",
            "parent": "others inherit",
            "seen": "a view",
            "stored": "a materialized view",
        },
        **{"twice": "capitals", "marked": "_deleted", "odd": "until holds infinity"},
        "orders (total)": "the database generates it",
    }
    assert made.left_out.keys() == {f"public.{name}" for name in whys}
    for name, why in whys.items():
        assert why in made.left_out[f"public.{name}"]
        assert f"#   public.{name}: " in made.text
    assert made.needs == ()


def test_schemas_and_patterns_choose_tables(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE customers (id int PRIMARY KEY)",
        'CREATE SCHEMA "d.ot"; CREATE TABLE "d.ot".orders (id int PRIMARY KEY)',
    )
    both = ProjectRequest(("public", "d.ot"), ("ord*",), cdc=True)
    nodes = loaded(project_of(url(server), both), tmp_path, monkeypatch)
    assert {node.apply.table for node in nodes.values() if node.apply} == {"public.orders", "d.ot.orders"}
    with pytest.raises(ConfigError, match=r"no schema `sales`\n.*public"):
        project_of(url(server), ProjectRequest(("sales",)))
    with pytest.raises(ConfigError, match=r"no table of public is named `cust`"):
        project_of(url(server), ProjectRequest(tables=("cust",)))


def test_what_a_user_lacks_is_said_with_the_statement_that_gives_it(server: Server) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY, day date)",
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Order Lines" (id int PRIMARY KEY)',
    )
    wanted = ProjectRequest(("public", "sales"), cdc=True)
    made = project_of(url(server, "reader"), wanted)
    assert [need.what for need in made.needs] == [
        "the user reader may not read the server's log",
        "reader may not look into sales",
        'reader may not read "public"."orders", "sales"."Order Lines"',
        'reader does not own "public"."orders", "sales"."Order Lines", and only owners publish',
    ]
    assert all(f"#   {need.statement}\n" in made.text for need in made.needs)
    assert "# Nobody looked whether" in project_of(url(server, "reader"), CDC).text
    execute(server, *(need.statement for need in made.needs))
    again = project_of(url(server, "reader"), wanted)
    assert again.needs == ()
    assert "# Nobody looked" not in again.text


def test_an_owner_needs_the_right_to_make_a_publication_and_the_server_a_free_slot(server: Server) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY); ALTER TABLE orders OWNER TO reader; ALTER ROLE reader REPLICATION",
        *(f"SELECT pg_create_physical_replication_slot('taken_{number}')" for number in range(10)),
    )
    try:
        made = project_of(url(server, "reader"), CDC)
    finally:
        execute(server, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    assert [need.statement for need in made.needs] == [
        "ALTER SYSTEM SET max_replication_slots = 11; then restart the server",
        "GRANT CREATE ON DATABASE look TO reader",
    ]


def test_a_publication_of_somebody_else_is_used_and_has_to_have_all(server: Server) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE parts (id int PRIMARY KEY)",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader; ALTER ROLE reader REPLICATION",
        "CREATE PUBLICATION odi_look FOR TABLE orders WITH (publish = 'insert')",
    )
    made = project_of(url(server, "reader"), CDC)
    assert [need.what.partition(" ")[0] for need in made.needs] == ["the", "reader"]
    execute(server, *(need.statement for need in made.needs))
    assert project_of(url(server, "reader"), CDC).needs == ()


def test_rows_that_a_policy_hides_keep_a_table_out(server: Server) -> None:
    execute(
        server,
        "CREATE TABLE open (id int PRIMARY KEY); CREATE TABLE hidden (id int PRIMARY KEY)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
    )
    assert "row policies" in project_of(url(server, "reader"), CDC).left_out["public.hidden"]
    assert project_of(url(server), CDC).left_out == {}


def test_a_slot_of_another_capture_is_not_shared(server: Server) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "SELECT pg_create_logical_replication_slot('odi_look', 'pgoutput')",
    )
    try:
        assert "log: {slot: odi_look_2, create: true}" in project_of(url(server), CDC).text
    finally:
        execute(server, "SELECT pg_drop_replication_slot('odi_look')")


def test_no_password_is_written_and_none_is_asked_for_where_the_server_wants_none(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(server, "CREATE TABLE orders (id int PRIMARY KEY)")
    (path, _), made = create_for(tmp_path / "made", url(server), CDC)
    assert made.variable == "LOOK_PASSWORD"
    text = path.read_text(encoding="utf-8")
    assert 'password: "${LOOK_PASSWORD}"' in text
    assert PASSWORD not in text
    assert quote(PASSWORD, safe="") not in text
    without = f"postgresql://{USER}@127.0.0.1:{server.port}/look"
    with pytest.raises(SourceError, match=r"refuses the login.*\n?.*export LOOK_PASSWORD"):
        project_of(without, CDC, {})
    # psycopg takes one from where libpq looks for it; the project needs it all the same.
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert project_of(without, CDC, {}).variable == "LOOK_PASSWORD"


def test_a_wrong_password_is_not_shown(server: Server) -> None:
    with pytest.raises(SourceError) as refused:
        project_of(f"postgresql://{USER}:wrong-secret@127.0.0.1:{server.port}/look", CDC)
    assert "wrong-secret" not in str(refused.value)


def test_nothing_is_written_where_a_file_is_there_or_no_table_is_left(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is none"):
        create_for(tmp_path / "made", url(server), CDC)
    execute(server, "CREATE TABLE events (id int)")
    with pytest.raises(ConfigError, match=r"public\.events: no primary key"):
        create_for(tmp_path / "made", url(server), CDC)
    assert not (tmp_path / "made").exists()
    (tmp_path / "odibi.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="already"):
        create_for(tmp_path, url(server), ProjectRequest())
    assert (tmp_path / "odibi.yaml").read_text(encoding="utf-8") == "mine"


Execute = Callable[..., None]
ODD_NAME = "Shop of 日本"


@pytest.fixture(params=["mariadb", "mysql"])
def maria(
    request: pytest.FixtureRequest, databases: dict[str, Server | str]
) -> Iterator[tuple[MariadbServer, Execute]]:
    """A server of MariaDB or MySQL with an empty database, its user `reader` who may read it and nothing more, and what
    runs statements in the name of one who may do everything."""
    server = server_of(databases, request.param)
    assert isinstance(server, MariadbServer)
    opened = server.connect(ADMIN)

    def execute(*statements: str) -> None:
        for statement in statements:
            opened.cursor().execute(statement)

    secret = PASSWORD.replace("'", "''")
    execute(
        f"CREATE DATABASE `{ODD_NAME}`",
        f"USE `{ODD_NAME}`",
        f"CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY '{secret}'",
        f"GRANT SELECT ON `{ODD_NAME}`.* TO 'reader'@'127.0.0.1'",
    )
    yield server, execute
    execute(
        *(f"SET GLOBAL {name}" for name in ("binlog_format = ROW", "binlog_row_metadata = FULL")),
        f"DROP DATABASE `{ODD_NAME}`",
        "DROP USER 'reader'@'127.0.0.1'",
    )
    opened.close()


def of_maria(server: Server, user: str) -> str:
    return url(server, user, quote(ODD_NAME), "mariadb")


def test_a_capture_of_a_binary_log_has_every_table_that_its_log_has_whole_and_names_the_others(
    maria: tuple[MariadbServer, Execute], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, execute = maria
    execute(
        "CREATE TABLE orders (id int PRIMARY KEY, amount decimal(9,2))",
        "CREATE TABLE `order.items` (id int PRIMARY KEY)",
        "CREATE TABLE events (id int)",
        "CREATE TABLE old (id int PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE parts (id int PRIMARY KEY, o int, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE TABLE marked (id int PRIMARY KEY, _deleted int)",
        "CREATE TABLE born (id int PRIMARY KEY, day date)",
        "INSERT INTO born VALUES (1, '0000-00-00')",
    )
    made = project_of(of_maria(server, ADMIN), CDC)
    nodes = loaded(made, tmp_path, monkeypatch)
    assert set(nodes) == {"changes", "orders"}
    assert nodes["changes"].read.tables == (f"{ODD_NAME}.orders",)
    assert nodes["orders"].apply.table == f"{ODD_NAME}.orders"
    reasons = {
        **{"events": "no primary key", "old": "MyISAM", "parts": "CASCADE", "seen": "a view"},
        **{"marked": "_deleted", "born": "0000-00-00", "order.items": "a point in its name"},
    }
    assert {name.removeprefix(f"{ODD_NAME}."): why for name, why in made.left_out.items()}.keys() == reasons.keys()
    for name, why in reasons.items():
        assert why in made.left_out[f"{ODD_NAME}.{name}"]
        assert f"#   {ODD_NAME}.{name}: " in made.text
    assert made.needs == ()
    assert "docs/cdc-mariadb.md" in made.text
    assert PASSWORD not in made.text


def test_what_a_server_of_mariadb_or_its_user_lacks_is_said_with_the_statement_that_gives_it(
    maria: tuple[MariadbServer, Execute], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, execute = maria
    rights = (MysqlSession if server.name == "mysql" else MariadbSession).RIGHTS
    execute("CREATE TABLE orders (id int PRIMARY KEY)")
    execute("SET GLOBAL binlog_format = MIXED", "SET GLOBAL binlog_row_metadata = MINIMAL")
    made = project_of(of_maria(server, "reader"), CDC)
    assert loaded(made, tmp_path, monkeypatch).keys() == {"changes", "orders"}
    statements = [need.statement.partition(";")[0] for need in made.needs]
    assert statements == [
        "SET GLOBAL binlog_format = ROW",
        "SET GLOBAL binlog_row_metadata = FULL",
        f"GRANT {rights} ON *.* TO 'reader'@'127.0.0.1'",
    ]
    assert all(f"#   {statement}" in made.text for statement in statements)
    for statement in statements:
        execute(statement)
    assert project_of(of_maria(server, "reader"), CDC).needs == ()


def test_a_user_of_mariadb_who_may_read_nothing_is_shown_the_right_that_is_missing(
    maria: tuple[MariadbServer, Execute],
) -> None:
    server, execute = maria
    execute("CREATE TABLE orders (id int PRIMARY KEY)")
    execute(f"REVOKE SELECT ON `{ODD_NAME}`.* FROM 'reader'@'127.0.0.1'")
    execute(f"GRANT SHOW VIEW ON `{ODD_NAME}`.* TO 'reader'@'127.0.0.1'")
    right = f"GRANT SELECT ON `{ODD_NAME}`.`orders` TO 'reader'@'127.0.0.1'"
    with pytest.raises(ConfigError, match=re.escape(f"its user may not read it: {right}")):
        project_of(of_maria(server, "reader"), CDC)
    execute(right)
    assert project_of(of_maria(server, "reader"), CDC).tables == 1


def test_values_that_spark_does_not_hold_come_as_text_and_a_cursor_has_none_of_them(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        server,
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric, many numeric(50,10), d date, ns numeric[], "
        "fine numeric(9,2), updated_at timestamptz NOT NULL)",
        "INSERT INTO odd VALUES (1, 'NaN', 1e39, '0044-03-15 BC', '{{1},{2}}', 1.5, 'infinity')",
    )
    read = loaded(project_of(url(server), ProjectRequest()), tmp_path, monkeypatch)["odd"].read
    assert read.columns == {name: f'CAST("{name}" AS text)' for name in ("n", "many", "d", "ns", "updated_at")}
    assert read.incremental is None


def test_the_right_to_read_is_asked_for_by_table(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(server, "CREATE TABLE open (id int); GRANT SELECT ON open TO reader", "CREATE TABLE closed (id int)")
    made = project_of(url(server, "reader"), ProjectRequest())
    assert loaded(made, tmp_path, monkeypatch).keys() == {"open"}
    assert "may not read it" in made.left_out["public.closed"]
