"""What happens to a world between runs."""

from __future__ import annotations

from benchmarks.change_sweep.changes import nodes, projects, sources, state, tables
from benchmarks.change_sweep.changes.change import Change

CHANGES: dict[str, Change] = {
    change.name: change for room in (projects, nodes, sources, tables, state) for change in room.CHANGES
}
