"""Write modes: how a node's rows join its table. Everything that depends on the mode reads its traits here.

The checks of the project file, planning, writing and docs/project-file.md are fed from this one table. A new mode is
a row here, a module of its name in ``tables/modes/``, and a row of the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

ComputedFrom = Literal["nothing", "partitions", "table"]
"""What of a table a commit is computed from: nothing of it, the partitions it replaces, or any of its rows."""


@dataclass(frozen=True)
class WriteTraits:
    """What is true of every write in one mode.

    Attributes:
        description: what becomes of the rows, for the documentation.
        needs_keys: the write finds stored rows by ``write.keys``, which have to be named.
        increment: what has to be recomputed where a source gained rows: the gained ``rows`` alone, the
            ``partitions`` they belong to, or the whole ``table``.
        takes_rows_again: a row that is written twice is stored once. Without it, rows that are read again have to be
            found by ``write.keys`` before they are written.
        keeps_stored_rows: rows that are in the table stay as they are.
        stores_every_row: as many rows are stored as are written, but for options that choose among them.
        replaces_columns: the table takes the columns of the rows, so ``write.schema`` has no say.
        edits_rows: ``delete_when`` and ``only_if_newer`` are for this mode.
        partitioned: the table needs partition columns.
        computed_from: what of the table the commit is computed from: a concurrent change of it is a conflict.
    """

    description: str
    increment: Literal["rows", "partitions", "table"]
    computed_from: ComputedFrom
    needs_keys: bool = False
    takes_rows_again: bool = True
    keeps_stored_rows: bool = False
    stores_every_row: bool = True
    replaces_columns: bool = False
    edits_rows: bool = False
    partitioned: bool = False


class WriteMode(StrEnum):
    """How a node's rows join its table."""

    traits: WriteTraits

    def __new__(cls, name: str, traits: WriteTraits) -> WriteMode:
        """A member whose value is its name alone."""
        mode = str.__new__(cls, name)
        mode._value_ = name
        mode.traits = traits
        return mode

    APPEND = (
        "append",
        WriteTraits(
            description="Rows are added to those that are there.",
            increment="rows",
            computed_from="nothing",
            takes_rows_again=False,
            keeps_stored_rows=True,
        ),
    )
    APPEND_ONCE = (
        "append_once",
        WriteTraits(
            description="Rows whose keys are not in the table are added; the others are left out.",
            increment="rows",
            computed_from="table",
            needs_keys=True,
            keeps_stored_rows=True,
            stores_every_row=False,
        ),
    )
    OVERWRITE = (
        "overwrite",
        WriteTraits(
            description="The rows, and their columns, replace the table.",
            increment="table",
            computed_from="nothing",
            replaces_columns=True,
        ),
    )
    UPSERT = (
        "upsert",
        WriteTraits(
            description="Rows replace those with the same keys; the others are added. "
            "Two rows with the same keys in one increment are refused, unless `incremental: files` found them in two "
            "files: then the newer file counts.",
            increment="rows",
            computed_from="table",
            needs_keys=True,
            edits_rows=True,
        ),
    )
    PARTITION_OVERWRITE = (
        "partition_overwrite",
        WriteTraits(
            description="The partitions that the rows belong to are replaced as a whole.",
            increment="partitions",
            computed_from="partitions",
            partitioned=True,
        ),
    )
