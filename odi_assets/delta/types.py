"""What a commit says of itself, and how it names partitions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PartitionValues = Mapping[str, str | None]
"""One partition: column name to its value as Delta writes it in the log; None is NULL."""


@dataclass(frozen=True)
class Stamp:
    """What a commit carries besides data: the fence that admits one writer, and the facts the next plan needs.

    Attributes:
        app_id: the Delta app transaction of the node.
        number: the fence; the last committed one plus 1.
        facts: JSON-ready: HWM, increment, run id, state revision, code version.
        write_id: fresh for every write; names the folder of its files and tells our commit from another's.
        fences: False for bounded runs: the number admits nobody before others and is taken anew when another run came
            first. Their rows hold only for the table as the handle has it, so they are never written to a later one.
    """

    app_id: str
    number: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    fences: bool = True
