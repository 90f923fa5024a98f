"""The state store of a node: what its function puts there counts exactly once, like the rows that it returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, FencedError, IllegalStateError, StateError
from odi_assets.nodes.planning.forecast import forecasts
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import NOTED
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.result import RunStatus
from odi_assets.store import StateStoreProvider, node_store
from odi_assets.store.staged import StagedStore
from odi_assets.tables.embedded.engine import EmbeddedEngine
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: id INT, options: {header: "true"}, incremental: files}
    transform: {function: "store_of_this_test:counted"}
    write: {connection: lake, path: raw, mode: append}
"""
COUNTED = """
def counted(df, store):
    ids = [row.id for row in df.collect()]
    total = int(store.get(b"total") or b"0")
    store.put(b"total", b"%d" % (total + len(ids)))
    for number in ids:
        store.put(b"id/%d" % number, b"seen")
    return df.selectExpr("id", f"{total} AS before")
"""
RAW = NodeKey("p", "raw")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Iterator[Sandbox]:
    sys.modules.pop("store_of_this_test", None)
    (tmp_path / "store_of_this_test.py").write_text(COUNTED, encoding="utf-8")
    made = Sandbox(tmp_path, spark, NODES)
    yield made
    sys.modules.pop("store_of_this_test", None)


def rewrite(box: Sandbox, code: str) -> None:
    sys.modules.pop("store_of_this_test", None)
    (box.root / "store_of_this_test.py").write_text(code, encoding="utf-8")
    for cache in (box.root / "__pycache__").glob("store_of_this_test*"):
        cache.unlink()


def land(box: Sandbox, *numbers: int) -> None:
    box.land(f"{numbers[0]}.csv", ["id", *map(str, numbers)])


def provider(box: Sandbox) -> StateStoreProvider:
    return StateStoreProvider(box.project.store(RAW).uri)


def held(box: Sandbox) -> dict[bytes, bytes]:
    """What the newest version of the store holds."""
    return dict(provider(box).latest()[1].items)


def disagreements(box: Sandbox) -> str:
    found = examine(box.project, box.state, [RAW])
    return "\n".join(one.message for one in found if one.kind not in NOTED)


def seen(*numbers: int) -> dict[bytes, bytes]:
    return {b"total": b"%d" % len(numbers), **{b"id/%d" % number: b"seen" for number in numbers}}


def test_the_store_lies_below_the_system_path_and_goes_on_from_run_to_run(box: Sandbox) -> None:
    land(box, 1, 2)
    assert box.run("raw").rows_written == 2
    assert (box.root / "lake" / "system" / "stores" / "p.raw" / "_delta_log").is_dir()
    assert held(box) == seen(1, 2)
    land(box, 3)
    box.run("raw")
    assert held(box) == seen(1, 2, 3)
    assert box.rows("raw") == [(1, 0), (2, 0), (3, 2)]
    assert provider(box).versions() == [1, 2]
    assert box.run("raw").status is RunStatus.NO_DATA
    assert provider(box).latest_version() == 2
    stamp = box.table("raw").last_stamp("odi_assets:p.raw")
    assert stamp is not None
    assert stamp.facts["store"]["version"] == 2


def test_a_run_that_dies_before_its_commit_has_counted_nothing(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    land(box, 1)
    box.run("raw")
    land(box, 2)

    def dies(*_args: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(EmbeddedEngine, "write", dies)
            with pytest.raises(KeyboardInterrupt):
                box.run("raw")
        assert held(box) == seen(1)
    land(box, 3)
    box.run("raw")
    assert held(box) == seen(1, 2, 3)
    assert provider(box).versions() == [1, 2]


def test_a_run_that_dies_after_its_commit_has_counted_once(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    land(box, 1)
    box.run("raw")
    land(box, 2)

    def dies(_store: StagedStore) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StagedStore, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            box.run("raw")
    assert box.rows("raw") == [(1, 0), (2, 1)]
    assert held(box) == seen(1)
    land(box, 3)
    box.run("raw")
    assert box.rows("raw") == [(1, 0), (2, 1), (3, 2)]
    assert held(box) == seen(1, 2, 3)
    assert provider(box).versions() == [1, 2, 3]


def test_a_store_that_cannot_be_written_after_the_commit_is_completed_by_the_next_run(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    land(box, 1)

    def fails(_store: StagedStore) -> None:
        raise StateError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(StagedStore, "publish", fails)
        assert box.run("raw").status is RunStatus.SUCCESS
    assert "will be brought up to date by its next run: no answer" in caplog.text
    land(box, 2)
    box.run("raw")
    assert held(box) == seen(1, 2)


def test_of_two_runs_at_once_only_the_one_that_commits_counts(box: Sandbox) -> None:
    land(box, 1)
    first, second = box.plan("raw"), box.plan("raw")
    box.finish(first)
    with pytest.raises(FencedError):
        box.finish(second)
    assert held(box) == seen(1)
    land(box, 2)
    box.run("raw")
    assert held(box) == seen(1, 2)


def test_a_full_refresh_begins_with_an_empty_store(box: Sandbox) -> None:
    for number in (1, 2):
        land(box, number)
        box.run("raw")
    box.run("raw", full_refresh=True)
    assert box.rows("raw") == [(1, 0), (2, 0)]
    assert held(box) == seen(1, 2)
    (box.root / "landing" / "1.csv").unlink()
    box.run("raw", full_refresh=True, accept_loss=True)
    assert held(box) == seen(2)
    box.state.delete_hwm("p.raw")
    land(box, 3)
    box.run("raw")
    assert held(box) == seen(2, 3)


def test_a_table_that_is_put_back_has_the_store_of_its_version(box: Sandbox) -> None:
    for number in (1, 2, 3):
        land(box, number)
        box.run("raw")
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(0)))
    land(box, 4)
    box.run("raw")
    assert box.rows("raw") == [(1, 0), (2, 1), (3, 1), (4, 1)]
    assert held(box) == seen(1, 2, 3, 4)
    assert provider(box).versions() == [1, 2, 3, 4]
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(2)))
    land(box, 5)
    box.run("raw")
    assert held(box) == seen(1, 2, 3, 4, 5)


def test_changes_after_a_replan_are_those_of_the_rows_that_were_written(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odi_assets.errors import TableConflictError

    land(box, 1)
    real, calls = EmbeddedEngine.write, []

    def conflicts_once(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise TableConflictError("another commit came first")
        return real(*args)

    monkeypatch.setattr(EmbeddedEngine, "write", conflicts_once)
    box.run("raw")
    assert len(calls) == 2
    assert held(box) == seen(1)


def test_a_run_that_changes_nothing_in_the_store_makes_no_version(box: Sandbox) -> None:
    rewrite(box, "def counted(df, store):\n    return df.selectExpr('id', '0 AS before')\n")
    land(box, 1)
    box.run("raw")
    assert not (box.root / "lake" / "system" / "stores").exists()
    rewrite(box, COUNTED)
    land(box, 2)
    box.run("raw")
    rewrite(
        box, "def counted(df, store):\n    store.put(b'total', b'1')\n    return df.selectExpr('id', '0 AS before')\n"
    )
    land(box, 3)
    box.run("raw")
    assert provider(box).versions() == [1]
    rewrite(box, COUNTED)
    land(box, 4)
    box.run("raw")
    assert held(box) == seen(2, 4)


def test_what_a_function_may_not_do_with_its_store_is_refused(box: Sandbox) -> None:
    land(box, 1)
    rewrite(box, "def counted(df, store):\n    store.commit()\n    return df\n")
    with pytest.raises(IllegalStateError, match="committed with its rows"):
        box.run("raw")
    rewrite(box, "kept = []\ndef counted(df, store):\n    kept.append(store)\n    return df\n")
    box.run("raw")
    with pytest.raises(IllegalStateError, match="Cannot put after"):
        sys.modules["store_of_this_test"].kept[0].put(b"k", b"v")


def test_a_range_has_no_store(box: Sandbox) -> None:
    from dataclasses import replace

    from odi_assets.nodes.request import Bounds, RunRequest

    land(box, 1)
    plan = replace(box.plan("raw"), request=RunRequest(bounds=Bounds.of("2024-01-01", "2024-01-02")))
    with pytest.raises(ConfigError, match="no state for a range") as told:
        node_store.open_node_store(plan)
    assert "odi run p --node raw --full-refresh" in (told.value.fix or "")


def test_a_store_that_is_gone_is_an_error_that_names_the_ways_on(box: Sandbox) -> None:
    import shutil

    land(box, 1)
    box.run("raw")
    shutil.rmtree(box.root / "lake" / "system" / "stores")
    assert "belongs to the last commit of its node" in disagreements(box)
    land(box, 2)
    (forecast,) = forecasts(box.project, box.state, [RAW])
    assert "belongs to the last commit of its node" in str(forecast.error)
    with pytest.raises(StateError, match="belongs to the last commit of its node") as told:
        box.run("raw")
    assert "--full-refresh" in (told.value.fix or "")
    box.run("raw", full_refresh=True)
    assert held(box) == seen(1, 2)


def test_a_store_that_is_elsewhere_goes_on_where_its_folder_is_copied_to(box: Sandbox) -> None:
    import shutil

    land(box, 1)
    box.run("raw")
    stores = box.root / "lake" / "system" / "stores"
    stores.rename(box.root / "before")
    land(box, 2)
    with pytest.raises(StateError, match=r"`system` or `environment` names another place now") as told:
        box.run("raw")
    assert (told.value.fix or "").startswith("copy the store's folder there from where it was")
    shutil.copytree(box.root / "before" / "p.raw", stores / "p.raw")
    assert disagreements(box) == ""
    box.run("raw")
    assert held(box) == seen(1, 2)


def test_a_renamed_node_that_adopts_its_table_goes_on_with_its_store(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    renamed = Sandbox(box.root, box.spark, NODES.replace("name: raw", "name: renamed"))
    adoption = plan_adoption(renamed.project, renamed.state, NodeKey("p", "renamed"), lambda: box.spark)
    assert adoption is not None
    apply_adoption(renamed.state, adoption)
    renamed.land("2.csv", ["id", "2"])
    os.utime(box.root / "landing" / "2.csv", (1_800_000_000, 1_800_000_000))
    renamed.run("renamed")
    assert sorted(renamed.rows("renamed")) == [(1, 0), (2, 1)]
    assert held(box) == seen(1, 2)


def test_the_store_of_a_renamed_node_and_of_the_node_that_has_its_name_now_count_apart(box: Sandbox) -> None:
    land(box, 1)
    box.run("raw")
    second = NODES.split("nodes:")[1].replace('"*.csv"', '"other/*.csv"').replace("path: raw", "path: other")
    both = Sandbox(box.root, box.spark, NODES.replace("name: raw", "name: renamed").rstrip() + second)
    adoption = plan_adoption(both.project, both.state, NodeKey("p", "renamed"), lambda: box.spark)
    assert adoption is not None
    apply_adoption(both.state, adoption)
    for number in (2, 3, 4):
        both.land(f"{number}.csv", ["id", str(number)])
        both.land(f"other/{number}.csv", ["id", str(number)])
        for node in ("raw", "renamed") if number % 2 else ("renamed", "raw"):
            both.run(node)
    assert sorted(both.rows("renamed")) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert sorted(both.rows("raw")) == [(2, 0), (3, 1), (4, 2)]
    apply_rewind(both.project, both.state, plan_rewind(both.project, both.state, RAW, points.at_version(0)))
    both.run("raw")
    assert sorted(both.rows("raw")) == [(2, 0), (3, 1), (4, 1)]


def test_an_input_or_a_parameter_named_store_is_what_it_was(box: Sandbox) -> None:
    (box.root / "odibi.yaml").write_text(
        (box.root / "odibi.yaml").read_text().replace(':counted"', ':counted", params: {store: 7}'), encoding="utf-8"
    )
    rewrite(box, "def counted(df, store):\n    return df.selectExpr('id', f'{store} AS before')\n")
    again = Sandbox(box.root, box.spark, NODES.replace(':counted"', ':counted", params: {store: 7}'))
    again.land("1.csv", ["id", "1"])
    again.run("raw")
    assert again.rows("raw") == [(1, 7)]
    assert not (box.root / "lake" / "system" / "stores").exists()
