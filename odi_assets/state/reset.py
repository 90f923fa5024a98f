"""Setting a high-water mark back by hand: to an earlier revision, to a value, or to nothing.

Each change names the revision it was decided on, so it never overwrites what a run has written to the key since then.
"""

from __future__ import annotations

from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry


def revision(backend: StateBackend, key: str, number: int) -> HwmEntry:
    """The revision ``number`` of ``key``.

    Raises:
        ConfigError: it is not kept, or never was.
    """
    kept = backend.history(key)
    for entry in kept:
        if entry.revision == number:
            return entry
    numbers = ", ".join(str(entry.revision) for entry in kept)
    raise ConfigError(
        f"`{key}` has no revision {number}", fix=f"these are kept: {numbers}; `odi state history {key}` shows them"
    )


def set_back(backend: StateBackend, present: HwmEntry | None, wanted: HwmEntry) -> HwmEntry:
    """Make the content of ``wanted`` the key's next revision, if ``present`` still is its present one.

    Raises:
        StateConflictError: the key was changed since.
    """
    expected = None if present is None or present.deleted else present.revision
    if wanted.deleted:
        backend.delete_hwm(wanted.key, expected_revision=expected)
        return wanted
    return backend.compare_and_set(
        wanted.key,
        wanted.value,
        expected_revision=expected,
        target_commit=wanted.target_commit,
        origin=wanted.origin,
    )
