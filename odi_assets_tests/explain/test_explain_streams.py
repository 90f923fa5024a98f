"""The fate of every row and the verdict of every key, against a model that follows each row by itself."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from benchmarks.streaming.truth import Truth, clean_log, disagreements, truth, wrongly_decided
from odi_assets.config.graph import NodeKey
from odi_assets.explain.batch import trace
from odi_assets.explain.stream import StreamExplainer, explain
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets.nodes.project import Project
from odi_assets.sample.orders_payments import batches, write
from odi_assets_tests.nodes.support import Sandbox

ORDERS, IN_FILE = 1_200, 160

PIPELINE = """\
- pipeline: p
  nodes:
  - name: paid
    inputs:
      orders:
        read: {{connection: landing, format: json, path: orders/*.json,
               schema: "order_id STRING, customer STRING, amount DOUBLE, status STRING, ordered_at TIMESTAMP"}}
      payments:
        read: {{connection: landing, format: json, path: payments/*.json,
               schema: "payment_id STRING, order_id STRING, paid_at TIMESTAMP"}}
    stream:
      inputs:
        orders: {{where: status <> 'test', watermark: {{column: ordered_at, delay: 2m}}, max_files_per_batch: 1}}
        payments: {{watermark: {{column: paid_at, delay: 2m}}, max_files_per_batch: 1}}
      state_partitions: 1
      {settings}
    transform:
      sql: |
        WITH bought AS (SELECT order_id AS bought, customer, ordered_at FROM orders)
        SELECT bought AS order_id, customer, payment_id, paid_at
        FROM bought JOIN payments p ON p.order_id = bought
        WHERE paid_at BETWEEN ordered_at - INTERVAL 5 MINUTES AND ordered_at + INTERVAL 5 MINUTES
    write: {{connection: lake, path: paid, mode: append}}
  - name: bought
    inputs: {{paid: paid}}
    transform: {{sql: "SELECT order_id AS bought, customer FROM paid"}}
    write: {{connection: lake, path: bought}}
"""
PAID = NodeKey("p", "paid")


@pytest.fixture(scope="module")
def true() -> Truth:
    return truth(batches(ORDERS, IN_FILE))


@pytest.fixture(scope="module", params=["{state_store: rocksdb, retain_batches: 2}", "{state_store: hdfs}"])
def sandbox(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Both inputs, read file by file."""
    root = tmp_path_factory.mktemp("orders")
    settings = request.param.strip("{}").replace(", ", "\n      ")
    made = Sandbox(root, spark, PIPELINE.format(settings=settings))
    write(root / "landing", ORDERS, IN_FILE)
    made.run("paid")
    return made


class Moved(NamedTuple):
    """A copy of a sandbox in another folder."""

    project: Project
    spark: SparkSession


def answers(sandbox: Sandbox | Moved, keys: list[str]) -> Iterator[KeyExplanation]:
    return StreamExplainer.of(sandbox.project, PAID, sandbox.spark).explain(keys)


def test_every_verdict_and_every_fate_is_true(sandbox: Sandbox, true: Truth) -> None:
    found = list(answers(sandbox, [*true.keys, "ord-99999"]))
    assert disagreements(true, found) == []
    counts = Counter(one.verdict for one in found)
    assert counts == Counter(key.verdict for key in true.keys.values()) + Counter(["NO_COUNTERPART"])
    assert min(counts.values()) > 10
    assert {one.table_version for one in found if one.verdict == "MATCHED"} <= {*range(20)}


def test_the_published_case(sandbox: Sandbox) -> None:
    asked = ["ord-43", "ord-574", "ord-1000", "ord-1001"]
    found = {one.key[0]: one for one in answers(sandbox, asked)}
    assert [found[key].verdict for key in asked] == ["MATCHED", "OUT_OF_WINDOW", "NO_COUNTERPART", "NO_COUNTERPART"]
    assert found["ord-43"].batch == 0
    assert found["ord-574"].condition == "payments.paid_at <= orders.ordered_at + INTERVAL '5' MINUTE"
    assert found["ord-574"].sentence.endswith("is not met, by 3 min.")


def test_the_state_and_its_changes_agree_with_every_answer(sandbox: Sandbox, true: Truth) -> None:
    explainer = StreamExplainer.of(sandbox.project, PAID, sandbox.spark)
    right = {one.key[0]: one for one in explainer.explain(list(true.keys))}
    # Every other answer is made wrong: the state is read once for all.
    given = [replace(one, rows=()) if place % 2 else one for place, one in enumerate(right.values())]
    confirmed = {one.key[0]: one for one in explainer.confirmed(given)}
    assert [confirmed[one.key[0]] for one in given[::2]] == given[::2]
    said = {one.key[0]: confirmed[one.key[0]].disagreements for one in given[1::2]}
    waiting = [key for key in said if any(row.fate == "WAITING" for row in true.keys[key].rows[0])]
    assert len(waiting) > 20
    assert all("rows of orders with this key, not 0" in said[key][0] for key in waiting)
    assert any("the change feed says that batch" in text for texts in said.values() for text in texts)


def test_keys_that_are_almost_the_same_are_named(sandbox: Sandbox) -> None:
    capitals, blanks = answers(sandbox, ["ord-25", "ord-45"])
    assert capitals.similar == ("payments has 'ORD-25' in payments/0000.json (other capitals)",)
    assert blanks.similar == ("payments has 'ord-45 ' in payments/0000.json (other blanks)",)


def test_a_row_without_a_key_is_found_by_another_column(sandbox: Sandbox) -> None:
    explainer = StreamExplainer.of(sandbox.project, PAID, sandbox.spark)
    keys, found = explainer.keys_where("payment_id", "pay-75")
    assert keys == []
    assert [(one.verdict, one.rows[0].file) for one in found] == [("NULL_KEY", "payments/0000.json")]
    assert explainer.keys_where("payment_id", "pay-43") == (["ord-43"], [])


def test_a_key_of_a_batch_node_is_followed_through_the_stream_above_it(sandbox: Sandbox) -> None:
    sandbox.run("bought")

    def asked(column: str, *keys: str) -> list[KeyExplanation]:
        return trace(sandbox.project, sandbox.spark, sandbox.state, NodeKey("p", "bought"), [column], keys)

    there, late, unknown = asked("bought", "ord-43", "ord-574", "ord-99999")
    assert there.verdict == "PRESENT"
    names = ["landing:orders/*.json", "landing:payments/*.json", "p.paid", "p.bought"]
    assert [place.name for place in there.places] == names
    assert there.places[1].files == ("payments/0000.json",)
    (of_stream,) = answers(sandbox, ["ord-574"])
    assert (late.verdict, late.absent_since) == (of_stream.verdict, "p.paid")
    assert late.sentence == f"p.paid has no row of it: {of_stream.sentence}"
    assert unknown.verdict == "NO_COUNTERPART"
    (other,) = asked("customer", "nobody")
    assert (other.verdict, other.absent_since) == ("UNEXPLAINED", "p.paid")
    assert "odi explain p.paid --key COLUMN=VALUE" in other.sentence


def test_answers_are_a_dataframe(sandbox: Sandbox) -> None:
    (row,) = explain(sandbox.project, "p.paid", ["ord-174"], sandbox.spark).collect()
    assert (row.key, row.verdict) == ("ord-174", "OUT_OF_WINDOW")
    assert [(one.input, one.fate) for one in row.rows] == [("orders", "EXPIRED"), ("payments", "EXPIRED")]


def test_what_lands_later_is_not_read_yet(sandbox: Sandbox) -> None:
    landed = sandbox.root / "landing" / "payments" / "9999.json"
    landed.write_text('{"payment_id": "x", "order_id": "ord-1200", "paid_at": "2024-01-01T10:20:30Z"}\n', "utf-8")
    try:
        (found,) = answers(sandbox, ["ord-1200"])
    finally:
        landed.unlink()
    assert found.verdict == "COUNTERPART_NOT_READ"


def test_the_answers_outlive_the_tables_log(sandbox: Sandbox, true: Truth, tmp_path: Path) -> None:
    """And without `meta_batches`, what cannot be told is said to be so, and nothing wrong is."""
    for folder in ("lake", "landing"):
        shutil.copytree(sandbox.root / folder, tmp_path / folder, copy_function=shutil.copy2)
    shutil.copy(sandbox.root / "odibi.yaml", tmp_path)
    copied = Moved(Project.load(tmp_path / "odibi.yaml"), sandbox.spark)
    clean_log(tmp_path / "lake" / "paid")
    _move_paths(tmp_path / "lake" / "paid" / "_odi_stream", sandbox.root, tmp_path)
    assert disagreements(true, answers(copied, list(true.keys))) == []
    shutil.rmtree(tmp_path / "lake" / "system" / "meta_batches")
    found = list(answers(copied, list(true.keys)))
    kept = len(list((tmp_path / "lake" / "paid" / "_odi_stream" / "offsets").glob("[0-9]*")))
    assert wrongly_decided(true, found, kept > 5) == []
    assert any(one.verdict == "UNDECIDABLE" for one in found) is (kept <= 5)


def _move_paths(checkpoint: Path, old: Path, new: Path) -> None:
    for log in checkpoint.glob("sources/*/*"):
        if not log.name.startswith("."):
            log.write_text(log.read_text().replace(str(old), str(new)))
