"""Each backend against a dict: whatever is done, in whatever order, by whomever, and whatever breaks meanwhile.

After a fault the model accepts what the contract allows and nothing else: acknowledged is there, refused is unchanged,
and where an answer was lost for good, all of it is there or nothing.
"""

from __future__ import annotations

import json
import math
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from odi_assets.config.models import RetryConfig
from odi_assets.delta.retry import Retry
from odi_assets.errors import StateConflictError, StateError
from odi_assets.state import HwmEntry, RunRecord, RunStatus, StateBackend
from odi_assets.state.backend import HISTORY_KEPT
from odi_assets_tests.state import faults
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.test_runs_contract import run
from odi_assets_tests.state.values.test_values import EXAMPLES, same

ENVIRONMENTS = (None, "dev'ü/%")
KEYS = ("orders.id", "it's", 'a "b"\\', "ø/☃?#", "100%", "k" * 900)
NODES = (("p", "raw"), ("q", "raw"), ("it's", "n%"))
# Of one type, so that moves forward and back happen often; and one of every type there is.
# (Hypothesis cannot print the longest ints; they have tests of their own.)
EVERY_TYPE = [value for name, value in EXAMPLES.items() if name not in ("int of 5000 digits", "dict with types")]
VALUES = st.integers(0, 9) | st.dates(date(2013, 1, 1), date(2013, 1, 9)) | st.sampled_from(EVERY_TYPE)
FOREIGN = st.sampled_from([5, "2013-01-05", {"a": [1]}, None, 1.5, math.nan, "", "☃"])
# Only ever moved forward, in batches that meet faults.
BATCH = ("batch.a", "batch.b")


@dataclass
class Key:
    """What is known of one key.

    Attributes:
        revisions: newest first, as far back as they are known.
        removed_by_hand: the newest one is a removal that was not ours.
    """

    revisions: list[tuple[int, Any, bool]] = field(default_factory=list)
    removed_by_hand: bool = False

    @property
    def revision(self) -> int:
        return self.revisions[0][0] if self.revisions else 0

    @property
    def is_set(self) -> bool:
        return bool(self.revisions) and not self.revisions[0][2]

    @property
    def value(self) -> Any:
        return self.revisions[0][1] if self.is_set else None


def must_move(known: Key, value: Any) -> bool | None:
    """Whether ``set_hwm`` has to take a value: not if it lies before the present one. None where that is not plain."""
    if not known.is_set or known.value is None:
        return True
    if type(value) is type(known.value) and type(value) in (int, date):
        return bool(value >= known.value)
    return None


class Machine(RuleBasedStateMachine):
    kind = ""
    faults: ClassVar[dict[str, tuple[faults.Fault, str]]]

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.keys: dict[str | None, dict[str, Key]] = {environment: {} for environment in ENVIRONMENTS}
        self.runs: dict[str | None, list[RunRecord]] = {environment: [] for environment in ENVIRONMENTS}
        self.number = 0
        self.backends: dict[tuple[str | None, int], StateBackend] = {}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.backends.clear()
            for environment in ENVIRONMENTS:
                self.everything(environment)
            self.folder.cleanup()

    # -- what the rules are made of -----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return Path(self.folder.name)

    def backend(self, environment: str | None, who: int = 0) -> StateBackend:
        """One of two backends on the same state, as two processes would have them; opened again after a reopen."""
        if (environment, who) not in self.backends:
            retry = Retry(RetryConfig(retries=2), sleep=lambda _seconds: None)
            self.backends[environment, who] = open_backend(self.kind, self.path, environment, retry=retry)
        return self.backends[environment, who]

    def known(self, environment: str | None, key: str) -> Key:
        return self.keys[environment].setdefault(key, Key())

    def wrote(self, environment: str | None, entry: HwmEntry, value: Any, deleted: bool = False) -> None:
        known = self.known(environment, entry.key)
        assert entry.revision == known.revision + 1
        assert (entry.environment, entry.deleted) == (environment, deleted)
        known.revisions.insert(0, (entry.revision, value, deleted))
        known.removed_by_hand = False

    def as_known(self, environment: str | None, key: str) -> None:
        known = self.known(environment, key)
        entry = self.backend(environment, 1).get_entry(key, deleted=True)
        if not known.revisions:
            assert entry is None
            return
        assert entry is not None
        assert (entry.revision, entry.deleted) == (known.revision, not known.is_set)
        assert same(entry.value, known.value)
        told = self.backend(environment).history(key)[: min(len(known.revisions), HISTORY_KEPT)]
        assert [(e.revision, e.deleted) for e in told] == [(r, d) for r, _, d in known.revisions[:HISTORY_KEPT]]
        assert all(same(e.value, value) for e, (_, value, _) in zip(told, known.revisions, strict=False))
        assert all(one.updated_at > other.updated_at for one, other in pairwise(told))

    def everything(self, environment: str | None) -> None:
        found = {entry.key: entry for entry in self.backend(environment).list_hwms()}
        live = {key: known for key, known in self.keys[environment].items() if known.is_set}
        assert list(found) == sorted(live)
        assert all(same(found[key].value, known.value) for key, known in live.items())
        assert all(found[key].revision == known.revision for key, known in live.items())
        told = self.backend(environment).list_runs()
        assert told == sorted(self.runs[environment], key=lambda r: r.timestamp, reverse=True)

    # -- rules --------------------------------------------------------------------------------------------------------

    environments = st.sampled_from(ENVIRONMENTS)
    names = st.sampled_from(KEYS)
    who = st.integers(0, 1)

    @rule(environment=environments, key=names, value=VALUES, who=who)
    def set_hwm(self, environment: str | None, key: str, value: Any, who: int) -> None:
        must = must_move(self.known(environment, key), value)
        try:
            entry = self.backend(environment, who).set_hwm(key, value)
        except StateError:
            assert must is not True
        else:
            assert must is not False
            self.wrote(environment, entry, value)
        self.as_known(environment, key)

    @rule(environment=environments, key=names, value=VALUES, who=who)
    def reset_hwm(self, environment: str | None, key: str, value: Any, who: int) -> None:
        self.wrote(environment, self.backend(environment, who).reset_hwm(key, value), value)
        self.as_known(environment, key)

    @rule(environment=environments, key=names, value=VALUES, stale=st.integers(-1, 2), who=who)
    def compare_and_set(self, environment: str | None, key: str, value: Any, stale: int, who: int) -> None:
        known = self.known(environment, key)
        present = known.revision if known.is_set else None
        expected = present if stale == 0 else known.revision - stale
        try:
            entry = self.backend(environment, who).compare_and_set(key, value, expected_revision=expected)
        except StateConflictError:
            assert expected != present
        else:
            assert expected == present
            self.wrote(environment, entry, value)
        self.as_known(environment, key)

    @rule(environment=environments, updates=st.lists(st.tuples(names, VALUES), min_size=1, max_size=5), who=who)
    def set_hwm_batch(self, environment: str | None, updates: list[tuple[str, Any]], who: int) -> None:
        last = dict(updates)
        musts = [must_move(self.known(environment, key), value) for key, value in last.items()]
        try:
            entries = self.backend(environment, who).set_hwm_batch([{"key": k, "value": v} for k, v in updates])
        except StateError:
            assert not all(musts)
        else:
            assert False not in musts
            assert {entry.key for entry in entries} == set(last)
            for entry in entries:
                self.wrote(environment, entry, last[entry.key])
        for key in last:
            self.as_known(environment, key)

    @rule(environment=environments, key=names, who=who)
    def delete_hwm(self, environment: str | None, key: str, who: int) -> None:
        known = self.known(environment, key)
        assert self.backend(environment, who).delete_hwm(key) is known.is_set
        if known.is_set:
            known.revisions.insert(0, (known.revision + 1, None, True))
        self.as_known(environment, key)

    @rule(environment=environments, key=names)
    def race(self, environment: str | None, key: str) -> None:
        """Two backends count up by compare-and-set, each in a thread of its own."""
        start = self.backend(environment).reset_hwm(key, 0)
        self.wrote(environment, start, 0)

        def count(backend: StateBackend) -> None:
            for _ in range(3):
                while True:
                    seen = backend.get_entry(key)
                    assert seen is not None
                    try:
                        backend.compare_and_set(key, seen.value + 1, expected_revision=seen.revision)
                    except StateConflictError:
                        continue
                    break

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(count, [self.backend(environment, 0), self.backend(environment, 1)]))
        for value in range(1, 7):
            self.known(environment, key).revisions.insert(0, (start.revision + value, value, False))
        self.as_known(environment, key)

    @rule(environment=environments, fault=st.data(), job=st.sampled_from(["reset", "batch", "delete", "runs"]))
    def meets_a_fault(self, environment: str | None, fault: Any, job: str) -> None:
        put_in, outcome = self.faults[fault.draw(st.sampled_from(sorted(self.faults)))]
        backend = self.backend(environment)
        keys = BATCH if job == "batch" else KEYS[:1]
        before = {key: list(self.known(environment, key).revisions) for key in keys}
        deleted = job == "delete"
        assume(not deleted or self.known(environment, keys[0]).is_set)
        records = self.new_runs(2)
        value = None if deleted else self.number
        landed: bool | None = True
        try:
            with faults.injected(put_in):
                if job == "reset":
                    backend.reset_hwm(keys[0], value)
                elif job == "batch":
                    backend.set_hwm_batch([{"key": key, "value": value} for key in keys])
                elif deleted:
                    assert backend.delete_hwm(keys[0])
                else:
                    backend.record_runs(records)
        except StateError:
            assert outcome != faults.ABSORBED
            landed = False if outcome == faults.REFUSED else None
        if job == "runs":
            self.runs_after(environment, records, landed)
            return
        if landed is None:
            now = {key: backend.get_entry(key, deleted=True) for key in keys}
            there = {
                entry is not None and entry.revision > before[key][0][0] if before[key] else entry is not None
                for key, entry in now.items()
            }
            assert len(there) == 1
            landed = there.pop()
        if landed:
            for key in keys:
                known = self.known(environment, key)
                known.revisions.insert(0, (known.revision + 1, value, deleted))
        for key in keys:
            self.as_known(environment, key)

    def runs_after(self, environment: str | None, records: list[RunRecord], landed: bool | None) -> None:
        found = {record.run_id for record in self.backend(environment, 1).list_runs()}
        there = {record.run_id in found for record in records}
        assert len(there) == 1
        assert landed is None or there == {landed}
        if there == {True}:
            self.runs[environment] += [replace(record, environment=environment) for record in records]

    def new_runs(self, count: int, pipeline: str = "p", node: str = "raw") -> list[RunRecord]:
        made = []
        for _ in range(count):
            self.number += 1
            status = list(RunStatus)[self.number % len(RunStatus)]
            made.append(run(self.number, pipeline=pipeline, node=node, status=status))
        return made

    @rule(environment=environments, node=st.sampled_from(NODES), count=st.integers(1, 3), who=who)
    def record_runs(self, environment: str | None, node: tuple[str, str], count: int, who: int) -> None:
        records = self.new_runs(count, *node)
        self.backend(environment, who).record_runs(records)
        self.runs[environment] += [replace(record, environment=environment) for record in records]
        assert self.backend(environment, 1 - who).get_last_run_status(*node) is records[-1].status.succeeded

    @rule(environment=environments, node=st.sampled_from(NODES), limit=st.integers(1, 4))
    def looks_up_runs(self, environment: str | None, node: tuple[str, str], limit: int) -> None:
        mine = [r for r in self.runs[environment] if (r.pipeline_name, r.node_name) == node]
        mine.sort(key=lambda r: r.timestamp, reverse=True)
        found = self.backend(environment).list_runs(pipeline=node[0], node=node[1], limit=limit)
        assert found == mine[:limit]
        assert self.backend(environment).get_last_run(*node) == (mine[0] if mine else None)

    @rule(environment=environments, drop=st.booleans())
    def maintains(self, environment: str | None, drop: bool) -> None:
        """Every run of these is older than a day; the newest of each node stays."""
        backend = self.backend(environment)
        dropped = backend.maintain(keep_runs_for=timedelta(days=1) if drop else None)["runs_dropped"]
        assert drop or dropped == 0
        if drop:
            self.drop_runs(environment)

    def drop_runs(self, environment: str | None) -> None:
        newest: dict[tuple[str, str], RunRecord] = {}
        for record in self.runs[environment]:
            node = record.pipeline_name, record.node_name
            if node not in newest or record.timestamp > newest[node].timestamp:
                newest[node] = record
        self.runs[environment] = list(newest.values())

    @rule()
    def reopens(self) -> None:
        self.backends.clear()

    @rule(environment=environments)
    def looks_at_everything(self, environment: str | None) -> None:
        self.everything(environment)

    # -- another tool -------------------------------------------------------------------------------------------------

    @rule(key=names, value=FOREIGN)
    def another_tool_sets(self, key: str, value: Any) -> None:
        before = self.known(None, key)
        was_set, revision, old = before.is_set, before.revision, before.value
        latest = self.backend(None).get_entry(key, deleted=True)
        # Revisions count our writes: several of another tool in a row share one (see ``StateBackend.compare_and_set``).
        in_a_row = before.removed_by_hand or (latest is not None and not latest.deleted and latest.value_type is None)
        before.removed_by_hand = False
        self.foreign_set(key, value)
        entry = self.backend(None).get_entry(key, deleted=True)
        assert entry is not None
        assert not entry.deleted
        if entry.value_type is not None:
            # In a JSON file, a value that is the JSON of the one that we wrote last cannot be told from it.
            assert json.dumps(entry.value, default=str) == json.dumps(value)
            if not (was_set and same(entry.value, old)):
                before.revisions[:] = [(entry.revision, entry.value, False)]
            return
        assert same(entry.value, value)
        assert entry.revision > revision or not before.revisions or in_a_row or same(old, value)
        before.revisions[:] = [(entry.revision, value, False)]
        self.everything(None)

    def foreign_set(self, key: str, value: Any) -> None:
        raise NotImplementedError


class LocalJSON(Machine):
    kind = "local"
    faults = faults.LOCAL

    def drop_runs(self, _environment: str | None) -> None:
        for each in ENVIRONMENTS:
            super().drop_runs(each)

    def foreign_set(self, key: str, value: Any) -> None:
        """As Odibi does it: load the document, change ``hwm``, write all of it."""
        path = self.path / "state.json"
        document = json.loads(path.read_text()) if path.exists() else {"pipelines": {}, "hwm": {}}
        document["hwm"][key] = value
        path.write_text(json.dumps(document, indent=2))

    @rule(key=st.sampled_from(KEYS))
    def someone_removes_by_hand(self, key: str) -> None:
        known = self.known(None, key)
        assume(known.is_set)
        path = self.path / "state.json"
        document = json.loads(path.read_text())
        del document["hwm"][key]
        path.write_text(json.dumps(document))
        entry = self.backend(None).get_entry(key, deleted=True)
        if entry is None:
            # Only the other tool had ever set it.
            known.revisions.clear()
            return
        assert entry.deleted
        known.revisions[:] = [(entry.revision, None, True)]
        known.removed_by_hand = True


class Catalog(Machine):
    kind = "catalog"
    faults = faults.CATALOG

    def foreign_set(self, key: str, value: Any) -> None:
        """As Odibi does it: a MERGE on the key alone, which takes the key of every environment."""
        row = self.foreign_row(key, value, None, datetime.now(UTC))
        try:
            table = DeltaTable(str(self.path / "meta_state"))
        except TableNotFoundError:
            write_deltalake(str(self.path / "meta_state"), row, mode="append")
            return
        merge = table.merge(row, "target.key = source.key", source_alias="source", target_alias="target")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        beside = "revision" not in {field.name for field in table.schema().fields}
        for environment in ENVIRONMENTS[1:]:
            if beside:
                self.keeps_its_own(environment, key)
            else:
                self.keys[environment].pop(key, None)

    def keeps_its_own(self, environment: str, key: str) -> None:
        """Odibi took the key's row for another environment: what we wrote stays, what only that row told is gone."""
        known = self.keys[environment].get(key)
        if known is None:
            return
        entry = self.backend(environment).get_entry(key, deleted=True)
        if entry is None:
            del self.keys[environment][key]
            return
        known.revisions[:] = [one for one in known.revisions if one[0] <= entry.revision]
        assert known.revisions[0][0] == entry.revision

    @rule(environment=st.sampled_from(ENVIRONMENTS), key=st.sampled_from(KEYS), value=FOREIGN)
    def another_tool_adds_a_row(self, environment: str | None, key: str, value: Any) -> None:
        known = self.known(environment, key)
        latest = self.backend(environment).get_entry(key, deleted=True)
        moment = datetime.now(UTC)
        if latest is not None:
            moment = max(moment, latest.updated_at + timedelta(microseconds=1))
        row = self.foreign_row(key, value, environment, moment)
        write_deltalake(str(self.path / "meta_state"), row, mode="append", schema_mode="merge")
        entry = self.backend(environment, 1).get_entry(key)
        assert entry is not None
        assert same(entry.value, value)
        assert latest is None or entry.revision == latest.revision + 1
        known.revisions.insert(0, (entry.revision, value, False))
        self.as_known(environment, key)

    @staticmethod
    def foreign_row(key: str, value: Any, environment: str | None, moment: datetime) -> pa.Table:
        columns = {"key": [key], "value": [json.dumps(value)], "environment": pa.array([environment], pa.string())}
        return pa.table({**columns, "updated_at": pa.array([moment], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize(("machine", "examples"), [(LocalJSON, 15), (Catalog, 8)])
def test_a_backend_is_a_dict_whatever_is_done_to_it(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            derandomize=True,
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
