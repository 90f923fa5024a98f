"""Reads the state of a stateful query through Spark's data sources ``state-metadata`` and ``statestore``.

Nothing here needs a JVM in this process: all of it works through Spark Connect. What Spark would answer with an unclear
error, with none, or only when rows are counted, is looked for in the checkpoint's files first and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from odi_assets.checkpoints.files import (
    checkpoint_format,
    first_changes,
    require_changes,
    require_state,
    state_files,
)
from odi_assets.checkpoints.inspect import (
    Checkpoint,
    Operator,
    StateVariable,
    inspect,
    local_path,
    rows_store,
)
from odi_assets.errors import CheckpointError
from odi_assets.spark.lazy import F, java_errors, spark_errors
from odi_assets.spark.session import apply_conf, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.spark.session import SessionHandle

JoinSide: TypeAlias = Literal["left", "right"]

_SIDES = ("left", "right")
_REPORT_LAG = "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
_UPLOAD_ON_LAG = "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class CheckpointReader:
    """The state in a checkpoint, at any batch that it retains, whichever provider wrote it. Its query may be running.

    Args:
        path: the query's ``checkpointLocation``: a folder, or any URI that Spark can read. Of a URI that is not on this
            machine, what is asked for is checked by Spark alone unless there is a ``copy``.
        spark: the session to read with; it need not have run a streaming query. If None, the active one, else a new one
            that :meth:`close` stops. Through Spark Connect, state of checkpoint format 2 is read in a clone of the
            session unless that has the format too; DataFrames of the clone do not join DataFrames of the session.
        copy: of a checkpoint that is not on this machine, a folder with its logs, as ``copy_of_remote`` makes it.
        settings: of the session, by which Spark reaches the store.
    """

    def __init__(
        self,
        path: str | Path,
        spark: SparkSession | None = None,
        *,
        copy: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.path = str(path).rstrip("/") or "/"
        self._spark = spark
        self._copy = copy
        self._settings = dict(settings or {})
        self._started: SessionHandle | None = None
        self._clone: Any = None

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session if this reader started it, and give up the clone of it if there is one."""
        if self._clone is not None:
            self._clone.client.release_session()
            self._clone.client.close()
            self._clone = None
        if self._started is not None:
            self._started.stop()
            self._started = self._spark = None

    @property
    def spark(self) -> SparkSession:
        """The session that reads."""
        if self._spark is None:
            self._started = open_session(app_name="odi_checkpoint")
            self._spark = self._started.spark
        if self._settings:
            apply_conf(self._spark, self._settings)
            self._settings = {}
        return self._spark

    def inspect(self) -> Checkpoint:
        """What the checkpoint's logs say, without Spark.

        Raises:
            CheckpointError: there is no checkpoint on this machine, or it is damaged.
        """
        return inspect(self._copy or self.path)

    def metadata(self, batch: int | None = None) -> DataFrame:
        """A row for each state store of each stateful operator, as Spark's source ``state-metadata`` gives it.

        Its columns are operatorId, operatorName, stateStoreName, numPartitions, minBatchId, maxBatchId and
        operatorProperties; also ``_numColsPrefixKey`` if it is selected. ``minBatchId`` is the oldest batch that is
        still kept, and says nothing about what the query purged.

        Args:
            batch: the operators as that batch had them; the last committed one if None.

        Raises:
            CheckpointError: there is no checkpoint, where Spark itself would return no rows, or no such batch in it.
        """
        known = self._known()
        if known and batch is not None:
            known.committed_batch(batch)
        return self._load("state-metadata", known, {"batchId": batch})

    def read(
        self,
        store: str | None = None,
        *,
        side: JoinSide | None = None,
        batch: int | None = None,
        operator: int = 0,
        variable: str | None = None,
        flatten: bool | None = None,
        snapshot_batch: int | None = None,
        snapshot_partition: int | None = None,
    ) -> DataFrame:
        """The state of one operator, with the columns key, value and partition_id.

        Args:
            store: which of the operator's stores; a join has four, such as ``left-keyWithIndexToValue``.
            side: all rows of one side of a join, without the flag ``matched`` that ``store`` gives.
            batch: the state after that batch; the last committed one if None.
            operator: which stateful operator.
            variable: which variable of ``transformWithState``. A list has the column list_element in place of value, a
                map user_map_key and user_map_value.
            flatten: False gives a list or a map whole, in the column list_value or map_value.
            snapshot_batch: rebuild the state from the snapshot after this batch, whatever newer ones there are, with
                the changes since; needs ``snapshot_partition``.
            snapshot_partition: the one partition to read then.

        Raises:
            CheckpointError: there is no checkpoint; no such operator, store, side, variable or batch in it; or a file
                that this state is rebuilt from is missing or torn.
        """
        known = self._known()
        if known:
            stateful_operator = known.operator(operator)
            self._check_part(stateful_operator, store, side, variable, flatten)
            at = known.committed_batch(batch)
            if snapshot_batch is not None or snapshot_partition is not None:
                self._check_snapshot(known, stateful_operator, store, side, snapshot_batch, snapshot_partition, at)
            if self._copy is None:
                require_state(known, stateful_operator, _stores(store, side), at)
        options = {
            "operatorId": operator,
            "batchId": batch,
            "storeName": store,
            "joinSide": side,
            "stateVarName": variable,
            "flattenCollectionTypes": flatten,
            "snapshotStartBatchId": snapshot_batch,
            "snapshotPartitionId": snapshot_partition,
        }
        frame = self._load("statestore", known, options)
        return _with_declared_columns(frame) if side else frame

    def changes(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        store: str | None = None,
        side: JoinSide | None = None,
        operator: int = 0,
        variable: str | None = None,
    ) -> DataFrame:
        """What each batch did to the state of one operator, with the columns batch_id, change_type and the columns of
        :meth:`read`. The type is ``update`` or ``append``, or ``delete`` without a value. RocksDB keeps changes only
        with changelog checkpointing.

        Args:
            first: the first batch; the oldest whose changes are kept if None.
            last: the last batch; the last committed one if None.
            store: which of the operator's stores.
            side: the rows of one side of a join: short for the store ``<side>-keyWithIndexToValue``.
            operator: which stateful operator.
            variable: which variable of ``transformWithState``.

        Raises:
            CheckpointError: as :meth:`read`, and if ``last`` comes before ``first``.
        """
        known = self._known()
        if known:
            stateful_operator = known.operator(operator)
            self._check_part(stateful_operator, store, side, variable, None)
            end = known.committed_batch(last)
            stores = _stores(rows_store(side) if side else store, None)
            start = first_changes(known, stateful_operator, stores) if first is None else known.committed_batch(first)
            if end < start:
                raise self._error(f"batch {end} comes before batch {start}", "give the earlier batch first")
            if self._copy is None:
                require_changes(known, stateful_operator, stores, start, end)
            first = start
        return self._load(
            "statestore",
            known,
            {
                "operatorId": operator,
                "storeName": rows_store(side) if side else store,
                "stateVarName": variable,
                "readChangeFeed": True,
                "changeStartBatchId": first or 0,
                "changeEndBatchId": last,
            },
        )

    def timers(self, batch: int | None = None, operator: int = 0) -> DataFrame:
        """The timers that ``transformWithState`` has registered: key, expiration_timestamp_ms, partition_id.

        Raises:
            CheckpointError: as :meth:`read`, and if the operator has no timers.
        """
        known = self._known()
        if known:
            stateful_operator = known.operator(operator)
            self._require_variables(stateful_operator, "timers")
            if stateful_operator.time_mode in (None, "None", "NoTime"):
                raise self._error(f"operator {operator} has no timers: its time mode is None", "read its variables")
            at = known.committed_batch(batch)
            if self._copy is None:
                require_state(known, stateful_operator, ("default",), at)
        options = {"operatorId": operator, "batchId": batch, "readRegisteredTimers": True}
        return self._load("statestore", known, options)

    def variables(self, operator: int | None = None) -> tuple[StateVariable, ...]:
        """The named variables of ``transformWithState``: of one operator, or of all if None. No Spark needed.

        Raises:
            CheckpointError: there is no checkpoint, or that operator has no variables.
        """
        known = self.inspect()
        if operator is None:
            return tuple(variable for owner in known.operators for variable in owner.variables)
        stateful_operator = known.operator(operator)
        self._require_variables(stateful_operator, "variables")
        return stateful_operator.variables

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The block in which a DataFrame of this reader is counted or collected: Spark's errors become ours.

        Raises:
            CheckpointError: Spark could not read the state, for instance because its query has just cleaned it away.
        """
        try:
            yield
        except (spark_errors.PySparkException, java_errors.Py4JError) as error:
            raise CheckpointError(
                f"Spark cannot read the state in {self.path}: {gist(error)}",
                fix=f"`odi checkpoint metadata {self.path}` lists its operators, stores and batches, "
                f"`odi checkpoint files {self.path}` what is missing or torn",
                path=self.path,
            ) from error

    # -- what they share -----------------------------------------------------------------------------------------------

    def _known(self) -> Checkpoint | None:
        """The content of its logs; None for a checkpoint that is not on this machine, nor a copy of it."""
        return self.inspect() if self._copy or local_path(self.path) else None

    def _load(self, source: str, known: Checkpoint | None, options: Mapping[str, Any]) -> DataFrame:
        location = self.path if self._copy else spark_path(known.path) if known else self._remote()
        form = checkpoint_format(known) if known else None
        spark = self._session(form)
        with self.errors(), _reading(spark, form):
            reader = spark.read.format(source)
            for name, value in options.items():
                if value is not None:
                    reader = reader.option(name, value)
            frame = reader.load(location)
            frame.schema  # noqa: B018  through Connect, this is the first call that can raise an error
            return frame

    def _session(self, form: int | None) -> SparkSession:
        """The session to read a checkpoint format with. In Spark Connect, the setting for the format has to stay for as
        long as DataFrames are used, and new queries would take it too: a format other than the session's gets a clone
        of the session.
        """
        if not _is_connect(self.spark) or form is None or self.spark.conf.get(_FORMAT, "1") == str(form):
            return self.spark
        if self._clone is None:
            session: Any = self.spark
            self._clone = session.cloneSession()
            self._clone.conf.set(_FORMAT, str(form))
        clone: SparkSession = self._clone
        return clone

    def _remote(self) -> str:
        with self.errors():
            self.spark.read.text(f"{self.path}/metadata").take(1)
        return self.path

    def _check_part(
        self, operator: Operator, store: str | None, side: str | None, variable: str | None, flatten: bool | None
    ) -> None:
        """Raise CheckpointError unless these say exactly one part of the operator's state that exists."""
        here = f"operator {operator.operator_id} is {operator.name}"
        stores = ", ".join(operator.store_names)
        names = ", ".join(declared.name for declared in operator.variables)
        if side and side not in _SIDES:
            raise self._error(f"a join has no side {side}", "its sides are left and right")
        if side and not operator.is_join:
            raise self._error(
                f"there is no join in operator {operator.operator_id}, which is {operator.name}",
                f"leave the side out; its stores are {stores}",
            )
        if side and store:
            raise self._error("a side and a store were both asked for", f"give one; {rows_store(side)} is that side's")
        if operator.is_join and not side and not store:
            raise self._error(here, f"say which side, left or right, or which store: {stores}")
        if variable is not None or flatten is not None:
            self._require_variables(operator, "variables")
        if operator.has_variables and store not in operator.store_names[:1]:
            if store is not None:
                raise self._error(f"{here}: it has one store, {stores}", f"give one of its variables: {names}")
            if variable is None:
                raise self._error(here, f"say which of its variables: {names}")
        if variable is not None and variable not in [declared.name for declared in operator.variables]:
            raise self._error(
                f"operator {operator.operator_id} has no variable {variable}", f"its variables are {names}"
            )
        if store is not None and store not in operator.store_names:
            raise self._error(f"operator {operator.operator_id} has no store {store}", f"its stores are {stores}")
        for store_info in operator.stores:
            if store_info.schema_named_at:
                raise self._error(
                    f"Spark looks for its state's schema at {store_info.schema_named_at}, where there is none",
                    "the checkpoint was moved or copied, and Spark noted absolute paths: read it where it was written",
                )

    def _check_snapshot(
        self,
        known: Checkpoint,
        operator: Operator,
        store: str | None,
        side: str | None,
        batch: int | None,
        partition: int | None,
        at: int,
    ) -> None:
        if batch is None or partition is None:
            raise self._error("a snapshot belongs to one batch and one partition", "give both")
        if batch > at:
            raise self._error(f"the snapshot after batch {batch} comes after batch {at}", "give an earlier one")
        for files in state_files(known, operator, _stores(store, side)):
            if files.partition == partition and batch + 1 in files.snapshots:
                continue
            if files.partition == partition:
                has = ", ".join(str(version - 1) for version in sorted(files.snapshots)) or "none"
                raise self._error(
                    f"{files} has no snapshot after batch {batch}", f"it has them after the batches {has}"
                )
        if partition not in range(operator.stores[0].partitions):
            raise self._error(
                f"operator {operator.operator_id} has no partition {partition}",
                f"its partitions are 0 to {operator.stores[0].partitions - 1}",
            )

    def _require_variables(self, operator: Operator, what: str) -> None:
        if not operator.has_variables:
            raise self._error(
                f"operator {operator.operator_id} is {operator.name}: only transformWithState has {what}",
                f"read its stores: {', '.join(operator.store_names)}",
            )

    def _error(self, fault: str, fix: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {fault}.", fix=fix, path=self.path)


_links: dict[Path, TemporaryDirectory[str]] = {}


def spark_path(checkpoint: Path) -> str:
    """A path under which Spark reads the state in a folder: a link to it if its name has characters that a URI escapes,
    for Spark escapes these twice (4.2, ``StateSourceOptions``). It is there until this process ends."""
    folder = checkpoint.resolve()
    if quote(str(folder), safe="/:@=+,") == str(folder):
        return str(folder)
    if folder not in _links:
        _links[folder] = TemporaryDirectory(prefix="odi-checkpoint-")
        Path(_links[folder].name, "link").symlink_to(folder, target_is_directory=True)
    return f"{_links[folder].name}/link"


def _stores(store: str | None, side: str | None) -> tuple[str, ...]:
    """The stores that Spark reads for a part of an operator's state."""
    if side:
        return (f"{side}-keyToNumValues", rows_store(side))
    return (store or "default",)


def _with_declared_columns(frame: DataFrame) -> DataFrame:
    """The rows of a join's side with the columns that their schema has.

    Spark 4.2 leaves the flag ``matched`` in the rows although the schema lacks it, so that ``to_json`` of them, and
    what else takes a row's own number of columns, fails with ArrayIndexOutOfBoundsException.
    """
    names = frame.select("value.*").columns
    return frame.withColumn("value", F.struct(*(F.col("value").getField(name).alias(name) for name in names)))


def gist(error: Exception) -> str:
    """The sentence of an error that says most, without the stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "[" in line), lines[0] if lines else type(error).__name__)
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return " ← ".join([said, *causes[-1:]])[:500]


@contextmanager
def _reading(spark: SparkSession, form: int | None) -> Iterator[None]:
    """The settings that reading state of a checkpoint format needs; they are taken when a DataFrame is made.

    The state store coordinator, which only a streaming query starts, is left alone (SPARK-58973, Spark 4.2): the one
    setting turns its use off, the other has to be off before and on after it, or a streaming query with RocksDB fails.
    Spark Connect makes DataFrames on the server at each use, so there the settings stay.
    """
    wanted = {_UPLOAD_ON_LAG: "false", _REPORT_LAG: "false"} | ({_FORMAT: str(form)} if form else {})
    before = {key: spark.conf.get(key, None) for key in wanted}
    apply_conf(spark, wanted)
    try:
        yield
    finally:
        if not _is_connect(spark):
            for key, old in reversed(before.items()):
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")
