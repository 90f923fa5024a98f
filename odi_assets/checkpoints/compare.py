"""Finds what would fail or be ignored if a query went on from a checkpoint, before Spark starts the query.

Spark compares a query with its checkpoint only while it plans a batch. Its error names neither the node nor a remedy,
and it does not report settings that the checkpoint overrides. Here the query is planned against a temporary checkpoint
of its own: Spark writes down the operators and the schemas of their state, no row is computed, and the two checkpoints
are compared.
"""

from __future__ import annotations

import glob
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from odi_assets.checkpoints.copies import ABANDONED, local_copy, scratch_in_store, scratch_prefix
from odi_assets.checkpoints.inspect import Checkpoint, Operator, inspect
from odi_assets.checkpoints.log_files import read_json
from odi_assets.checkpoints.reader import gist
from odi_assets.checkpoints.schemas import StateSchema, event_time_delay, read_schemas, type_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLANNED = "odi: planned, nothing is computed"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_BY_NAME = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_REBUILD = "Put the query back as it was, or rebuild it from its sources: a full refresh makes a new checkpoint"
_AGGREGATIONS = ("statestoresave", "statestoresaveexec")
"""What names of operators that aggregate end with, in lower case. The value of their state is named by functions."""
_KEEPS = "Remove the setting, or rebuild the query: a full refresh makes a new checkpoint"


class DifferenceEffect(StrEnum):
    """What a difference does if the query goes on from the checkpoint."""

    FAILS = "fails"
    """Spark stops with an error in the first batch."""
    MISREAD = "misread"
    """Spark goes on, and takes what the state holds for something else: a sum for a maximum."""
    IGNORED = "ignored"
    """What is new has no effect: the checkpoint's counts."""
    FROM_NOW_ON = "from now on"
    """What is new holds for new rows; the state of before stays as it is."""


@dataclass(frozen=True)
class CheckpointDifference:
    """A difference between a query and the checkpoint that it is to go on from.

    Attributes:
        what: ``sources``, ``source 0``, ``operator 0``, ``operator 0, left-keyWithIndexToValue: key``, or a setting.
        stored: what the checkpoint has; empty if Spark refuses the query whatever that is.
        wanted: what the query has.
    """

    effect: DifferenceEffect
    what: str
    stored: str
    wanted: str
    remedy: str
    since: str = "in the checkpoint"

    def __str__(self) -> str:
        return f"{self.what}: {self.stored} {self.since}, {self.wanted} in the query ({self.effect}). {self.remedy}"


def check_against(
    checkpoint: Checkpoint | str | Path,
    frame: DataFrame,
    settings: Mapping[str, str] | None = None,
    *,
    output_mode: str = "append",
    store: tuple[str, Mapping[str, Any]] | None = None,
) -> tuple[CheckpointDifference, ...]:
    """Compare a query that is about to start with the checkpoint it goes on from; what fails comes first.

    What Spark does not note cannot be compared: the conditions of a join or a filter, the length of a window. Nothing
    is said of operators and their state while the sources have no row at all, for then Spark plans no batch.

    Args:
        checkpoint: the folder of the checkpoint, on this machine.
        frame: the streaming DataFrame, as it would be written.
        settings: Spark's settings that the query is to run with.
        output_mode: as it would be started.
        store: of a copy, the URI of the checkpoint and the options of fsspec's file system: the query is planned there.
            Needed with Spark Connect, whose server does not see files of this machine.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged, or the store cannot be reached.
    """
    known = checkpoint if isinstance(checkpoint, Checkpoint) else inspect(checkpoint)
    if not known.batches:
        return ()
    ignored = [
        CheckpointDifference(DifferenceEffect.IGNORED, name, stored, wanted, _KEEPS)
        for name, (wanted, stored) in known.overrides(settings or {}).items()
    ]
    with _planned(frame, known.path, store, output_mode) as (planned, failure):
        if failure is not None:
            refused = CheckpointDifference(
                DifferenceEffect.FAILS, "the query", "", failure, "Spark refuses it: change the query"
            )
            return (refused, *ignored)
        differences = [*_compare_sources(known, planned), *_compare_operators(known, planned), *ignored]
    return tuple(sorted(differences, key=lambda difference: list(DifferenceEffect).index(difference.effect)))


@contextmanager
def _planned(
    frame: DataFrame, beside: Path, store: tuple[str, Mapping[str, Any]] | None, output_mode: str
) -> Iterator[tuple[Checkpoint, str | None]]:
    """A checkpoint in which Spark has planned the first batch, and why it refused the query if it did.

    It stands beside the real one, for that is where all machines of a cluster reach it.
    """
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(_scratch_folder(beside))
            failure = _plan(frame, str(folder), output_mode)
        else:
            uri, options = stack.enter_context(scratch_in_store(*store)), store[1]
            failure = _plan(frame, uri, output_mode)
            folder = beside if failure else stack.enter_context(local_copy(uri, options, logs_only=True))
        yield _content(folder), failure


def _plan(frame: DataFrame, checkpoint: str, output_mode: str) -> str | None:
    """Have Spark plan the first batch, and none of its rows computed. Returns why it refused the query, if it did."""

    def stop(*_: object) -> None:
        raise RuntimeError(_PLANNED)

    with _silent(frame):
        try:
            writer = frame.writeStream.foreachBatch(stop).outputMode(output_mode)
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        # What Spark raises depends on the kind of session, and on where in the plan it finds the fault.
        except Exception as error:  # noqa: BLE001
            return None if _PLANNED in str(error) else gist(error)
    return None


@contextmanager
def _scratch_folder(checkpoint: Path) -> Iterator[Path]:
    # Absolute: a JVM need not have this process's current folder.
    folder = checkpoint.resolve()
    scratch = folder.parent / f"{scratch_prefix(folder.name)}{uuid4().hex}"
    _remove_left_behind(folder)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_left_behind(checkpoint: Path) -> None:
    """Remove what processes that were killed while they compared have left beside the checkpoint."""
    for folder in checkpoint.parent.glob(f"{glob.escape(scratch_prefix(checkpoint.name))}{'[0-9a-f]' * 32}"):
        # Another comparison may take it away at the same time.
        with suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)


def _content(scratch: Path) -> Checkpoint:
    if (scratch / "metadata").is_file():
        return inspect(scratch)
    return Checkpoint(scratch, "", (), (), None)


@contextmanager
def _silent(frame: DataFrame) -> Iterator[None]:
    """The block in which nobody logs that the query ended, which Spark and py4j would as errors."""
    py4j = logging.getLogger("py4j.clientserver")
    before = py4j.level
    py4j.setLevel(logging.CRITICAL + 1)
    try:
        with _silent_jvm(frame):
            yield
    finally:
        py4j.setLevel(before)


@contextmanager
def _silent_jvm(frame: DataFrame) -> Iterator[None]:
    if not _is_classic(frame):
        yield
        return
    log4j: Any = frame.sparkSession._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    before = log4j.LogManager.getLogger(_STREAMING).getLevel()
    log4j.core.config.Configurator.setLevel(_STREAMING, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(_STREAMING, before)


def _is_classic(frame: DataFrame) -> bool:
    return not type(frame.sparkSession).__module__.startswith("pyspark.sql.connect")


def _compare_sources(known: Checkpoint, planned: Checkpoint) -> Iterator[CheckpointDifference]:
    if not planned.batches:
        return
    stored, wanted = known.batches[-1].offsets, planned.batches[-1].offsets
    if planned.batches[-1].conf.get(_BY_NAME) == "true":
        yield from _compare_names(set(stored), set(wanted))
    elif set(stored) != set(wanted):
        yield CheckpointDifference(DifferenceEffect.FAILS, "sources", f"{len(stored)}", f"{len(wanted)}", _REBUILD)
        return
    for name in stored.keys() & wanted.keys():
        before, after = _shape(stored[name]), _shape(wanted[name])
        if before and after and before != after:
            yield CheckpointDifference(
                DifferenceEffect.FAILS, f"source {name}", f"offsets of {before}", f"offsets of {after}", _REBUILD
            )


def _compare_names(stored: set[str], wanted: set[str]) -> Iterator[CheckpointDifference]:
    """Sources that go by their names may come and go; one that is renamed is another one for Spark."""
    for name in sorted(wanted - stored):
        remedy = "It is read from its beginning: a source that was renamed gives its rows again"
        yield CheckpointDifference(DifferenceEffect.FROM_NOW_ON, f"source {name}", "none", "a source", remedy)
    for name in sorted(stored - wanted):
        remedy = "It is not read any more: what it gave so far stays in the state and in the table"
        yield CheckpointDifference(DifferenceEffect.FROM_NOW_ON, f"source {name}", "a source", "none", remedy)


def _shape(offset: str | None) -> str | None:
    """What kind of offset it is; None if there is none to tell by."""
    value = read_json(offset) if offset is not None else None
    if isinstance(value, dict):
        return ", ".join(sorted(value)) or None
    return None if value is None else type(value).__name__


def _compare_operators(known: Checkpoint, planned: Checkpoint) -> Iterator[CheckpointDifference]:
    if not planned.batches:
        return
    before = {operator.operator_id: operator for operator in known.operators}
    after = {operator.operator_id: operator for operator in planned.operators}
    for number in sorted({*before, *after}):
        stored, wanted = before.get(number), after.get(number)
        if stored is None or wanted is None or stored.name != wanted.name:
            yield CheckpointDifference(
                DifferenceEffect.FAILS, f"operator {number}", _name(stored), _name(wanted), _REBUILD
            )
        else:
            yield from _compare_state(stored, wanted)


def _name(operator: Operator | None) -> str:
    return "none" if operator is None else operator.name or "not described"


def _compare_state(stored: Operator, wanted: Operator) -> Iterator[CheckpointDifference]:
    where = f"operator {stored.operator_id}"
    for name in ("timeMode", "outputMode"):
        before, after = stored.properties.get(name), wanted.properties.get(name)
        if before != after:
            yield CheckpointDifference(DifferenceEffect.FAILS, f"{where}, {name}", str(before), str(after), _REBUILD)
    kinds = {stored_variable.name: stored_variable.kind for stored_variable in stored.variables}
    for variable in wanted.variables:
        before = kinds.pop(variable.name, None)
        if before is None:
            yield CheckpointDifference(
                DifferenceEffect.FROM_NOW_ON,
                f"{where}, variable {variable.name}",
                "none",
                variable.kind,
                "It begins empty",
            )
        elif before != variable.kind:
            yield CheckpointDifference(
                DifferenceEffect.FAILS, f"{where}, variable {variable.name}", before, variable.kind, _REBUILD
            )
    for name, kind in kinds.items():
        remedy = "Its state is dropped in the first batch: keep the variable if it is needed"
        yield CheckpointDifference(DifferenceEffect.FROM_NOW_ON, f"{where}, variable {name}", kind, "none", remedy)
    schemas, schemas_now = read_schemas(stored), read_schemas(wanted)
    if schemas_now and not schemas:
        # Spark would write the schemas of the query as it is, and read the state by them.
        now = "; ".join(f"{name}: {_columns(schema.value)}" for name, schema in schemas_now.items())
        yield CheckpointDifference(DifferenceEffect.FAILS, f"{where}, schemas of its state", "gone", now, _REBUILD)
    for name, schema in schemas_now.items():
        if name in schemas:
            is_aggregation = _name(stored).lower().endswith(_AGGREGATIONS)
            yield from _compare_schema(f"{where}, {name}", schemas[name], schema, is_aggregation)


def _compare_schema(
    where: str, stored: StateSchema, wanted: StateSchema, is_aggregation: bool
) -> Iterator[CheckpointDifference]:
    keys = {name for schema in (stored, wanted) for name, _ in type_names(schema.key)}
    for part in ("key", "value"):
        before: Mapping[str, Any] = getattr(stored, part)
        after: Mapping[str, Any] = getattr(wanted, part)
        if not _fits(after, before):
            yield CheckpointDifference(
                DifferenceEffect.FAILS, f"{where}: {part}", _columns(before), _columns(after), _REBUILD
            )
        elif _is_misread(before, after, keys if is_aggregation and part == "value" else None):
            yield CheckpointDifference(
                DifferenceEffect.MISREAD, f"{where}: {part}", _columns(before), _columns(after), _REBUILD
            )
        elif type_names(before) != type_names(after):
            remedy = "Columns of the state are taken by position: check that the former columns mean the same"
            yield CheckpointDifference(
                DifferenceEffect.FROM_NOW_ON, f"{where}: {part}", _columns(before), _columns(after), remedy
            )
    old, new = event_time_delay(stored), event_time_delay(wanted)
    if old is not None and new is not None and old != new:
        remedy = "The watermark goes on from where it is; it never goes back"
        yield CheckpointDifference(
            DifferenceEffect.FROM_NOW_ON, f"{where}: watermark delay", f"{old} ms", f"{new} ms", remedy
        )


def _is_misread(before: Mapping[str, Any], after: Mapping[str, Any], keys: Set[str] | None) -> bool:
    """Whether columns of state, which Spark takes by position, are surely others: the same ones in another order, or
    results of other functions.

    Args:
        keys: of the value of an aggregation, the columns that its rows are grouped by; None for other state.
    """
    old, new = ([name for name, _ in type_names(struct_type)] for struct_type in (before, after))
    if old != new and sorted(old) == sorted(new):
        return True
    return keys is not None and [name for name in old if name not in keys] != [name for name in new if name not in keys]


def _columns(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in type_names(schema))


def _fits(new: Any, old: Any) -> bool:
    """Whether Spark takes state of the type ``old`` as ``new``: names may differ, and NULL may become impossible, but
    not possible (StateSchemaCompatibilityChecker)."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return bool(new == old)
    if new["type"] != old["type"]:
        return False
    if new["type"] == "struct":
        pairs = list(zip(new["fields"], old["fields"], strict=False))
        return len(new["fields"]) == len(old["fields"]) and all(
            _fits(new_field["type"], old_field["type"]) and (old_field["nullable"] or not new_field["nullable"])
            for new_field, old_field in pairs
        )
    if new["type"] == "array":
        return _fits(new["elementType"], old["elementType"]) and (old["containsNull"] or not new["containsNull"])
    if new["type"] == "map":
        return (
            _fits(new["keyType"], old["keyType"])
            and _fits(new["valueType"], old["valueType"])
            and (old["valueContainsNull"] or not new["valueContainsNull"])
        )
    return bool(new == old)
