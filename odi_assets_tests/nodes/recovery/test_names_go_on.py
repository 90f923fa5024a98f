"""Names of nodes change hands: a table goes on under another name, and the name goes on with another table.

Each pair of a source and a table keeps its rows. Whatever names the pairs have after an edit, the first way on that a
stop names is typed, and then each table holds each row of its source once.
"""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, OdiError
from odi_assets.nodes.recovery.accept import accept
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox

READS = {
    "files": 'format: csv, path: "PAIR/*.csv", schema: "id BIGINT", options: {header: "true"}, incremental: files',
    "files by a column": 'format: csv, path: "PAIR/*.csv", schema: "id BIGINT", options: {header: "true"}, '
    "incremental: {mode: stateful, column: id}",
    "versions of a table": "format: delta, path: PAIR, incremental: version",
}
PAIRS = ("x", "y", "z")
"""Sources, and the tables that are loaded from them. The first two are loaded before the edit, by the nodes a and b."""
NAMES = [names for names in itertools.permutations("abc", 3) if names[:2] != ("a", "b")]
ADOPT = re.compile(r"odi (state adopt p\.\w)")


class Named:
    """Nodes that load pairs, each under some name."""

    def __init__(self, root: Path, spark: SparkSession, read: str) -> None:
        self.by_versions = "delta" in READS[read]
        self.read = READS[read]
        for pair in PAIRS:
            (root / "landing" / pair).mkdir(parents=True, exist_ok=True)
        self.ids: dict[str, list[int]] = {pair: [] for pair in PAIRS}
        self.box = Sandbox(root, spark, self._pipelines({"a": "x", "b": "y"}))

    def _pipelines(self, pairs: dict[str, str]) -> str:
        nodes = "".join(
            f"""
  - name: {name}
    read: {{connection: landing, {self.read.replace("PAIR", pair)}}}
    write: {{connection: lake, path: {pair}, mode: append}}"""
            for name, pair in pairs.items()
        )
        return f"\n- pipeline: p\n  nodes:{nodes}\n"

    def rename(self, pairs: dict[str, str]) -> None:
        self.box.project = Sandbox(self.box.root, self.box.spark, self._pipelines(pairs)).project

    def land(self, pair: str, number: int) -> None:
        self.ids[pair].append(number)
        if self.by_versions:
            write_deltalake(self.box.root / "landing" / pair, pa.table({"id": [number]}), mode="append")
        else:
            self.box.land(f"{pair}/{number}.csv", ["id", str(number)])

    def adopt_and_run(self, name: str) -> None:
        """Run a node, and type the first adoption that each stop names."""
        for _ in range(4):
            stop = self._stop(name)
            if stop is None:
                return
            named = ADOPT.search(stop)
            assert named is not None, stop
            assert named[1] in self.adoptions_of_doctor()
            code = main(["--config", str(self.box.root / "odibi.yaml"), *shlex.split(named[1]), "--yes"])
            assert code == 0, stop
        raise AssertionError(f"{name} stops for ever")

    def _stop(self, name: str) -> str | None:
        try:
            self.box.run(name)
        except OdiError as error:
            return str(error)
        return None

    def adoptions_of_doctor(self) -> set[str]:
        keys = list(self.box.project.graph.nodes)
        remedies = (found.remedy for found in examine(self.box.project, self.box.state, keys))
        return {named for remedy in remedies for named in ADOPT.findall(remedy)}


@pytest.mark.parametrize(("names", "read"), cases(NAMES, READS, together=1))
def test_pairs_under_other_names_go_on_by_the_first_way_that_each_stop_names(
    names: tuple[str, ...], read: str, tmp_path: Path, spark: SparkSession
) -> None:
    named = Named(tmp_path, spark, read)
    # The newest rows of a new pair are older than those that its name has loaded.
    for pair, number in (("z", 1), ("z", 2), ("y", 3), ("x", 4)):
        named.land(pair, number)
    for name in "ab":
        named.box.run(name)
    named.rename(dict(zip(names, PAIRS, strict=True)))
    for number, pair in enumerate(PAIRS, 5):
        named.land(pair, number)
    for name in sorted(names):
        named.adopt_and_run(name)
    for name, pair in zip(names, PAIRS, strict=True):
        assert [row[0] for row in named.box.rows(name)] == named.ids[pair], (name, pair)
    assert examine(named.box.project, named.box.state, [NodeKey("p", name) for name in names]) == []


def test_an_hwm_of_a_table_that_another_node_writes_is_neither_accepted_nor_adopted(
    tmp_path: Path, spark: SparkSession
) -> None:
    named = Named(tmp_path, spark, "files")
    named.land("x", 1)
    named.box.run("a")
    named.rename({"b": "x", "a": "z"})
    for step in (
        lambda: accept(named.box.project, named.box.state, NodeKey("p", "a")),
        lambda: plan_adoption(named.box.project, named.box.state, NodeKey("p", "a"), lambda: spark),
    ):
        with pytest.raises(IdentityMismatchError, match=r"lake/x, which p\.b writes now[\s\S]*odi state adopt p\.b"):
            step()
    adoption = plan_adoption(named.box.project, named.box.state, NodeKey("p", "b"), lambda: spark)
    assert adoption is not None
    assert "p.a, which has another table now, begins with its first run" in adoption.changes
    named.box.run("b", full_refresh=True)
    with pytest.raises(IdentityMismatchError) as stopped:
        named.box.run("a")
    assert "adopt" not in str(stopped.value)
    named.land("z", 2)
    named.box.run("a", full_refresh=True)
    assert (named.box.rows("a"), named.box.rows("b")) == ([(2,)], [(1,)])


def test_where_no_list_says_which_files_are_loaded_an_adoption_names_those_that_will_count_so(
    tmp_path: Path, spark: SparkSession
) -> None:
    named = Named(tmp_path, spark, "files")
    for pair, number in (("z", 1), ("x", 2), ("z", 3)):
        named.land(pair, number)
    named.box.run("a")
    shutil.rmtree(tmp_path / "lake" / "x")
    accept(named.box.project, named.box.state, NodeKey("p", "a"))
    named.rename({"a": "z"})
    adoption = plan_adoption(named.box.project, named.box.state, NodeKey("p", "a"), lambda: spark)
    assert adoption is not None
    changes = "; ".join(adoption.changes)
    assert "1 file of landing:z/*.csv no newer than the HWM (z/1.csv) will count as loaded" in changes
    apply_adoption(named.box.state, adoption)
    named.box.run("a")
    assert named.box.rows("a") == [(3,)]
