"""Stream nodes whose inputs were renamed or moved, or whose table somebody else changed: nothing is read again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, LossError, SourceError, TargetBehindStateError
from odi_assets.explain.stream import explain
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets.state.records import RunStatus
from odi_assets.streams.planning.marks import Match
from odi_assets.streams.recovery.rewind import at_batch
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.streams.execution.test_streams import (
    CHAIN,
    EVENTS,
    MATCHED,
    adopt,
    event,
    fail_after,
    ids,
    matching,
    payment,
    rewind,
)


@pytest.fixture
def chain(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """Two batches of files, and a stream of their table."""
    box = Sandbox(tmp_path, spark, CHAIN)
    box.land("events/1.json", [event("a", 0), event("b", 1)])
    box.land("events/2.json", [event("c", 2)])
    box.run("events")
    box.run("below")
    return box


def moved(box: Sandbox, folder: Path, landing: str = "landing") -> Sandbox:
    """The project in another folder; with ``landing``, its landing zone has another name there."""
    box.root.rename(folder)
    if landing != "landing":
        (folder / "landing").rename(folder / landing)
    file = folder / "odibi.yaml"
    file.write_text(file.read_text("utf-8").replace("base_path: landing", f'base_path: "{landing}"'), "utf-8")
    return opened(box, file)


def redefined(box: Sandbox, old: str, new: str) -> Sandbox:
    file = box.root / "odibi.yaml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    return opened(box, file)


def opened(box: Sandbox, file: Path) -> Sandbox:
    box.root, box.project = file.parent, Project.load(file)
    box.state = box.project.open_state()
    return box


def go_on(box: Sandbox, path: str = "events/3.json") -> list[str]:
    """The ids in the table once another file is taken in."""
    landing = Path(box.project.config.connections["landing"].base_path)  # type: ignore[union-attr]
    file = box.root / landing / path
    file.write_text(event("d", 3) + "\n", "utf-8")
    os.utime(file, (1_800_000_000, 1_800_000_000))
    box.run("events")
    return ids(box, "events")


@pytest.mark.parametrize("landing", ["landing", "other (né) + b,c;d&e=f@g!"])
def test_files_of_a_project_that_was_moved_are_adopted_and_not_read_again(
    chain: Sandbox, tmp_path_factory: pytest.TempPathFactory, landing: str
) -> None:
    box = moved(chain, tmp_path_factory.mktemp("other") / "a b", landing)
    with pytest.raises(IdentityMismatchError, match=r"(?s)2 files in .* that batches have read in .*odi state adopt"):
        box.plan("events")
    (finding,) = examine(box.project, box.state, [NodeKey("p", "events")])
    assert "odi state adopt p.events" in finding.remedy
    with pytest.raises(IdentityMismatchError, match="odi state adopt"):
        explain(box.project, "p.events", ["id=a"], box.spark)
    assert adopt(box, "events")
    assert examine(box.project, box.state, [NodeKey("p", "events"), NodeKey("p", "below")]) == []
    assert box.plan("events").nothing_new
    assert go_on(box) == ["a", "b", "c", "d"]
    box.run("below")
    assert ids(box, "below") == ["a", "b", "c", "d"]


def test_a_full_refresh_of_files_that_were_moved_loses_nothing(chain: Sandbox, tmp_path: Path) -> None:
    box = moved(chain, tmp_path.with_name("refreshed"))
    box.run("events", full_refresh=True)
    assert go_on(box) == ["a", "b", "c", "d"]
    box = moved(box, tmp_path.with_name("again"))
    (box.root / "landing" / "events" / "1.json").unlink()
    with pytest.raises(LossError, match=r"1 file of"):
        box.run("events", full_refresh=True)


def test_a_batch_that_spark_has_not_committed_is_adopted_with_its_files(
    chain: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.land("events/3.json", [event("e", 3)])
    with monkeypatch.context() as patch:
        fail_after(patch, "after")
        with pytest.raises(RuntimeError, match="killed"):
            chain.run("events")
    box = moved(chain, tmp_path.with_name("elsewhere"))
    adopt(box, "events")
    assert matching(box, "events") is Match.TABLE_ONE_AHEAD
    assert go_on(box, "events/4.json") == ["a", "b", "c", "d", "e"]


def test_an_adopted_stream_goes_back_to_batches_of_before(chain: Sandbox, tmp_path: Path) -> None:
    box = moved(chain, tmp_path.with_name("back"))
    adopt(box, "events")
    rewind(box, "events", 0)
    adopt(box, "events")
    box.run("events")
    assert ids(box, "events") == ["a", "b", "c"]


def test_the_folder_of_an_input_is_moved_within_its_landing_zone(chain: Sandbox) -> None:
    (chain.root / "landing" / "in").mkdir()
    (chain.root / "landing" / "events").rename(chain.root / "landing" / "in" / "events")
    box = redefined(chain, "path: events/*.json", "path: in/events/*.json")
    with pytest.raises(IdentityMismatchError, match="would read that again"):
        box.run("events")
    adopt(box, "events")
    assert go_on(box, "in/events/3.json") == ["a", "b", "c", "d"]


def test_files_of_the_same_names_and_other_sizes_are_other_files(chain: Sandbox) -> None:
    folder = chain.root / "landing" / "more"
    folder.mkdir()
    (folder / "1.json").write_text(event("another", 7) + "\n", "utf-8")
    box = redefined(chain, "path: events/*.json", "path: more/*.json")
    box.run("events")
    assert ids(box, "events") == ["a", "another", "b", "c"]


def test_a_pattern_that_takes_in_more_reads_what_it_has_not_read(chain: Sandbox) -> None:
    box = redefined(chain, "path: events/*.json", 'path: "*/*.json"')
    box.land("more/4.json", [event("d", 4)])
    box.run("events")
    assert ids(box, "events") == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("node", "old", "new"),
    [
        ("matched", "payments", "paid_orders"),
        ("below", "inputs: {events: events}", "inputs: {heard: events}"),
    ],
)
def test_an_input_that_was_renamed_stops_the_run(
    tmp_path: Path, spark: SparkSession, node: str, old: str, new: str
) -> None:
    box = Sandbox(tmp_path, spark, MATCHED + CHAIN.replace("- pipeline: p\n  nodes:\n", ""))
    box.land("events/1.json", [event("a", 0)])
    box.land("orders/1.json", [event("a", 0)])
    box.land("payments/1.json", [payment("a", 1)])
    for each in ("events", "below", "matched"):
        assert box.run(each).status is RunStatus.SUCCESS
    former = box.root / "odibi.yaml"
    kept = former.read_text("utf-8")
    redefined(box, f"      {old}: ", f"      {new}: ") if node == "matched" else redefined(box, old, new)
    with pytest.raises(IdentityMismatchError, match=r"(?s)under the name .*, for its checkpoint knows it by this"):
        box.run(node)
    with pytest.raises(IdentityMismatchError, match="by this name"):
        plan_adoption(box.project, box.state, NodeKey("p", node), lambda: spark)
    former.write_text(kept, "utf-8")
    assert opened(box, former).plan(node).nothing_new


def test_inputs_that_changed_their_names_with_each_other_stop_the_run(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, MATCHED)
    box.land("orders/1.json", [event("a", 0)])
    box.land("payments/1.json", [payment("a", 1)])
    box.run("matched")
    text = (tmp_path / "odibi.yaml").read_text("utf-8")
    swapped = text.replace("path: orders/*.json", "path: X").replace("path: payments,", "path: orders,")
    (tmp_path / "odibi.yaml").write_text(swapped.replace("path: X", "path: payments/*.json"), "utf-8")
    with pytest.raises(IdentityMismatchError, match=r"under the name `payments`.*under the name `orders`"):
        opened(box, tmp_path / "odibi.yaml").run("matched")


def test_read_files_may_be_removed_though_another_input_has_files_of_their_names(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, MATCHED)

    def clear_away() -> None:
        for file in (tmp_path / "landing").glob("*/*.json"):
            file.unlink()

    box.land("orders/1.json", [event("a", 0)])
    box.land("payments/1.json", [payment("a", 1)])
    box.run("matched")
    clear_away()
    box.land("payments/2.json", [payment("b", 3)])
    box.run("matched")
    clear_away()
    box.land("orders/2.json", [event("b", 3)])
    box.land("payments/3.json", [payment("c", 3)])
    box.run("matched")
    assert ids(box, "matched") == ["a", "b"]


def test_the_rows_of_an_overwritten_table_are_put_back_by_the_command_that_the_error_names(chain: Sandbox) -> None:
    table = chain.root / "lake" / "events"
    held = DeltaTable(str(table))
    write_deltalake(held, held.to_pyarrow_table().slice(0, 1), mode="overwrite")
    with pytest.raises(TargetBehindStateError, match=r"odi state rewind p.events --to-version 1"):
        chain.run("events")
    plan = plan_rewind(chain.project, chain.state, NodeKey("p", "events"), at_version(1))
    apply_rewind(chain.project, chain.state, plan)
    assert go_on(chain) == ["a", "b", "c", "d"]


def test_an_input_that_was_rewound_names_the_batch_to_go_back_to(tmp_path: Path, spark: SparkSession) -> None:
    box, key = Sandbox(tmp_path, spark, CHAIN), NodeKey("p", "events")
    for number, name in enumerate("ab"):
        box.land(f"events/{number}.json", [event(name, number)])
        box.run("events")
        box.run("below")
    before = at_batch(Node.of(box.project, key), 0)
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, key, before))
    box.land("events/9.json", [event("c", 3)])
    box.run("events")
    with pytest.raises(SourceError, match=r"took the table back to version 0, and the stream has read rows") as raised:
        box.run("below")
    assert "odi state rewind p.below --to-batch 0; or" in str(raised.value.fix)
    assert "on_change" not in str(raised.value.fix)
    rewind(box, "below", 0)
    box.run("below")
    assert ids(box, "below") == ids(box, "events") == ["a", "b", "c"]


def test_a_table_that_somebody_put_back_as_it_was_goes_on_from_its_batch(chain: Sandbox) -> None:
    table = DeltaTable(str(chain.root / "lake" / "events"))
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="overwrite")
    table.restore(1)
    with pytest.raises(TargetBehindStateError, match=r"odi state rewind p.events --to-batch 1"):
        chain.run("events")
    rewind(chain, "events", 1)
    assert matching(chain, "events") is Match.IN_STEP
    assert go_on(chain) == ["a", "b", "c", "d"]


COUNTED = f"""
- pipeline: p
  nodes:
  - name: counts
    {EVENTS}
    stream: {{output_mode: update, state_partitions: 1}}
    transform: {{function: "counting:counts"}}
    write: {{connection: lake, path: counts, mode: upsert, keys: [id]}}
"""
COUNTING = """
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Counting(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n LONG")

    def handleInputRows(self, key, rows, timers):
        before = self.seen.get()[0] if self.seen.exists() else 0
        now = before + sum(len(frame) for frame in rows)
        self.seen.update((now,))
        yield pd.DataFrame({"id": [key[0]], "n": [now]})

    def close(self):
        pass


def counts(df):
    return df.groupBy("id").transformWithStateInPandas(Counting(), "id STRING, n LONG", "Update", "None")
"""


def test_state_of_a_processor_goes_on_where_its_checkpoint_is_now(tmp_path: Path, spark: SparkSession) -> None:
    """Spark notes the schemas of such state by their whole paths."""
    (tmp_path / "counting.py").write_text(COUNTING, "utf-8")
    box = Sandbox(tmp_path, spark, COUNTED)
    box.land("events/1.json", [event("a", 0), event("b", 1)])
    box.run("counts")
    # The landing zone stays where it is.
    other = tmp_path.with_name("processor")
    shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns("landing"))
    shutil.rmtree(tmp_path / "lake")
    box.root = other
    box = redefined(box, "base_path: landing", f"base_path: {tmp_path / 'landing'}")
    file = tmp_path / "landing" / "events" / "2.json"
    file.write_text(event("a", 2) + "\n", "utf-8")
    box.run("counts")
    assert box.rows("counts") == [("a", 2), ("b", 1)]
