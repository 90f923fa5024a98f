"""Where a key is, from landing file to mart, or where it was lost, and why."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import SourceError
from odi_assets.explain.batch import trace, with_places_above
from odi_assets.explain.spans import stays
from odi_assets.explain.stream import StreamExplainer
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict
from odi_assets_tests.nodes.support import Sandbox

PIPELINE = """\
- pipeline: p
  nodes:
  - name: raw
    read:
      connection: landing
      format: csv
      path: orders/*.csv
      schema: "id INT, customer STRING, amount INT, at TIMESTAMP"
      options: {header: "true"}
      incremental: files
    write: {connection: lake, path: raw, mode: append}
  - name: customers
    read: {connection: landing, format: csv, path: customers.csv, schema: "name STRING, city STRING",
           options: {header: "true"}}
    write: {connection: lake, path: customers}
  - name: orders
    inputs:
      raw: {node: raw, incremental: version}
    transform: {sql: "SELECT id AS order_id, customer, amount FROM raw WHERE amount > 0 AND customer <> 'nobody'"}
    write: {connection: lake, path: orders, mode: upsert, keys: [order_id]}
  - name: mart
    inputs: {orders: orders, customers: customers}
    transform:
      sql: |
        SELECT o.order_id, o.amount, c.city FROM orders o JOIN customers c ON c.name = o.customer
    write: {connection: lake, path: mart, mode: upsert, keys: [order_id]}
  - name: dearest
    inputs: {orders: orders}
    transform:
      sql: |
        SELECT order_id, customer FROM
        (SELECT *, row_number() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders) WHERE place = 1
    write: {connection: lake, path: dearest}
  - name: late
    read:
      connection: landing
      format: csv
      path: orders/*.csv
      schema: "id INT, customer STRING, amount INT, at TIMESTAMP"
      options: {header: "true"}
      incremental: {mode: stateful, column: at}
    write: {connection: lake, path: late, mode: append}
"""

PIPELINE += """\
  - name: big
    inputs: {raw: raw, customers: customers}
    transform:
      sql: |
        SELECT raw.id, upper(city) AS place, to_date(at) AS day
        FROM raw JOIN customers c ON c.name = raw.customer WHERE city <> 'Berlin'
    write: {connection: lake, path: big}
"""

PIPELINE += """\
  - name: live
    inputs: {raw: raw}
    stream: {output_mode: update, state_partitions: 1}
    transform: {sql: "SELECT id, count(*) AS n FROM raw GROUP BY id"}
    write: {connection: lake, path: live, mode: upsert, keys: [id]}
"""

HEAD = "id,customer,amount,at"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Two files were loaded, the second into all tables; a third has landed and was not read."""
    made = Sandbox(tmp_path_factory.mktemp("shop"), spark, PIPELINE)
    made.land("customers.csv", ["name,city", "ann,Bonn", "bob,Berlin"])
    first = ["1,ann,10,2024-01-01 10:00:00", "2,bob,0,2024-01-01 11:00:00", "3,dan,7,2024-01-01 12:00:00"]
    made.land("orders/1.csv", [HEAD, *first, "4,ann,99,2024-01-01 13:00:00"])
    for node in ("raw", "customers", "orders", "mart", "dearest", "late", "big", "live"):
        made.run(node)
    made.land("orders/2.csv", [HEAD, "5,bob,5,2024-01-01 09:00:00", "1,bob,12,2024-01-02 10:00:00"])
    for node in ("raw", "orders", "late", "big"):
        made.run(node)
    made.land("orders/3.csv", [HEAD, "6,ann,6,2024-01-03 10:00:00"])
    return made


def ask(shop: Sandbox, node: str, *keys: str, column: str = "order_id") -> dict[str, KeyExplanation]:
    found = trace(shop.project, shop.spark, shop.state, NodeKey("p", node), [column], keys)
    return {one.key[0]: one for one in found}


def test_a_key_is_followed_from_file_to_mart(shop: Sandbox) -> None:
    found = ask(shop, "mart", "1", "2", "3", "5", "6", "7")
    assert {key: one.verdict for key, one in found.items()} == {
        "1": KeyVerdict.PRESENT,
        "2": KeyVerdict.FILTERED,
        "3": KeyVerdict.LOST_BY_JOIN,
        "5": KeyVerdict.NOT_READ,
        "6": KeyVerdict.NOT_READ,
        "7": KeyVerdict.NOT_LANDED,
    }
    there = found["1"]
    assert [place.name for place in there.places] == ["landing:orders/*.csv", "p.raw", "p.orders", "p.mart"]
    assert there.places[0].files == ("orders/1.csv", "orders/2.csv")
    assert there.places[1].version == 0
    assert there.places[1].run_id is not None
    assert there.absent_since is None


def test_the_node_that_lost_it_is_named_with_the_reason(shop: Sandbox) -> None:
    found = ask(shop, "mart", "2", "3", "5", "6")
    assert found["2"].absent_since == "p.orders"
    assert "do not meet `raw.amount > 0`" in found["2"].sentence
    assert found["3"].absent_since == "p.mart"
    assert "p.customers has no row with name = 'dan'" in found["3"].sentence
    assert found["5"].absent_since == "p.mart"
    assert found["6"].absent_since == "p.raw"
    assert "orders/3.csv" in found["6"].sentence


def test_a_row_that_another_is_chosen_before_is_told_with_the_choice(shop: Sandbox) -> None:
    found = ask(shop, "dearest", "4", "5")
    assert (found["4"].verdict, found["5"].verdict) == (KeyVerdict.PRESENT, KeyVerdict.LEFT_OUT)
    assert "`place = 1`" in found["5"].sentence


def test_a_counterpart_that_is_filtered_and_a_computed_column_are_told(shop: Sandbox) -> None:
    found = ask(shop, "big", "2", "3", "1", column="id")
    assert {key: one.verdict for key, one in found.items()} == {
        "1": KeyVerdict.PRESENT,
        "2": KeyVerdict.LOST_BY_JOIN,
        "3": KeyVerdict.LOST_BY_JOIN,
    }
    assert "the rows of p.customers with name = 'bob' do not meet `c.city <> 'Berlin'`" in found["2"].sentence.replace(
        "customers.city", "c.city"
    )
    assert "p.customers has no row with name = 'dan'" in found["3"].sentence
    computed = ask(shop, "big", "PARIS", column="place")["PARIS"]
    assert computed.verdict is KeyVerdict.UNEXPLAINED
    assert "`place` is computed there" in computed.sentence
    # A day is not found among the times that it is made of, and that is no sign that it has not landed.
    assert ask(shop, "big", "2024-01-02", column="day")["2024-01-02"].verdict is KeyVerdict.UNEXPLAINED


def test_a_row_below_the_high_water_mark_came_late(shop: Sandbox) -> None:
    found = ask(shop, "late", "5", "1", column="id")
    assert (found["5"].verdict, found["1"].verdict) == (KeyVerdict.LATE, KeyVerdict.PRESENT)
    assert "`at` was not above the high-water mark" in found["5"].sentence


def test_a_key_of_which_some_rows_are_missing_is_not_all_there(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, PIPELINE)
    box.land("orders/1.csv", [HEAD, "1,ann,10,2024-01-02 10:00:00", "2,bob,5,2024-01-02 11:00:00"])
    box.run("late")
    box.land("orders/2.csv", [HEAD, "1,ann,12,2024-01-01 10:00:00"])
    box.run("late")
    found = ask(box, "late", "1", "2", column="id")
    assert "has 1 row of it" in found["1"].sentence
    assert "landing:orders/*.csv has 2 rows, and `odi audit p.late` says what is missing" in found["1"].sentence
    assert "audit" not in found["2"].sentence


def test_what_a_newer_row_replaced_is_told_from_what_was_deleted(shop: Sandbox) -> None:
    found = ask(shop, "orders", "10", "99", column="amount")
    assert (found["10"].verdict, found["99"].verdict) == (KeyVerdict.REPLACED, KeyVerdict.PRESENT)
    assert "put a newer row with the same order_id in its place" in found["10"].sentence
    gone = trace(shop.project, shop.spark, shop.state, NodeKey("p", "orders"), ["customer", "amount"], ["ann\x1f10"])
    assert gone[0].key == ("ann", "10")


def test_since_when_a_key_is_there_survives_rewritten_files(shop: Sandbox) -> None:
    shop.table("raw").table.optimize.compact()
    raw = ask(shop, "raw", "4", column="id")["4"]
    assert (raw.verdict, raw.places[-1].version) == (KeyVerdict.PRESENT, 0)


def test_a_source_that_cannot_be_looked_at_is_an_error_and_nothing_that_has_not_landed(shop: Sandbox) -> None:
    broken = shop.project.root / "landing" / "orders" / "gone.csv"
    broken.symlink_to("nowhere.csv")
    try:
        with pytest.raises(SourceError, match="cannot be listed"):
            ask(shop, "raw", "99", column="id")
    finally:
        broken.unlink()


def test_a_key_that_never_came_to_a_stream_is_followed_through_the_nodes_above_it(shop: Sandbox) -> None:
    explainer = StreamExplainer.of(shop.project, NodeKey("p", "live"), shop.spark)
    counted, unread, unknown = with_places_above(explainer, list(explainer.explain(["1", "6", "7"])))
    assert (counted.verdict, counted.places) == (KeyVerdict.COUNTED, ())
    assert (unread.verdict, unread.absent_since) == (KeyVerdict.NEVER_ARRIVED, "p.raw")
    assert [place.name for place in unread.places] == ["landing:orders/*.csv", "p.raw"]
    assert "p.raw has not read it yet" in unread.sentence
    assert "It has not landed" in unknown.sentence


DOUBLES = """\
- pipeline: p
  nodes:
  - name: doubles
    read: {connection: landing, format: parquet, path: in, incremental: files}
    write: {connection: lake, path: doubles, mode: append}
"""


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=["double", "float"])
def test_zero_is_one_key_whatever_its_sign_and_however_it_is_typed(
    tmp_path: Path, spark: SparkSession, kind: pa.DataType
) -> None:
    box = Sandbox(tmp_path, spark, DOUBLES)
    (tmp_path / "landing" / "in").mkdir(parents=True)
    for number, value in enumerate([0.0, -0.0, 5.0, 0.5]):
        rows = pa.table({"k": pa.array([value], kind)})
        pq.write_table(rows, tmp_path / "landing" / "in" / f"{number}.parquet")
    box.run("doubles")
    keys = ["0.0", "-0.0", "0", "5", "0.5", "-5"]
    answers = trace(box.project, spark, box.state, NodeKey("p", "doubles"), ["K"], keys)
    assert [[place.rows or 0 for place in one.places] for one in answers] == [[2, 2]] * 3 + [[1, 1]] * 2 + [[0, 0]]


def test_a_row_that_a_restore_brought_back_is_there_since_it_first_came(tmp_path: Path, spark: SparkSession) -> None:
    location = str(tmp_path / "t")
    for value in ("first", "undone", "undone too"):
        write_deltalake(location, pa.table({"id": [9], "v": [value]}), mode="overwrite")
    DeltaTable(location).restore(0)
    write_deltalake(location, pa.table({"id": [9], "v": ["last"]}), mode="overwrite")
    (stay,) = stays(spark, TableHandle.open(Location(location)), "CAST(id AS STRING)", ["9"]).values()
    assert (stay.rows, stay.since) == (1, 0)
