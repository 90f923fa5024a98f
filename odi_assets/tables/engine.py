"""The protocol of a table engine: who writes and reads tables. :func:`engine_of` is the one place that chooses.

Every table is a Delta table, and its log is the truth, whichever engine wrote it: fences, stamps and positions are read
from a ``TableHandle`` alone. So a table may go from one engine to another at any version.
"""

from __future__ import annotations

import inspect
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from odi_assets.config.models import SchemaPolicy, WriteMode
from odi_assets.config.table_engines import TABLE_ENGINES
from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, require_unfenced
from odi_assets.delta.files.spans import PartitionChoice
from odi_assets.delta.partition_values import PartitionValues, same_spellings
from odi_assets.delta.protocol import TakenFeatures, require_readable
from odi_assets.delta.retry import raced
from odi_assets.delta.table import LiveFile, TableHandle, rows_in
from odi_assets.errors import TableConflictError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.delta.changes import TableChanges
    from odi_assets.delta.files.footers import WrittenFile
    from odi_assets.delta.maintenance.maintain import Maintenance, MaintenanceOptions
    from odi_assets.tables.parts import TableParts

    Admission = Callable[[DataFrame, Sequence[WrittenFile]], DataFrame | None]
    """Looks at the rows of a write, which are staged in these files and not committed. It raises to refuse the write,
    or returns the rows to be written; None: all of them."""


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
        span: for partition_overwrite of a range, beside ``replace``: partitions that are replaced too, known once the
            types of the columns are.
        delivery: a column of the rows that is not stored, and of an integer type: the number of the delivery that a
            row came in. What is stored is what one write for each delivery would leave, in the order of the numbers.
        mixes_deliveries: the rows came in several deliveries, and do not say which: of rows with the same keys, none is
            known to be the first.
        replacing: for upsert into a table that is there, what looks at the rows, and at the stored rows with their
            keys, which are about to be replaced; it may stop the write. None for these if there are none.
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
    mixes_deliveries: bool = False
    admit: Admission | None = None
    span: PartitionChoice | None = None
    replacing: Callable[[DataFrame, DataFrame | None], None] | None = None

    def replaced_in(
        self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]
    ) -> Sequence[PartitionValues] | None:
        """``replace``, and the ``partitions`` of a table that lie in ``span``; None if the write names none.

        Args:
            kinds: the types of the table's columns, as Delta has them.
        """
        if self.replace is None:
            return None
        named = [same_spellings(partition, kinds) for partition in self.replace]
        if self.span is None:
            return named
        return [*named, *self.span.among(partitions, kinds)]

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
        partition_rows: how many of ``rows_written`` each of the partitions got, in the same order.
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
    partition_rows: tuple[int, ...] = ()
    rows_deleted: int = 0
    columns: tuple[tuple[str, str], ...] = ()
    columns_added: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, handle: TableHandle, changes: FileChanges, version: int, columns: tuple[tuple[str, str], ...]
    ) -> WriteResult:
        """What the commit of ``changes`` on ``handle`` did, which made ``version``; ``columns`` are the table's, with
        their types."""
        added = [*changes.new, *changes.moved]
        changed = [*(file.partition for file in changes.new), *changes.partitions]
        partitions = {tuple(sorted(values.items())): values for values in changed if values}
        before: int | None = 0
        next_version = 0
        if handle.version is not None:
            before, next_version = handle.rows, handle.version + 1
        gone = rows_in(changes.removed)
        rows_total = None if before is None or gone is None else before - gone + sum(file.rows for file in added)
        if version != next_version:
            # Others committed in between, so only the table itself knows.
            rows_total = TableHandle.open(handle.location, version).rows
        rows_in_each = Counter(dict.fromkeys(partitions, 0))
        for file in changes.new:
            rows_in_each[tuple(sorted(file.partition.items()))] += file.rows
        null_first = sorted(partitions, key=lambda items: [(value is not None, value or "") for _, value in items])
        return cls(
            version=version,
            rows_written=sum(file.rows for file in changes.new),
            rows_updated=changes.rows_updated,
            rows_total=rows_total,
            files_added=len(added),
            files_removed=len(changes.removed),
            bytes_written=sum(file.size for file in added),
            partitions=tuple(partitions[items] for items in null_first),
            partition_rows=tuple(rows_in_each[items] for items in null_first),
            rows_deleted=changes.rows_deleted,
            columns=columns,
        )


class TableEngine(ABC):
    """Writes rows into Delta tables and reads them back. It keeps nothing between two calls.

    What every engine keeps to, in words: a write is one commit on the handle that it is given, made with the stamp's
    fence and facts, or the table stays as it was. ``odi_assets_tests/tables`` has the tests of it.

    Attributes:
        features: which features of Delta's protocol a table may use.
        admits: whether its writes of DataFrames call ``WriteSpec.admit`` and ``WriteSpec.replacing``.
    """

    features: ClassVar[TakenFeatures]
    admits: ClassVar[bool] = False

    def open(self, location: Location) -> TableHandle:
        """The table as it is now, or a handle that says it does not exist."""
        return TableHandle.open(location)

    def require_readable(self, handle: TableHandle) -> None:
        """Raises UnsupportedFeatureError if the table uses a feature with which this engine would read wrong rows."""
        require_readable(handle, self.features)

    def read(self, spark: SparkSession, handle: TableHandle) -> DataFrame:
        """The rows of the handle's version.

        Raises:
            TableError: there is no table, or it uses a feature that this engine does not read.
        """
        self.require_readable(handle)
        return self.read_files(spark, handle, handle.live_files)

    @abstractmethod
    def read_files(
        self, spark: SparkSession, handle: TableHandle, files: Iterable[LiveFile], *, file_as: str | None = None
    ) -> DataFrame:
        """The rows of some of the table's files, with the table's columns in the table's order.

        Args:
            file_as: name of a column to be added at the end: the URI of the file that a row is in, as Spark spells it.
        """

    @abstractmethod
    def changed_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
        """The rows that ``changes`` added or changed, without those that a later one of them replaced."""

    @abstractmethod
    def affected_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> Iterator[DataFrame]:
        """The rows that ``changes`` added, and the former rows that they replaced or removed."""

    def write(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        """Write ``df`` in one commit on ``handle``, or leave the table as it was.

        A write that conflicts with a concurrent change starts over on the table as it is then, unless its fence is
        taken or its rows hold only for the table as it was.

        Raises:
            FencedError: another run committed this fence number first.
            TableConflictError: another writer changed what this write was computed from.
            TableError: the table cannot take these rows: schema, partitioning or protocol.
        """
        try:
            return self.write_on(df, handle, spec, stamp)
        except TableConflictError:
            if not handle.exists or not stamp.fences:
                raise

        def again() -> WriteResult:
            now = handle.refreshed()
            require_unfenced(now, stamp)
            return self.write_on(df, now, spec, replace(stamp, write_id=uuid.uuid4().hex))

        return raced(again, lost=lambda error: isinstance(error, TableConflictError))

    @abstractmethod
    def write_on(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        """Stage the rows and commit them on this ``handle``, without starting over; raises as :meth:`write` does."""

    @abstractmethod
    def write_once(
        self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp, *, is_small: bool = False
    ) -> WriteResult:
        """Write ``df`` as :meth:`write` does, and compute it once, whatever happens: a batch of a stream.

        Args:
            is_small: its rows fit into the memory of this process.
        """

    @abstractmethod
    def write_arrow(
        self,
        rows: pa.Table | TableParts,
        handle: TableHandle,
        spec: WriteSpec,
        stamp: Stamp,
        open_spark: Callable[[], SparkSession],
    ) -> WriteResult:
        """Write rows that are in this process, as :meth:`write` does.

        Args:
            open_spark: gives Spark's session, if the engine needs it for these rows.
        """

    @abstractmethod
    def restore(self, handle: TableHandle, version: int, stamp: Stamp, fences: Iterable[tuple[str, int]] = ()) -> int:
        """Give the table the rows, schema and properties of ``version``, and return the version that this makes.

        Args:
            fences: further app transactions that the commit takes, as (app_id, number).

        Raises:
            FencedError, TableConflictError: another commit came first; the table is as it was.
            TableError: files of ``version`` are gone, or Delta refuses.
        """

    @abstractmethod
    def maintain(self, location: Location, options: MaintenanceOptions, facts: Mapping[str, Any]) -> Maintenance:
        """Compact, checkpoint, clean the log and vacuum the table at ``location``; in a dry run, only look.

        Raises:
            TableConflictError: writers took files away during each attempt to compact.
            TableError: there is no table, or it has features that this engine does not write.
        """


def engine_of(table: TableHandle | Location) -> TableEngine:
    """The engine of a table: the one that its connection names.

    Raises:
        ConfigError: no engine has this name, or its package cannot be loaded.
    """
    location = table if isinstance(table, Location) else table.location
    return _engine(location.table_engine)


@cache
def _engine(name: str) -> TableEngine:
    kind: type[TableEngine] = TABLE_ENGINES.load(name, _is_engine)
    return kind()


def _is_engine(kind: object) -> bool:
    """Whether an object is the class of an engine, with all methods of the protocol."""
    return isinstance(kind, type) and issubclass(kind, TableEngine) and not inspect.isabstract(kind)
