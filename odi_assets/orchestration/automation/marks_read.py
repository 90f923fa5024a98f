"""The HWMs of a project, read once for all sensors of a process, for as long as they stay the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from types import MappingProxyType

from odi_assets.nodes.project import Project
from odi_assets.state.records import HwmEntry

_last: dict[tuple[Path, str | None], tuple[Hashable, Mapping[str, HwmEntry]]] = {}


def read_marks(project: Project) -> Mapping[str, HwmEntry]:
    """The present revision of every key, tombstones too.

    Raises:
        StateError: state cannot be read.
    """
    state, cache_key = project.open_state(), (project.path, project.chosen)
    stamp = state.hwms_stamp()
    remembered = _last.get(cache_key)
    if remembered is not None and remembered[0] == stamp:
        return remembered[1]
    entries = MappingProxyType({entry.key: entry for entry in state.list_hwms(deleted=True)})
    if stamp is not None:
        _last[cache_key] = stamp, entries
    return entries
