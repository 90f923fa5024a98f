"""A source that is followed in another way: whatever the former definition left out, adoption leads on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.sources.source import Source
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: ev
    read: {connection: landing, format: json, path: e/*.json, schema: "id BIGINT, seq BIGINT, at TIMESTAMP",
           incremental: FILES}
    write: {connection: lake, path: ev, mode: append, keys: [id]}
  - name: below
    inputs: {ev: {node: ev, incremental: TABLE}}
    write: {connection: lake, path: below, mode: append, keys: [id]}
"""
OF_FILES = (
    "files",
    "{mode: stateful, column: seq, on_null: exclude}",
    "{mode: stateful, column: seq, on_null: include}",
    "{mode: stateful, column: seq, on_null: exclude, watermark_lag: 1}",
    "{mode: stateful, column: at}",
)


def row(number: int, seq: int | None, at: datetime | None = None) -> str:
    when = at or datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    return f'{{"id": {number}, "seq": {"null" if seq is None else seq}, "at": "{when.isoformat()}"}}'


def project(root: Path, spark: SparkSession, files: str, table: str = "version", mode: str = "keys: [id]") -> Sandbox:
    text = NODE.replace("FILES", files).replace("TABLE", table).replace("keys: [id]", mode)
    return Sandbox(root, spark, text.replace("append, }", "append}"))


def redefine(box: Sandbox, node: str, former: str, now: str) -> None:
    file = box.root / "odibi.yaml"
    before, name, rest = file.read_text(encoding="utf-8").partition(f"- name: {node}\n")
    assert f"incremental: {former}}}" in rest
    rest = rest.replace(f"incremental: {former}}}", f"incremental: {now}}}", 1)
    file.write_text(before + name + rest, encoding="utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def stop(box: Sandbox, node: str) -> str:
    with pytest.raises(IdentityMismatchError) as error:
        box.run(node)
    return str(error.value)


def adopt(box: Sandbox, node: str) -> tuple[str, ...]:
    found = plan_adoption(box.project, box.state, NodeKey("p", node), lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    return found.changes


def ids(box: Sandbox, node: str) -> list[int]:
    return [one[0] for one in box.rows(node)]


FILES, EXCLUDED, INCLUDED, LAGGING, BY_TIME = OF_FILES
PAIRS = [("ev", FILES, one) for one in (EXCLUDED, INCLUDED)] + [("ev", one, FILES) for one in OF_FILES[1:]]
PAIRS += [("ev", EXCLUDED, BY_TIME), ("ev", BY_TIME, LAGGING)]
PAIRS += [("below", "version", EXCLUDED), *(("below", one, "version") for one in OF_FILES[1:])]
"""`python -m benchmarks reading` draws the others, and those of databases."""


@pytest.mark.parametrize(("node", "former", "now"), PAIRS)
def test_each_stop_that_names_adopt_leads_on_though_rows_have_no_cursor(
    tmp_path: Path, spark: SparkSession, node: str, former: str, now: str
) -> None:
    box = project(tmp_path, spark, *((former,) if node == "ev" else ("files", former)))
    box.land("e/1.json", [row(1, 1), row(2, None), row(3, 3)])
    for one in ("ev", "below")[: 1 + (node == "below")]:
        box.run(one)
    loaded = ids(box, node)
    redefine(box, node, former, now)
    assert f"odi state adopt p.{node}" in stop(box, node)
    adopt(box, node)
    assert box.run(node).status is RunStatus.NO_DATA
    box.land("e/2.json", [row(4, 4)])
    for one in ("ev", "below")[: 1 + (node == "below")]:
        box.run(one)
    assert [one for one in ids(box, node) if one != 2] == [1, 3, 4]
    assert (2 in ids(box, node)) == (2 in loaded or "on_null: include" in now)


def test_rows_without_a_cursor_that_the_former_definition_would_stop_at_are_not_lost(
    tmp_path: Path, spark: SparkSession
) -> None:
    former = "{mode: stateful, column: seq}"
    box = project(tmp_path, spark, former)
    box.land("e/1.json", [row(1, 1)])
    box.run("ev")
    box.land("e/2.json", [row(2, None)])
    redefine(box, "ev", former, "files")
    assert "odi state adopt p.ev" in stop(box, "ev")
    with pytest.raises(IdentityMismatchError, match=r"the next run would stop: 1 rows of .* have NULL") as error:
        adopt(box, "ev")
    assert "put the former definition back, run it once (odi run p --node ev)" in str(error.value)
    box.run("ev", full_refresh=True)
    assert ids(box, "ev") == [1, 2]


def test_what_a_mark_of_before_does_not_tell_is_said_before_it_is_adopted(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = "{mode: stateful, column: seq, on_null: exclude}"
    with monkeypatch.context() as before:
        before.setattr(Source, "left_out", property(lambda _: {}))
        box = project(tmp_path, spark, former)
        box.land("e/1.json", [row(1, 1), row(2, None)])
        box.run("ev")
    redefine(box, "ev", former, "files")
    assert "landing:e/*.json: rows without a cursor count as loaded" in adopt(box, "ev")
    assert box.run("ev").status is RunStatus.NO_DATA
    assert ids(box, "ev") == [1]


def test_files_that_were_rewritten_and_left_as_they_were_stop_no_adoption(tmp_path: Path, spark: SparkSession) -> None:
    former = "{mode: files, on_change: ignore}"
    box = project(tmp_path, spark, former)
    box.land("e/1.json", [row(1, 1)])
    box.run("ev")
    box.land("e/1.json", [row(1, 1), row(2, 2)])
    assert box.run("ev").status is RunStatus.NO_DATA
    redefine(box, "ev", former, "{mode: stateful, column: seq}")
    assert "odi state adopt p.ev" in stop(box, "ev")
    adopt(box, "ev")
    box.land("e/2.json", [row(3, 3)])
    box.run("ev")
    assert ids(box, "ev") == [1, 3]


def test_rows_ahead_of_the_clock_that_are_loaded_are_not_held_and_loaded_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = project(tmp_path, spark, "files", mode="")
    box.land("e/1.json", [row(1, 1), row(2, 2, datetime.now(UTC) + timedelta(days=9))])
    box.run("ev")
    redefine(box, "ev", "files", "{mode: stateful, column: at, on_ahead: hold}")
    assert "odi state adopt p.ev" in stop(box, "ev")
    with pytest.raises(IdentityMismatchError, match=r"1 row of landing:e/.* ahead of the clock may be loaded") as error:
        adopt(box, "ev")
    assert "`incremental.max_ahead: none`" in str(error.value)
    redefine(box, "ev", "{mode: stateful, column: at, on_ahead: hold}", "{mode: stateful, column: at, max_ahead: none}")
    adopt(box, "ev")
    assert box.run("ev").status is RunStatus.NO_DATA


def test_rows_that_the_former_definition_held_are_not_counted_as_loaded(tmp_path: Path, spark: SparkSession) -> None:
    former = "{mode: stateful, column: at, on_ahead: hold}"
    box = project(tmp_path, spark, former, mode="")
    box.land("e/1.json", [row(1, 1), row(2, 2, datetime.now(UTC) + timedelta(days=9))])
    box.run("ev")
    assert ids(box, "ev") == [1]
    redefine(box, "ev", former, "files")
    assert "odi state adopt p.ev" in stop(box, "ev")
    with pytest.raises(IdentityMismatchError, match=r"not all of landing:e/.* is loaded"):
        adopt(box, "ev")
    box.run("ev", full_refresh=True)
    assert ids(box, "ev") == [1, 2]
