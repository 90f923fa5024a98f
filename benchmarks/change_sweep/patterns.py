"""The pattern of a landing zone is edited between runs, whether or not files of the new one are there yet.

Each stop is adopted. The oracle is Python's own ``Path.glob``: after each run, the table has once what it had and what
the pattern names now.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.cli import main
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.project import Project

if TYPE_CHECKING:
    from odi_assets_tests.nodes.support import Sandbox

_PATTERNS = ("o/*", "o/*.json", "o/k=*/*", "o/*/*.json", "new/*", "new/*.json", "n*/*", "o", "new", "**")
_FOLDERS = ("o", "o/k=1", "o/k=2", "new", "new/in")
_STEPS = 6
NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {{connection: landing, format: json, path: "{path}", schema: "id BIGINT", incremental: files}}
    write: {{connection: lake, path: n, mode: {mode}}}
"""


@dataclass
class PatternTally:
    """What came of the edits of patterns.

    Attributes:
        wrong: lives in which a table had other rows than the oracle, in words.
    """

    runs: int = 0
    adopted: int = 0
    wrong: list[str] = field(default_factory=list)


def lives_of_patterns(steps: int, folder: Path, say: Callable[[str], None], seed: int, box_of: BoxOf) -> PatternTally:
    """Lives with ``steps`` edits and landings in all.

    Args:
        box_of: makes a sandbox in a folder, of the text of its pipelines.
    """
    tally = PatternTally()
    for number in range(-(-steps // _STEPS)):
        found = _lived(random.Random(seed + number), folder / f"life-{number}", box_of, tally)
        if found is not None:
            tally.wrong.append(f"--seed {seed + number}: {found}")
            say(tally.wrong[-1])
    return tally


BoxOf = Callable[[Path, str], "Sandbox"]


def _lived(draw: random.Random, folder: Path, box_of: BoxOf, tally: PatternTally) -> str | None:
    folder.mkdir(parents=True)
    path, mode = draw.choice(_PATTERNS), draw.choice(["append", "upsert, keys: [id]"])
    box, ids = box_of(folder, NODE.format(path=path, mode=mode)), count(1)
    loaded, steps = set[int](), [f"{path}, {mode}"]
    for _ in range(_STEPS):
        if loaded and draw.random() < 0.5:
            path = draw.choice(_PATTERNS)
            steps.append(f"path {path}")
            file = box.root / "odibi.yaml"
            text = file.read_text("utf-8")
            before = text[text.index('path: "') + 7 :].partition('"')[0]
            file.write_text(text.replace(f'path: "{before}"', f'path: "{path}"'), "utf-8")
            box.project = Project.load(file)
        else:
            place, number = draw.choice(_FOLDERS), next(ids)
            steps.append(f"{place}/{number}.json")
            box.land(f"{place}/{number}.json", [json.dumps({"id": number})])
        tally.runs += 1
        try:
            box.run("n")
        except IdentityMismatchError:
            tally.adopted += 1
            if main(["--config", str(box.root / "odibi.yaml"), "state", "adopt", "p.n", "--yes"]):
                return f"{', '.join(steps)}: the adoption is refused"
            box.run("n")
        loaded |= _named(box.root / "landing", path)
        there = Counter(row[0] for row in (box.rows("n") if loaded else ()))
        if there != Counter(loaded):
            return f"{', '.join(steps)}: {dict(there)} in the place of {sorted(loaded)}"
    return None


def _named(landing: Path, path: str) -> set[int]:
    """The ids of the files that a pattern names, each of which is the name of its file."""
    pattern = path if "*" in path else f"{path}/**"
    # Path.glob has `**` for folders alone.
    found = landing.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)
    return {int(file.stem) for file in found if file.is_file()}
