"""``odi init`` and ``odi explain``, as docs/streaming.md shows them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.sample.orders_payments import json_files
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.pages import ROOT, is_as_printed

SECTION = "## Where is my row?"
LANDING = ROOT / "data" / "landing" / "orders_payments"


def commands() -> Iterator[tuple[str, str]]:
    """The commands of the section, with what they print."""
    text = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
    section = text[text.index(SECTION) :].split("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL):
        yield from re.findall(r"^\$ odi (.*)\n((?:[^$].*\n|\n)*)", block, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the section's commands were typed that make projects and run them."""
    del spark
    root = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("ODI_SPARK_LOG_LEVEL", "fatal")
        patch.chdir(root)
        for command, _ in commands():
            if command.startswith(("run", "init")):
                assert main(shlex.split(command)) == 0, command
    return root


def test_the_commands_of_the_document_print_what_it_shows(
    example: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(example)
    for command, printed in commands():
        if not command.startswith(("run", "init")):
            answer = odi(*shlex.split(command))
            assert (answer.code, answer.err) == (0, ""), command
            assert is_as_printed(answer.out, printed), f"$ odi {command}\n{answer.out}"


def test_keys_come_from_files_and_tables(
    example: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(example)
    keys = tmp_path / "keys.txt"
    keys.write_text("order_id\nord-43\nord-1000\n", encoding="utf-8")
    answer = odi("explain", "paid_orders", "--keys-from", str(keys), "--json", "--no-state")
    assert answer.code == 0
    told = json.loads(answer.out)
    assert [(one["key"], one["verdict"]) for one in told] == [("ord-43", "MATCHED"), ("ord-1000", "NO_COUNTERPART")]
    assert told[0]["rows"][0]["input"] == "orders"
    answer = odi("explain", "paid_orders", "--keys-from", "lake:paid_orders", "--json", "--no-state")
    assert {one["verdict"] for one in json.loads(answer.out)} == {"MATCHED"}
    # A file is meant before a node of the same name.
    shutil.copy(keys, "by_customer")
    answer = odi("explain", "paid_orders", "--keys-from", "by_customer", "--json", "--no-state")
    Path("by_customer").unlink()
    assert [one["key"] for one in json.loads(answer.out)] == ["ord-43", "ord-1000"]


def test_a_torn_state_leaves_answers_and_a_way_back(
    example: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "torn"
    shutil.copytree(example, root)
    monkeypatch.chdir(root)
    # What the stream has read is where it was: only its lake is a copy.
    file = root / "odibi.yaml"
    file.write_text(file.read_text("utf-8").replace("base_path: landing", f"base_path: {example / 'landing'}"), "utf-8")
    state = root / "lake" / "paid_orders" / "_odi_stream" / "state" / "0" / "0" / "left-keyWithIndexToValue"
    # All of it since batch 4: Spark makes snapshots when it likes, and goes back to the last whole one.
    torn = [file for file in state.glob("[0-9]*.*") if int(re.split(r"[._]", file.name)[0]) > 4]
    assert "5.changelog" in {file.name for file in torn}
    for file in torn:
        file.write_bytes(file.read_bytes()[:-7])
    answer = odi("explain", "paid_orders", "--key", "ord-43")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "ord-43: MATCHED")
    assert "not compared with the query's state: " in answer.err
    assert "cannot be rebuilt" in answer.err
    assert " is torn" in answer.err
    assert odi("explain", "paid_orders", "--key", "ord-43", "--state").code == 1
    late = example / "landing" / "payments" / "0099.json"
    late.write_text("", "utf-8")
    answer = odi("run", "--node", "paid_orders")
    assert answer.code == 1
    assert "cannot load the state" in answer.err
    assert "odi checkpoint files orders_payments.paid_orders" in answer.err
    assert "odi run orders_payments --node paid_orders --full-refresh" in answer.err
    back = re.search(r"odi (state rewind orders_payments\.paid_orders --to-batch 3)\b", answer.err)
    assert back is not None
    assert odi(*back[1].split(), "--yes").code == 0
    assert odi("run", "--node", "paid_orders").code == 0
    answer = odi("explain", "paid_orders", "--key", "ord-43", "--key", "ord-574")
    assert (answer.code, answer.err) == (0, "")
    late.unlink()


def test_what_cannot_be_asked_is_said_to_be_so(example: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)
    for arguments, text in (
        (["explain", "paid_orders"], "no key is named"),
        (["explain", "paid_order", "--key", "x"], "there is no node named `paid_order`"),
        (["explain", "paid_orders", "--keys-from", "nowhere"], "there is no file and no table nowhere"),
        (["explain", "-c", "shop/odibi.yaml", "orders", "--key", "x", "--state"], "shop.orders is no stream"),
        (["stream", "explain", "paid_orders"], "here it is: odi explain NODE --key KEY"),
        (["explain", "--key", "x"], "no node is named"),
        (["explain", "paid_orders", "--key", "x", "--since", "1"], "--since goes only with --checkpoint"),
        (["explain", "paid_orders", "--key", "x", "--checkpoint", "lake"], "NODE does not go with --checkpoint"),
        (["explain", "-c", "shop/odibi.yaml", "orders", "--key", "x"], "--key COLUMN=VALUE"),
    ):
        answer = odi(*arguments)
        assert (answer.code, answer.out) == (2, ""), arguments
        assert text in answer.err, answer.err


def test_the_samples_orders_and_payments_are_those_of_the_generator() -> None:
    landed = {str(path.relative_to(LANDING)): path.read_text(encoding="utf-8") for path in LANDING.glob("*/*.json")}
    assert landed == dict(json_files())


def test_the_example_of_a_database_loads_each_order_once(spark: SparkSession, odi: Odi, tmp_path: Path) -> None:
    del spark
    assert odi("init", "--example", "sql").code == 0
    file = tmp_path / "odibi.yaml"
    # The suite's JVM was started in another folder.
    file.write_text(file.read_text(encoding="utf-8").replace("derby:", f"derby:{tmp_path}/"), encoding="utf-8")
    assert odi("run").code == 0
    gateway = SparkSession.active()._jvm
    assert gateway is not None
    address = f"jdbc:derby:{tmp_path}/shop_db"
    connection = gateway.java.sql.DriverManager.getConnection(address)
    connection.createStatement().execute("INSERT INTO orders VALUES (5, 'dan', 7.50)")
    connection.close()
    answer = odi("run", "--json")
    written = {node["node"]: node["rows_written"] for node in json.loads(answer.out)}
    assert written == {"orders": 1, "spending": 4}
