"""What a table engine takes and returns: how rows go into a table, and what the commit did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odi_assets.config.models import SchemaPolicy, WriteMode
from odi_assets.delta.partition_values import PartitionValues


@dataclass(frozen=True)
class WriteSpec:
    """How rows go into a table.

    Attributes:
        mode: how the rows join the table.
        keys: columns that identify a row, for modes with the trait ``needs_keys``.
        partition_by: columns the table is partitioned by; must match the partitioning of an existing table.
        replace: for partition_overwrite, partitions to replace even where no row is written; rows in others are
            refused. None means: replace just the partitions that rows are written to.
        schema_policy: what happens to columns that the table does not have; modes with the trait ``replaces_columns``
            always take the columns of the rows.
        delete_when: for upsert, a boolean column that is not stored: a row where it is true deletes its keys.
        only_if_newer: for upsert, the column whose value must be greater than the stored one's.
        declared: the mode in the project file, where this one write uses another (full refresh, backfill). Which rows
            are stored is still decided by the declared mode: one for each key, and no deleted ones, after an upsert.
        delivery: a column of the rows that is not stored, and of an integer type: the number of the delivery that a
            row came in. What is stored is what one write for each delivery would leave, in the order of the numbers.
    """

    mode: WriteMode
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    replace: Sequence[PartitionValues] | None = None
    schema_policy: SchemaPolicy = "fail"
    delete_when: str | None = None
    only_if_newer: str | None = None
    declared: WriteMode | None = None
    delivery: str | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns of the rows that are not stored."""
        return tuple(name for name in (self.delete_when, self.delivery) if name is not None)


@dataclass(frozen=True)
class WriteResult:
    """One commit, counted from Parquet footers.

    Attributes:
        version: the Delta version the commit made.
        rows_written: rows that are new or changed in this commit.
        rows_updated: how many of them replaced a row with the same keys.
        rows_total: rows in the table after the commit, None if some file carries no count.
        partitions: partitions written or replaced, sorted.
        rows_deleted: rows that a delete marker took out.
        columns: name and Spark type of each column of the table.
        columns_added: columns that joined the table in this commit; nested ones as ``a.b``.
        columns_ignored: columns of the rows that were left out.
    """

    version: int
    rows_written: int
    rows_updated: int
    rows_total: int | None
    files_added: int
    files_removed: int
    bytes_written: int
    partitions: tuple[PartitionValues, ...]
    rows_deleted: int = 0
    columns: tuple[tuple[str, str], ...] = ()
    columns_added: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()
