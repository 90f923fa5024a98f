"""Taking a snapshot over into a backend: first what that would change, then the change itself.

Nothing that the backend has is lost: a key that is further, or was written later, stays unless the transfer is
forced, and runs that are there already are not added again. So the same transfer twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from odi_assets.errors import StateError
from odi_assets.state.backend import StateBackend
from odi_assets.state.monotonic import TextOrder, check_monotonic
from odi_assets.state.records import HwmEntry, KeyRestore, RunRecord
from odi_assets.state.transfer.snapshot import EnvironmentState, KeyState, StateSnapshot
from odi_assets.state.values import encode


class TransferEffect(StrEnum):
    """What a transfer does to one key. BACK: the key is further, or was written later, and so is not touched
    unless the transfer is forced."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    BACK = "back"


@dataclass(frozen=True)
class TransferredKey:
    """One key of a transfer: what is there (None: it was never set), what comes, and what becomes of it."""

    environment: str | None
    before: HwmEntry | None
    after: HwmEntry
    effect: TransferEffect
    move: KeyRestore | None


@dataclass(frozen=True)
class Transfer:
    """A decided transfer.

    Attributes:
        differences: every key of the snapshot.
        runs: per environment, the runs that are not there yet, newest first.
        runs_there: how many were there already.
        forced: whether keys are moved back too.
    """

    backend: StateBackend
    differences: tuple[TransferredKey, ...]
    runs: Mapping[str | None, tuple[RunRecord, ...]]
    runs_there: int
    forced: bool

    @property
    def moves(self) -> list[TransferredKey]:
        """The keys that :meth:`apply` writes."""
        return [
            d for d in self.differences if d.move is not None and (self.forced or d.effect is not TransferEffect.BACK)
        ]

    @property
    def kept(self) -> list[TransferredKey]:
        """The keys that stay because they would move back."""
        return [] if self.forced else [d for d in self.differences if d.effect is TransferEffect.BACK]

    @property
    def runs_added(self) -> int:
        """How many runs :meth:`apply` adds."""
        return sum(map(len, self.runs.values()))

    @property
    def changes_nothing(self) -> bool:
        return not self.moves and not self.runs_added

    def require_none_kept(self) -> None:
        """Refuse a transfer that leaves keys out because they would move back.

        Raises:
            StateError: it does. Field: keys.
        """
        if self.kept:
            keys = [difference.after.key for difference in self.kept]
            is_one = len(keys) == 1
            raise StateError(
                f"{len(keys)} key{' stands' if is_one else 's stand'} further here, or {'was' if is_one else 'were'} "
                f"written later, and would move back: {', '.join(keys)}",
                fix="nothing was changed; leave them out of the document, or move them back with --force (in Python, "
                "force=True)",
                keys=keys,
            )

    def apply(self) -> None:
        """Write it: per environment, all keys in one commit, then all runs in another.

        Raises:
            StateConflictError: a key was changed since the transfer was decided; no key of its environment was written.
        """
        names = {d.environment for d in self.moves} | {name for name, runs in self.runs.items() if runs}
        for name in sorted(names, key=lambda name: name or ""):
            there = self.backend.in_environment(name)
            there.restore([d.move for d in self.moves if d.environment == name and d.move is not None])
            there.record_runs(reversed(self.runs.get(name, ())))


def decide(
    snapshot: StateSnapshot,
    backend: StateBackend,
    *,
    same_tables: bool,
    renames: Mapping[str, str] | None = None,
    force: bool = False,
) -> Transfer:
    """Compare a snapshot with what ``backend`` holds. Changes nothing.

    Args:
        snapshot: what is to be taken over.
        backend: where to.
        same_tables: the state is of the very tables that it will be used with. Revisions, times and target commits
            are then kept, which lets the next plans repair what a dead run left; of another project's tables they
            would tell nothing.
        renames: new names of keys.
        force: move keys back too.

    Raises:
        StateError: two keys would get one name, or a key to rename is not there.
    """
    renames = dict(renames or {})
    differences: list[TransferredKey] = []
    runs: dict[str | None, tuple[RunRecord, ...]] = {}
    there = 0
    _check_renames(snapshot, renames)
    for state in snapshot.environments:
        target = backend.in_environment(state.environment)
        present = {entry.key: entry for entry in target.list_hwms(deleted=True)}
        for key in state.keys:
            name = renames.get(key.entry.key, key.entry.key)
            differences.append(_difference(_renamed(key, name), present.get(name), target, same_tables))
        runs[state.environment] = _new_runs(state, target)
        there += len(state.runs) - len(runs[state.environment])
    return Transfer(backend, tuple(differences), runs, there, force)


def _check_renames(snapshot: StateSnapshot, renames: Mapping[str, str]) -> None:
    known = {key.entry.key for state in snapshot.environments for key in state.keys}
    for old in renames:
        if old not in known:
            raise StateError(
                f"there is no key `{old}` to rename", fix=f"there are: {', '.join(sorted(known)) or 'none'}", key=old
            )
    for state in snapshot.environments:
        names = [renames.get(key.entry.key, key.entry.key) for key in state.keys]
        twice = sorted({name for name in names if names.count(name) > 1}) if renames else []
        if twice:
            raise StateError(
                f"two keys would both be named {', '.join(f'`{name}`' for name in twice)}",
                fix="give each key a name of its own; nothing was changed",
            )


def _renamed(key: KeyState, name: str) -> KeyState:
    return KeyState(key.entry._replace(key=name), tuple(entry._replace(key=name) for entry in key.older))


def _difference(key: KeyState, before: HwmEntry | None, target: StateBackend, same_tables: bool) -> TransferredKey:
    effect = _effect(before, key.entry, target.text_order)
    move = None if effect is TransferEffect.UNCHANGED else _move(key, before, same_tables)
    return TransferredKey(target.environment, before, key.entry, effect, move)


def _effect(before: HwmEntry | None, after: HwmEntry, text_order: TextOrder) -> TransferEffect:
    if before is None:
        return TransferEffect.ADDED
    if _content(before) == _content(after):
        return TransferEffect.UNCHANGED
    back = after.updated_at <= before.updated_at or _lies_before(before, after, text_order)
    return TransferEffect.BACK if back else TransferEffect.CHANGED


def _content(entry: HwmEntry) -> tuple[Any, ...]:
    # Odibi's values have no type: the same JSON is then the same value, whatever the type beside it.
    encoded = encode(entry.value)
    return entry.deleted, encoded.json, None if entry.deleted else entry.value_type


def _lies_before(before: HwmEntry, after: HwmEntry, text_order: TextOrder) -> bool:
    if before.deleted or after.deleted:
        return False
    try:
        check_monotonic(before, after.value, after.value_type or encode(after.value).type, text_order)
    except StateError:
        return True
    return False


def _move(key: KeyState, before: HwmEntry | None, same_tables: bool) -> KeyRestore:
    entry = key.entry
    least = 1 if before is None else before.revision + 1
    now = datetime.now(UTC)
    if before is not None and before.updated_at >= now:
        now = before.updated_at + timedelta(microseconds=1)
    if not same_tables:
        fresh = entry._replace(revision=least, updated_at=now, target_commit=None, origin=None)
        return KeyRestore(fresh, before.revision if before else None)
    later = before is None or entry.updated_at > before.updated_at
    fresh = entry._replace(revision=max(entry.revision, least), updated_at=entry.updated_at if later else now)
    older = tuple(e for e in key.older if later and least <= e.revision < fresh.revision)
    return KeyRestore(fresh, before.revision if before else None, older)


def _new_runs(state: EnvironmentState, target: StateBackend) -> tuple[RunRecord, ...]:
    if not state.runs:
        return ()
    there = {_identity(record) for record in target.list_runs()}
    return tuple(record for record in state.runs if _identity(record) not in there)


def _identity(record: RunRecord) -> tuple[Any, ...]:
    return record.run_id, record.pipeline_name, record.node_name, record.attempt, record.partition_key, record.timestamp
