"""Keys that pass several stateful operators: each verdict has to be what Spark did, as the table shows it."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.explain.stream import StreamExplainer
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets_tests.nodes.support import Sandbox

ORDERS, FILES, SECONDS = 120, 3, 400
NODE = """\
  - name: {name}
    inputs:
      orders:
        read: {{connection: landing, format: json, path: orders/*.json,
               schema: "order_id STRING, customer STRING, amount INT, ordered_at TIMESTAMP"}}
      payments:
        read: {{connection: landing, format: json, path: payments/*.json,
               schema: "payment_id STRING, order_id STRING, paid_at TIMESTAMP"}}
      ships:
        read: {{connection: landing, format: json, path: ships/*.json,
               schema: "ship_id STRING, payment_id STRING, sent_at TIMESTAMP"}}
    stream:
      inputs:
        orders: {{where: amount > 0, watermark: {{column: ordered_at, delay: 1m}}, max_files_per_batch: 1}}
        payments: {{watermark: {{column: paid_at, delay: 1m}}, max_files_per_batch: 1}}
        ships: {{watermark: {{column: sent_at, delay: 1m}}, max_files_per_batch: 1}}
      state_partitions: 1
    transform: {{function: "chains:{name}"}}
    write: {{connection: lake, path: {name}, mode: append}}
"""
QUERIES = """
from pyspark.sql.functions import expr, window

PAID = "a.order_id = p.order_id AND paid_at BETWEEN ordered_at - INTERVAL 2 MINUTES AND ordered_at + INTERVAL 3 MINUTES"
SENT = "b.payment_id = s.payment_id AND sent_at BETWEEN paid_at AND paid_at + INTERVAL 4 MINUTES"


def joined(orders, payments):
    both = orders.alias("a").join(payments.alias("p"), expr(PAID))
    return both.select("a.order_id", "customer", "payment_id", "ordered_at", "paid_at")


def once_joined(orders, payments, ships):
    once = payments.dropDuplicatesWithinWatermark(["payment_id"]).where("order_id <> 'ord-7'")
    return joined(orders, once).drop("paid_at")


def joined_counted(orders, payments, ships):
    windows = joined(orders, payments).drop("paid_at").groupBy("customer", window("ordered_at", "5 minutes")).count()
    return windows.selectExpr("customer", "window.start", "count")


def joined_joined(orders, payments, ships):
    first = joined(orders, payments).drop("ordered_at").alias("b")
    return first.join(ships.alias("s"), expr(SENT)).select("order_id", "ship_id")
"""


def at(seconds: float) -> str:
    return f"{datetime(2024, 1, 1, 10, tzinfo=UTC) + timedelta(seconds=int(seconds)):%Y-%m-%dT%H:%M:%SZ}"


def land_events(made: Sandbox) -> None:
    """Orders, payments and shipments, some of them late, filtered, twice, or with another's key."""
    chance = random.Random(4)
    files: dict[tuple[str, int], list[str]] = defaultdict(list)

    def put(kind: str, time: float, row: dict[str, object]) -> None:
        late = chance.choice([0, 0, 0, 0, 0, 0, 1, 2])
        files[kind, min(FILES, max(0, int(time / SECONDS)) + late)].append(json.dumps(row))

    for number in range(ORDERS):
        ordered, name = chance.uniform(0, FILES * SECONDS), f"ord-{number}"
        order = {
            "order_id": name,
            "customer": f"c{number % 7}",
            "amount": chance.randint(0, 5),
            "ordered_at": at(ordered),
        }
        put("orders", ordered, order)
        for copy in range(chance.choice([0, 1, 1, 2])):
            paid = ordered + chance.uniform(-200, 300)
            payment = f"pay-{max(0, number - 1)}-0" if chance.random() < 0.1 else f"pay-{number}-{copy}"
            put("payments", paid, {"payment_id": payment, "order_id": name, "paid_at": at(paid)})
            if chance.random() < 0.3:
                put("payments", paid + 200, {"payment_id": payment, "order_id": name, "paid_at": at(paid + 60)})
            sent = paid + chance.uniform(-60, 300)
            put("ships", sent, {"ship_id": f"s{number}", "payment_id": payment, "sent_at": at(sent)})
    end = {"order_id": "end", "customer": "end", "amount": 1, "ordered_at": at(FILES * SECONDS)}
    files["orders", FILES].append(json.dumps(end))
    files["payments", FILES].append(
        json.dumps({"payment_id": "end", "order_id": "end", "paid_at": at(FILES * SECONDS)})
    )
    files["ships", FILES].append(json.dumps({"ship_id": "end", "payment_id": "end", "sent_at": at(FILES * SECONDS)}))
    for (kind, number), lines in sorted(files.items()):
        made.land(f"{kind}/{number}.json", lines)


@pytest.fixture(scope="module")
def sandbox(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    root = tmp_path_factory.mktemp("chains")
    (root / "chains.py").write_text(QUERIES, encoding="utf-8")
    names = ("once_joined", "joined_counted", "joined_joined")
    made = Sandbox(root, spark, "- pipeline: p\n  nodes:\n" + "".join(NODE.format(name=name) for name in names))
    land_events(made)
    for name in names:
        made.run(name)
    return made


def ask(sandbox: Sandbox, node: str) -> dict[str, KeyExplanation]:
    explainer = StreamExplainer.of(sandbox.project, NodeKey("p", node), sandbox.spark)
    found = explainer.confirmed(explainer.explain([f"ord-{number}" for number in range(ORDERS)]))
    assert {one.disagreements for one in found} == {()}
    return {one.key[0]: one for one in found}


@pytest.mark.parametrize("node", ["once_joined", "joined_joined"])
def test_a_key_is_matched_if_and_only_if_the_table_has_it(sandbox: Sandbox, node: str) -> None:
    found = ask(sandbox, node)
    written = {row[0] for row in sandbox.rows(node)} - {"end"}
    unsure = {key for key, one in found.items() if one.verdict == "UNDECIDABLE"}
    assert {key for key, one in found.items() if one.verdict == "MATCHED"} - unsure == written - unsure
    counts = Counter(one.verdict.value for one in found.values())
    assert {"MATCHED", "OUT_OF_WINDOW", "NO_COUNTERPART", "COUNTERPART_LATE", "COUNTERPART_FILTERED"} <= {*counts}
    assert len(unsure) < 5
    assert all(one.lost for key, one in found.items() if key in unsure)


def test_duplicates_that_another_keys_row_makes_are_found(sandbox: Sandbox) -> None:
    found = ask(sandbox, "once_joined")
    left_out = [row for one in found.values() for row in one.rows if row.fate == "DUPLICATE_OF"]
    assert len(left_out) > 5
    assert all(row.duplicate_of for row in left_out)
    filtered = [row for row in found["ord-7"].rows if row.input == "payments"]
    assert not {row.fate for row in filtered} & {"WAITING", "EXPIRED"}


def test_windows_behind_a_join_have_the_rows_that_are_counted(sandbox: Sandbox) -> None:
    counted: Counter[tuple[str, datetime]] = Counter()
    found = ask(sandbox, "joined_counted")
    for key, one in found.items():
        for row in one.rows:
            if row.fate == "COUNTED":
                assert row.time is not None
                start = row.time - timedelta(minutes=row.time.minute % 5, seconds=row.time.second)
                counted[f"c{int(key[4:]) % 7}", start.replace(tzinfo=None)] += 1
    rows = sandbox.rows("joined_counted")
    assert counted == {(row[0], row[1].replace(tzinfo=None)): row[2] for row in rows if row[0] != "end"}
    assert {"COUNTED", "PENDING", "OUT_OF_WINDOW", "NO_COUNTERPART"} <= {one.verdict for one in found.values()}
    pending = next(one for one in found.values() if one.verdict == "PENDING")
    assert pending.sentence.startswith("Joined: ")
    assert "that is written when the watermark passes" in pending.sentence
