"""What must hold after a kill, and after the run that follows it; looked at without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.kill_sweep.box import KEY, Box
from odi_assets.config.graph import state_key
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import app_id
from odi_assets.nodes.planning.start import committed_hwm
from odi_assets.nodes.recovery.doctor import examine


@dataclass
class Verdict:
    """What was found wrong: rows by their number, all else in words."""

    losses: int = 0
    duplicates: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.losses or self.duplicates or self.others)

    def add(self, other: Verdict) -> None:
        """Take in another one."""
        self.losses += other.losses
        self.duplicates += other.duplicates
        self.others += other.others


class RowsWatch:
    """Looks at one box: whether its target holds the rows that it must hold."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def begun(self, run_id: str) -> None:
        """An attempt has begun."""

    def after_kill(self) -> Verdict:
        """At any time."""
        return Verdict()

    def after_recovery(self) -> Verdict:
        """Once a run was left alone: the table is the model, and so is its quarantine."""
        verdict = Verdict()
        for what, (expected, found) in {
            "": (self._box.expected, self._box.rows()),
            "of the quarantine, ": self._box.quarantined,
        }.items():
            missing, wrong = expected - found, found - expected
            differs = [f"{what}missing: {missing}; too many or wrong: {wrong}"] if expected != found else []
            verdict.add(Verdict(missing.total(), wrong.total(), differs))
        return verdict


class Watch(RowsWatch):
    """Looks at all that must hold. What it saw before is what must not be undone."""

    def __init__(self, box: Box) -> None:
        super().__init__(box)
        self._begun: set[str] = set()
        self._hwm: Any = None
        self._committed_hwm: Any = None
        self._seen = -1

    def begun(self, run_id: str) -> None:
        """An attempt has begun: history owes it a row."""
        self._begun.add(run_id)

    def after_kill(self) -> Verdict:
        """At any time: no version repeats a row, and no HWM went back."""
        verdict = Verdict()
        newest = self._box.version()
        for version in range(self._seen + 1, newest + 1):
            repeated = _repeated(self._box, version)
            verdict.duplicates += repeated
            if repeated:
                verdict.others.append(f"version {version} holds {repeated} rows twice")
        self._seen = newest
        verdict.others += self._hwms_gone_back()
        return verdict

    def after_recovery(self) -> Verdict:
        """Once a run was left alone, besides: the table is the model, history is whole, the doctor finds nothing."""
        verdict = self.after_kill()
        verdict.add(super().after_recovery())
        verdict.others += self._history()
        verdict.others += [f"doctor: {f.message}" for f in examine(self._box.project, self._box.state, [KEY])]
        return verdict

    def _hwms_gone_back(self) -> Iterator[str]:
        entry = self._box.state.get_entry(state_key(KEY, self._box.project.graph.node(KEY)))
        stamp = TableHandle.open(self._box.project.target(KEY)).last_stamp(app_id(KEY), carrying="hwm")
        now = self._box.position(entry.value) if entry else None
        mark = committed_hwm(stamp) if stamp else None
        committed = self._box.position(mark.value) if mark else None
        if self._hwm is not None and (now is None or now < self._hwm):
            yield f"the HWM in state went back from {self._hwm} to {now}"
        if self._committed_hwm is not None and (committed is None or committed < self._committed_hwm):
            yield f"the HWM in the target's log went back from {self._committed_hwm} to {committed}"
        self._hwm, self._committed_hwm = now, committed

    def _history(self) -> Iterator[str]:
        rows = self._box.state.list_runs(pipeline=KEY.pipeline, node=KEY.node)
        stamps = TableHandle.open(self._box.project.target(KEY)).stamps()
        committed = {stamp.facts["run_id"]: stamp.version for stamp in stamps}
        for run_id in self._begun:
            own = [row for row in rows if row.run_id == run_id]
            if len(own) != 1:
                yield f"the attempt of run {run_id} has {len(own)} rows of history"
                continue
            told, version = own[0].status.value, committed.get(run_id)
            if (told == "SUCCESS") != (version is not None):
                yield f"run {run_id} is {told} in history, and the target's log has it in version {version}"


def _repeated(box: Box, version: int) -> int:
    keys: dict[Any, int] = {}
    for row, times in box.rows(version).items():
        keys[row[0]] = keys.get(row[0], 0) + times
    return sum(times - 1 for times in keys.values())
