"""Which batch read a file: the logs that a file source keeps in the checkpoint, and the offsets of the batches.

``sources/<i>/<n>`` lists the files of the source's n-th offset; every tenth file holds all entries before it
(``.compact``). Spark never cleans these logs. A batch reads the offsets after those of the batch before, up to its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

ReadText = Callable[[str], str]


def logged_files(names: Iterable[str], read: ReadText) -> dict[str, int]:
    """The offset of each file, by :func:`path_key`.

    Args:
        names: the files of one ``sources/<i>``.
        read: the text of one of them.
    """
    numbered = {int(name.removesuffix(".compact")): name for name in sorted(names) if _is_log(name)}
    compacted = max((number for number, name in numbered.items() if name.endswith(".compact")), default=-1)
    found: dict[str, int] = {}
    for number in sorted(number for number in numbered if number >= compacted):
        for line in read(numbered[number]).splitlines()[1:]:
            entry = json.loads(line)
            found[path_key(entry["path"])] = int(entry["batchId"])
    return found


def path_key(path: str) -> str:
    """A file's path as Spark writes it, but in one way: a local one may begin with ``file:/`` or ``file:///``."""
    return re.sub(r"^file:/+", "/", path)


def batches_of_files(files: Mapping[str, int], ends: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """The first and the last batch that may have read each file; a file that no batch has read is left out.

    Args:
        files: the offset of each file, by :func:`path_key`.
        ends: by batch, as far as they are known, the offset up to which it read; -1 if it had read nothing yet.
    """
    ordered = sorted(ends)
    by_offset: dict[int, tuple[int, int]] = {}
    place = 0
    for offset in sorted(set(files.values())):
        while place < len(ordered) and ends[ordered[place]] < offset:
            place += 1
        if place < len(ordered):
            before = ordered[place - 1] + 1 if place else 0
            by_offset[offset] = before, ordered[place]
    return {path: by_offset[offset] for path, offset in files.items() if offset in by_offset}


def _is_log(name: str) -> bool:
    return name.removesuffix(".compact").isdecimal()
