"""All that a backend holds, as one value: what exports write, imports read and migrations take over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odi_assets.errors import StateError
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry, RunRecord


@dataclass(frozen=True)
class KeyState:
    """One key: its present revision, a tombstone too, and those before it, oldest first."""

    entry: HwmEntry
    older: tuple[HwmEntry, ...] = ()


@dataclass(frozen=True)
class EnvironmentState:
    """Keys and runs of one environment. ``runs`` are newest first."""

    environment: str | None
    keys: tuple[KeyState, ...]
    runs: tuple[RunRecord, ...] = ()


@dataclass(frozen=True)
class StateSnapshot:
    """State of a project at one moment.

    Attributes:
        project: whose state it is; None if that is not known.
    """

    project: str | None
    environments: tuple[EnvironmentState, ...]


def take(
    backend: StateBackend,
    *,
    project: str | None,
    environments: Sequence[str | None] | None = None,
    history: bool = False,
    runs: bool = False,
) -> StateSnapshot:
    """What ``backend`` holds now.

    Args:
        backend: any.
        project: the project's name.
        environments: which; without it, all there are.
        history: with the revisions before the present one that are kept.
        runs: with run history.
    """
    names = backend.environments() if environments is None else environments
    return StateSnapshot(project, tuple(_of(backend.in_environment(name), history, runs) for name in names))


def _of(backend: StateBackend, history: bool, runs: bool) -> EnvironmentState:
    if history:
        keys = tuple(_with_history(revisions) for revisions in backend.histories().values())
    else:
        keys = tuple(KeyState(entry) for entry in backend.list_hwms(deleted=True))
    return EnvironmentState(backend.environment, keys, tuple(backend.list_runs()) if runs else ())


def _with_history(revisions: Sequence[HwmEntry]) -> KeyState:
    # Rows that Odibi left can share a number: of those the newest counts.
    newest, *older = revisions
    kept: list[HwmEntry] = []
    for entry in older:
        if entry.revision < (kept[-1] if kept else newest).revision:
            kept.append(entry)
    return KeyState(newest, tuple(reversed(kept)))


def into(snapshot: StateSnapshot, environment: str | None) -> StateSnapshot:
    """The snapshot of one environment as the snapshot of another.

    Raises:
        StateError: it holds several environments.
    """
    if len(snapshot.environments) > 1:
        names = ", ".join(state.environment or "the one without a name" for state in snapshot.environments)
        raise StateError(
            f"it holds several environments ({names}), which cannot all become one", fix="leave --into out"
        )
    return replace(snapshot, environments=tuple(replace(s, environment=environment) for s in snapshot.environments))
