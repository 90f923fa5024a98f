"""What a query does with a row, read from Spark's plan of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odi_assets.spark.own_session import own_session
from odi_assets.spark.plans.definition import QueryDefinition
from odi_assets.spark.plans.plan import InputShape, read_definition, read_outline

ORDERS = "order_id STRING, customer STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP, status STRING"
PAYMENTS = "payment_id STRING, order_id STRING, paid_at TIMESTAMP"


Transform = Callable[[Mapping[str, DataFrame]], DataFrame]


def sql(spark: SparkSession, text: str) -> Transform:
    def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return spark.sql(text)

    return transform


def read(
    spark: SparkSession, transform: Callable[[Mapping[str, DataFrame]], DataFrame], mode: str = "append"
) -> QueryDefinition:
    shapes = {
        "orders": InputShape(
            StructType.fromDDL(ORDERS), "status <> 'test' AND amount > 0", ("ordered_at", "2 minutes")
        ),
        "payments": InputShape(StructType.fromDDL(PAYMENTS), None, ("paid_at", "2 minutes")),
    }
    with own_session(spark):
        found = read_definition(spark, shapes, transform, mode, "p.n")
    assert QueryDefinition.from_json(json.loads(json.dumps(found.to_json()))) == found
    return found


def test_a_join_behind_other_names_and_filters(spark: SparkSession) -> None:
    text = """
        WITH good AS (SELECT upper(order_id) AS oid, customer, ordered_at FROM orders WHERE customer IS NOT NULL)
        SELECT g.oid, paid_at AS paid FROM good g JOIN payments p ON g.oid = p.order_id AND payment_id <> 'x'
        WHERE paid_at BETWEEN ordered_at - INTERVAL 5 MINUTES AND ordered_at + INTERVAL 1 HOUR"""
    found = read(spark, sql(spark, text))
    orders, payments = found.inputs
    assert (found.kind, found.key_names, found.output_key, found.outer) == ("join", ("order_id",), ("oid",), ())
    assert (orders.key, payments.key) == (("upper(orders.order_id)",), ("payments.order_id",))
    texts = {condition.text for condition in orders.conditions}
    assert {"orders.status <> 'test'", "orders.amount > 0.00", "orders.customer IS NOT NULL"} <= texts
    assert "payments.payment_id <> 'x'" in {condition.text for condition in payments.conditions}
    assert [condition.null_of_key for condition in payments.conditions].count(True) == 1
    assert [condition.text for condition in found.conditions] == [
        "payments.paid_at >= orders.ordered_at - INTERVAL '5' MINUTE",
        "payments.paid_at <= orders.ordered_at + INTERVAL '1' HOUR",
    ]
    # An order waits for payments up to an hour after it, a payment for orders up to five minutes after it.
    assert (orders.state_range_ms, payments.state_range_ms) == (3_600_001, 300_001)


def test_a_function_of_dataframes_and_an_outer_join(spark: SparkSession) -> None:
    def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql.functions import expr

        orders, payments = frames["orders"].alias("a"), frames["payments"].alias("b")
        same = "a.order_id = b.order_id AND b.paid_at >= a.ordered_at AND b.paid_at < a.ordered_at + INTERVAL 1 HOUR"
        return orders.join(payments, expr(same), "left_outer")

    found = read(spark, transform)
    assert found.outer == ("orders",)
    assert [one.state_range_ms for one in found.inputs] == [3_600_000, 1]


def test_a_stream_joined_with_itself(spark: SparkSession) -> None:
    text = """SELECT a.order_id FROM orders a JOIN orders b ON a.order_id = b.order_id
        AND a.ordered_at BETWEEN b.ordered_at AND b.ordered_at + INTERVAL 1 MINUTE"""
    found = read(spark, sql(spark, text))
    assert [(one.view, one.source) for one in found.inputs] == [("orders", "orders"), ("orders_2", "orders")]


@pytest.mark.parametrize(
    ("mode", "waits", "late"), [("append", True, True), ("update", False, True), ("complete", False, False)]
)
def test_windows(spark: SparkSession, mode: str, waits: bool, late: bool) -> None:
    text = "SELECT customer, window(ordered_at, '10 minutes', '5 minutes') AS w, count(*) FROM orders GROUP BY 1, 2"
    found = read(spark, sql(spark, text), mode)
    assert (found.kind, found.key_names, len(found.windows)) == ("aggregation", ("customer",), 2)
    assert (found.waits_for_watermark, found.inputs[0].late_time is not None) == (waits, late)


@pytest.mark.parametrize(
    ("columns", "within", "range_ms", "expires"),
    [
        (["order_id", "ordered_at"], False, 0, False),
        (["order_id"], True, 120_000, True),
        (["order_id"], False, None, False),
    ],
)
def test_deduplications(
    spark: SparkSession, columns: list[str], within: bool, range_ms: int | None, expires: bool
) -> None:
    def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
        orders = frames["orders"]
        return orders.dropDuplicatesWithinWatermark(columns) if within else orders.dropDuplicates(columns)

    found = read(spark, transform)
    assert (found.kind, found.key_names, found.expires) == ("deduplication", ("order_id",), expires)
    assert (found.inputs[0].state_range_ms, len(found.identity)) == (range_ms, len(columns))


def test_conditions_behind_an_aggregation_or_a_deduplication(spark: SparkSession) -> None:
    text = """SELECT customer, sum(amount) AS paid FROM orders GROUP BY customer
        HAVING sum(amount) > 4 AND count(*) < 9"""
    found = read(spark, sql(spark, text), "update")
    assert sorted(condition.text for condition in found.withheld)[:2] == ["COUNT(1) < 9", "SUM(orders.amount) > 4.00"]
    assert found.inputs[0].columns == ("amount", "customer", "ordered_at", "status")
    first = "(SELECT DISTINCT order_id, customer FROM orders)"
    found = read(spark, lambda frames: frames["orders"].dropDuplicates(["order_id"]).where("amount > 3"))
    assert [condition.text for condition in found.withheld] == ["orders.amount > 3.00"]
    assert read(spark, sql(spark, f"SELECT * FROM {first} WHERE customer = 'ann'"), "update").withheld == ()


JOINED = (
    "orders o JOIN payments p ON o.order_id = p.order_id "
    "AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
)


@pytest.mark.parametrize(
    ("text", "kind", "beyond"),
    [
        (
            "SELECT customer, count(*) FROM orders GROUP BY customer, window(ordered_at, '2 hours', '1 hour') "
            "HAVING count(*) > 1",
            "aggregation",
            "the condition `COUNT(1) > 1`",
        ),
        (
            "SELECT customer, count(*) FROM orders GROUP BY customer, session_window(ordered_at, '1 hour') "
            "HAVING count(*) > 1",
            "aggregation",
            "the condition `COUNT(1) > 1`",
        ),
        (
            "SELECT o.order_id FROM orders o LEFT JOIN payments p ON o.order_id = p.order_id AND paid_at BETWEEN "
            "ordered_at AND ordered_at + INTERVAL 1 HOUR WHERE p.payment_id IS NULL",
            "join",
            "the condition `payments.payment_id IS NULL`",
        ),
        (
            "SELECT window(window_time(w), '1 hour') AS h, count(*) FROM (SELECT customer, window(ordered_at, "
            "'5 minutes') AS w FROM orders GROUP BY 1, 2) GROUP BY 1",
            "aggregation",
            "an aggregation",
        ),
        (
            f"SELECT customer, count(*) FROM {JOINED} GROUP BY customer, session_window(ordered_at, '1 hour')",
            "join",
            "an aggregation",
        ),
        (
            "SELECT order_id, count(*) FROM (SELECT order_id, ordered_at FROM orders UNION ALL "
            "SELECT order_id, paid_at FROM payments) GROUP BY order_id, window(ordered_at, '1 hour')",
            "rows",
            "a union, an aggregation",
        ),
    ],
)
def test_what_cannot_be_followed_is_told_in_words(spark: SparkSession, text: str, kind: str, beyond: str) -> None:
    found = read(spark, sql(spark, text))
    assert (found.kind, found.beyond) == (kind, beyond)


def test_a_union_has_the_key_of_what_follows_it(spark: SparkSession) -> None:
    text = """SELECT id, count(*) FROM (SELECT order_id AS id, ordered_at AS at FROM orders WHERE customer = 'ann'
        UNION ALL SELECT order_id, paid_at FROM payments) GROUP BY id, window(at, '1 hour')"""
    orders, payments = read(spark, sql(spark, text)).inputs
    assert (orders.key, payments.key) == (("orders.order_id",), ("payments.order_id",))
    assert "orders.customer = 'ann'" in {condition.text for condition in orders.conditions}
    assert payments.late_time is not None
    assert "payments.paid_at" in payments.late_time


def test_operators_in_a_row(spark: SparkSession) -> None:
    ships = f"""SELECT a.order_id, ship.payment_id FROM (SELECT o.order_id, payment_id, paid_at FROM {JOINED}) a
        JOIN payments ship ON a.payment_id = ship.payment_id
        AND ship.paid_at BETWEEN a.paid_at AND a.paid_at + INTERVAL 10 MINUTES"""
    found = read(spark, sql(spark, ships))
    assert (found.kind, found.key_names, found.beyond) == ("join", ("order_id",), "")
    assert found.then is not None
    pairs, other = found.then.inputs
    # Behind a join that waits an hour and a millisecond for payments, the watermark is as far behind.
    assert (pairs.source, pairs.shift_ms, other.shift_ms) == ("", 3_600_001, 3_600_001)
    assert (found.then.key_names, found.then.output_key) == (("payment_id",), ("payment_id",))
    assert "payment_id" in found.inputs[1].columns

    counted = f"SELECT customer, count(*) FROM {JOINED} GROUP BY customer, window(ordered_at, '5 minutes')"
    found = read(spark, sql(spark, counted))
    assert found.then is not None
    assert (found.then.kind, found.then.inputs[0].shift_ms, len(found.then.windows)) == ("aggregation", 3_600_001, 1)

    def once(frames: Mapping[str, DataFrame]) -> DataFrame:
        return (
            frames["orders"].dropDuplicatesWithinWatermark(["order_id"]).where("amount > 3").groupBy("customer").count()
        )

    found = read(spark, once, "update")
    assert found.inputs[0].once is not None
    assert found.inputs[0].once.identity == ("orders.order_id",)
    assert [one.text for one in found.inputs[0].once.conditions] == ["orders.amount > 3.00"]


def test_the_outline_of_any_query(spark: SparkSession) -> None:
    schemas = {"orders": StructType.fromDDL(ORDERS), "payments": StructType.fromDDL(PAYMENTS)}
    text = """SELECT id, customer, total FROM (
        SELECT o.order_id AS id, customer, sum(amount) OVER (PARTITION BY customer) AS total,
               row_number() OVER (PARTITION BY customer ORDER BY amount) AS place
        FROM orders o LEFT SEMI JOIN payments p ON p.order_id = o.order_id WHERE status = 'new') WHERE place = 1"""
    with own_session(spark):
        found = read_outline(spark, schemas, sql(spark, text))
    assert found.columns == {"id": (("orders", "order_id"),), "customer": (("orders", "customer"),), "total": ()}
    assert "orders.status = 'new'" in {condition.text for condition in found.conditions["orders"]}
    assert [(one.views, one.other("orders"), one.other("payments")) for one in found.equalities] == [
        (("orders", "payments"), 1, None)
    ]
    assert found.choices == ("place = 1",)
