"""The processes of a run that is killed: which of them go on."""

from __future__ import annotations

from pathlib import Path


def processes_of(group: int) -> dict[int, str]:
    """The processes of a group that run, with their names."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8")
        except OSError:
            # It ended meanwhile.
            continue
        fields = text.rpartition(")")[2].split()
        if int(fields[2]) == group and fields[0] != "Z":
            found[int(stat.parent.name)] = text.partition("(")[2].rpartition(")")[0]
    return found
