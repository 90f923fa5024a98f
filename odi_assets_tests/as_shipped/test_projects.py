"""Every complete project of a page, and every one that ``odi init`` makes, is run by Dagster and from the shell.

Each is delivered to twice. What has landed first is loaded by Dagster's own command, the rest by ``odi run``: so both
start Spark, as the project file says, in processes of their own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from odi_assets.sources.sql.dialects import Mysql
from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.as_shipped.shop_databases import of_mariadb, of_postgres, server_of
from odi_assets_tests.jdbc import needs_drivers
from odi_assets_tests.pages import PAGES, blocks, project_of
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, Server

MATERIALIZE = "dagster asset materialize -m odi_assets.definitions --select '*'"
Deliver = Callable[[Path, int], None]


@dataclass(frozen=True)
class Delivery:
    """What a project is given, and what has to become of it.

    Attributes:
        deliver: lands the part of a number, 0 or 1, in a folder.
        written: the rows that each node writes when part 0, and when part 1 has landed.
        first: the command that loads part 0.
        reads_again: a run without anything new reads rows, for its project says so.
        secrets: what no file may hold and no command may print.
    """

    deliver: Deliver
    written: tuple[Mapping[str, int], Mapping[str, int]]
    variables: Mapping[str, str] = field(default_factory=dict)
    first: str = MATERIALIZE
    reads_again: bool = False
    secrets: tuple[str, ...] = ()


def run_twice(installed: Installed, folder: Path, case: Delivery) -> None:
    """Deliver both parts to the project in ``folder``, load each, and look whether all agrees."""
    installed.done("odi config check", folder, **case.variables)
    case.deliver(folder, 0)
    installed.done(case.first, folder, **case.variables)
    runs = json.loads(installed.done("odi runs list --json", folder, **case.variables))
    assert {run["node_name"]: (run["status"], run["rows_processed"]) for run in runs} == {
        node: ("SUCCESS", rows) for node, rows in case.written[0].items()
    }
    case.deliver(folder, 1)
    results = json.loads(installed.done("odi run --json", folder, **case.variables))
    assert {one["node"]: one["rows_written"] for one in results if one["rows_written"]} == case.written[1]
    if not case.reads_again:
        results = json.loads(installed.done("odi run --json", folder, **case.variables))
        assert {one["status"] for one in results} == {"NO_DATA"}
    installed.done("odi doctor", folder, **case.variables)
    if case.secrets:
        ended = installed.run("odi run --full-refresh --yes", folder, **case.variables, ODI_SPARK_LOG_LEVEL="info")
        assert ended.returncode == 0, ended.stderr
        assert " INFO " in ended.stderr, "Spark says what it does"
        require_hidden(case.secrets, folder, ended.stdout + ended.stderr)


def require_hidden(secrets: Iterable[str], folder: Path, printed: str) -> None:
    """No file below ``folder`` and nothing that was printed holds a secret, as it is or as files and URLs spell it."""
    places = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places["what was printed"] = printed.encode()
    for secret in secrets:
        spelled = {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), b64encode(secret.encode()).decode()}
        found = [name for name, raw in places.items() if any(one.encode() in raw for one in spelled)]
        assert not found, f"a secret stands in {found}"


def csv_files(*parts: str) -> Deliver:
    """Lands files of orders."""

    def deliver(folder: Path, part: int) -> None:
        landed = folder / "landing" / "orders"
        landed.mkdir(parents=True, exist_ok=True)
        (landed / f"{part}.csv").write_text(parts[part], encoding="utf-8")

    return deliver


def orders_and_payments(folder: Path, part: int) -> None:
    """Lands an order and its payment."""
    at = datetime(2024, 1, 1, 10 + part, tzinfo=UTC)
    rows: dict[str, dict[str, Any]] = {
        "orders": {"order_id": f"o{part}", "ordered": at.isoformat(), "amount": 2.5},
        "payments": {"order_id": f"o{part}", "paid": (at + timedelta(minutes=1)).isoformat()},
    }
    for name, row in rows.items():
        (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
        (folder / "landing" / name / f"{part}.json").write_text(json.dumps(row) + "\n", encoding="utf-8")


def orders_with_bad_ones(folder: Path, part: int) -> None:
    """Lands a customer, and orders of whom one is right."""
    rows = [
        f"{10 * part + 1},{part},new,5.0,1.0,2024-01-01 10:00:00",
        f"{10 * part + 2},{part},lost,5.0,1.0,2024-01-01 10:00:00",
        f"{10 * part + 3},99,paid,-1.0,0.0,2024-01-01 10:00:00",
    ]
    files = {"customers": ["id,name", f"{part},ann"], "orders": ["id,customer,state,amount,fee,at", *rows]}
    for name, lines in files.items():
        (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
        (folder / "landing" / name / f"{part}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def olake(folder: Path, part: int) -> None:
    """Writes what OLake writes: Parquet, and then its state."""
    rows = [{"_olake_id": f"h{part}", "_op_type": "c", "_cdc_lsn": f"0/{part + 1:X}", "id": part, "amount": 2.5}]
    place = folder / "olake" / "public" / "orders"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), place / f"{part}.parquet")
    state = {
        "type": "GLOBAL",
        "version": 7,
        "global": {"state": {"lsn": f"0/{part + 1:X}"}, "streams": ["public.orders"]},
        "streams": [{"stream": "orders", "namespace": "public", "sync_mode": "cdc", "state": {"chunks": []}}],
    }
    (folder / "olake" / "state.json").write_text(json.dumps(state), encoding="utf-8")


def envelopes(folder: Path, part: int) -> None:
    """Lands what Debezium writes: two rows, then a change of one and the end of the other."""
    fields = [{"field": "id", "type": "int32"}, {"field": "amount", "type": "double"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    changes = [("c", 1, 2.5), ("c", 2, 3.5)] if part == 0 else [("u", 1, 4.5), ("d", 2, None)]
    messages = []
    for number, (op, id_, amount) in enumerate(changes):
        row = {"id": id_, "amount": amount}
        source = {"name": "shop", "db": "shop", "schema": "public", "table": "orders", "lsn": 10 * part + number}
        rows = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        value = {"schema": schema, "payload": {**rows, "op": op, "source": source}}
        messages.append(json.dumps({"key": {"id": id_}, "value": value}))
    place = folder / "landing" / "topics" / "shop.public.orders"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{part}.json").write_text("\n".join(messages) + "\n", encoding="utf-8")


DELIVERIES = {
    "README.md": Delivery(
        csv_files("id,amount\n1,2.5\n2,3.5\n", "id,amount\n3,4.5\n"), ({"raw_orders": 2}, {"raw_orders": 1})
    ),
    "project-file.md": Delivery(
        csv_files(
            "id,day,amount\n1,2024-01-01,2.50\n1,2024-01-01,2.75\n2,2024-01-02,3.00\n",
            "id,day,amount\n3,2024-01-03,1\n",
        ),
        ({"raw_orders": 3, "orders": 2, "by_day": 2}, {"raw_orders": 1, "orders": 1, "by_day": 1}),
        {"AZURE_STORAGE_KEY": "a2V5"},
        "dagster job execute -m odi_assets.definitions -j sales",
    ),
    "checks.md": Delivery(orders_with_bad_ones, ({"customers": 1, "orders": 1}, {"customers": 1, "orders": 1})),
    "lineage.md": Delivery(
        csv_files("id,customer,amount\n1,ann,2.5\n2,ann,3.5\n", "id,customer,amount\n3,bob,4\n"),
        ({"raw_orders": 2, "spending": 1}, {"raw_orders": 1, "spending": 2}),
    ),
    "state.md": Delivery(
        csv_files("id,day,amount\n1,2024-01-01,2.50\n", "id,day,amount\n2,2024-01-02,3\n"),
        ({"orders": 1}, {"orders": 1}),
    ),
    "streaming.md": Delivery(orders_and_payments, ({"matched": 1}, {"matched": 1})),
    "cdc-debezium.md": Delivery(
        envelopes,
        ({"changes": 3, "orders": 2, "orders_history": 2}, {"changes": 3, "orders": 1, "orders_history": 2}),
    ),
    "cursors.md": Delivery(olake, ({"changes": 1, "orders": 1}, {"changes": 1, "orders": 1})),
}
DATABASES = {"sql.md": "the tests of databases below", "cdc.md": "the test of a capture below"}
DATABASES["cdc-mariadb.md"] = DATABASES["cdc.md"]


def test_every_page_with_a_complete_project_has_a_delivery() -> None:
    complete = {page for page in PAGES if any(block.is_project for block in blocks(page))}
    # The project of extending.md needs the page's package: test_extending.py installs it.
    assert complete == DELIVERIES.keys() | DATABASES.keys() | {"extending.md"}


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("page", DELIVERIES)
def test_the_project_of_a_page_runs_in_dagster_and_in_the_shell(
    page: str, installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "odibi.yaml").write_text(project_of(page), encoding="utf-8")
    run_twice(installed, tmp_path, DELIVERIES[page])


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize(("kind", "page"), [("postgres", "cdc.md"), ("mariadb", "cdc-mariadb.md")])
def test_the_project_of_a_capture_makes_the_tables_of_the_database(
    databases: dict[str, Server | str], installed: Installed, tmp_path: Path, kind: str, page: str
) -> None:
    server = server_of(databases, kind)
    place = f"host: 127.0.0.1, port: {server.port}, database: {DATABASE}"
    text = project_of(page).replace("host: localhost, database: shop", place)
    # In MariaDB, the database stands where PostgreSQL has a schema.
    text = text.replace("shop.orders", f"{DATABASE}.orders").replace("shop.customer", f"{DATABASE}.customer")
    (tmp_path / "odibi.yaml").write_text(text, encoding="utf-8")
    for name in ("orders", "customers"):
        server.execute(f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        server.insert(name, (1, "a"), (2, "b"))

    def run() -> dict[str, int]:
        printed = installed.done("odi run --json", tmp_path, SHOP_PASSWORD=PASSWORD)
        return {one["node"]: one["rows_written"] for one in json.loads(printed)}

    try:
        assert run() == {"changes": 6, "orders": 2, "orders_history": 2}
        server.execute("UPDATE orders SET v = 'c' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        assert run()["orders_history"] == 2
        shown = json.loads(installed.done("odi show orders --json", tmp_path, SHOP_PASSWORD=PASSWORD))
        assert [(row["id"], row["v"]) for row in shown] == [(1, "c")]
    finally:
        if kind == "postgres":
            server.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
                "DROP PUBLICATION IF EXISTS odi_shop",
            )


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_project_of_a_database_fetches_its_driver_and_runs(
    kind: str, databases: dict[str, Server | str], installed: Installed, tmp_path: Path
) -> None:
    needs_drivers()
    shop = (of_postgres if kind == "postgres" else of_mariadb)(server_of(databases, kind))
    events, said = tmp_path / "events", SAID if kind == "mariadb" else {}
    events.mkdir()
    text = shop.project(project_of("sql.md"))
    if said:
        conf = {**said, "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events), **_PLAIN_LOG}
        text = text.replace("spark:\n", f"spark:\n  master: local[3]\n  conf: {json.dumps(conf)}\n")
    (tmp_path / "odibi.yaml").write_text(text, encoding="utf-8")
    written = {"orders": 2, "customers": 2, "shipments": 3}
    # The lag of orders reads those before the high-water mark once more.
    later = {"orders": 3, "customers": 2, "shipments": 1}
    deliveries = (written, later)
    case = Delivery(
        lambda _, part: shop.deliver(part), deliveries, shop.variables, reads_again=True, secrets=(PASSWORD,)
    )
    run_twice(installed, tmp_path, case)
    if said:
        wanted = said | {"spark.master": "local[3]", "spark.jars.packages": Mysql.package}
        sessions = [*map(settings_of, events.iterdir())]
        assert len(sessions) == 3, "one of Dagster, and two of the shell"
        assert all(wanted.items() <= settings.items() for settings in sessions)


SAID = {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "false", "spark.of.nobody": "a b"}
_PLAIN_LOG = {"spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}


def settings_of(event_log: Path) -> dict[str, str]:
    """The settings that a session had, by its own record."""
    for line in event_log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            return dict(event["Spark Properties"])
    raise AssertionError(f"{event_log} does not say")


@contextmanager
def bucket(name: str) -> Iterator[str]:
    """The address of an S3 server with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        secrets = {"aws_access_key_id": "a", "aws_secret_access_key": "s"}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **secrets)
        client.create_bucket(Bucket=name)
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.mark.usefixtures("jvm")
def test_a_project_whose_state_is_in_a_bucket_runs(installed: Installed, tmp_path: Path) -> None:
    with bucket("state") as address:
        keys = 'access_key_id: a, secret_access_key: "${STORE_SECRET}"'
        store = f"  store: {{type: s3, bucket: state, region: us-east-1, endpoint: '{address}', {keys}}}\n"
        text = project_of("README.md").replace("system: {connection: lake", f"{store}system: {{connection: store")
        (tmp_path / "odibi.yaml").write_text(text, encoding="utf-8")
        secret = "of+the/store"
        case = replace(DELIVERIES["README.md"], variables={"STORE_SECRET": secret}, secrets=(secret,))
        run_twice(installed, tmp_path, case)
    assert not (tmp_path / "lake" / "system").exists()
