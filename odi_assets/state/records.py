"""What the state backends hold: high-water marks and runs; and runs in the forms that Odibi's documents give them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import uuid4

from odi_assets.errors import StateError
from odi_assets.state.values import decode, encode

NO_TABLE = -1
"""The ``target_commit`` of an HWM that was accepted without a table: its rows are not expected anywhere."""


# A tuple, because a batch makes thousands of them and writes them column by column.
class HwmEntry(NamedTuple):
    """One revision of one key.

    Attributes:
        key: ``<pipeline>.<node>`` for nodes, or any free-form text.
        value: the typed value; None for a tombstone.
        environment: whose key it is; None is the environment without a name, which is what Odibi writes by default.
        updated_at: when it was written, UTC; later than the revision before it was, whatever the clocks say.
        revision: 1 for the first write of a key, then one more with each write; 0 for a row that Odibi wrote.
        deleted: a tombstone.
        target_commit: version of the Delta table whose commit has this value; NO_TABLE where it was accepted
            that there is none.
        run_id: the run that wrote it.
        value_type: the name of the value's type; None for a value that Odibi wrote.
        origin: what the value is of, as JSON: the writer's own description, kept as it is. None if it gave none.
    """

    key: str
    value: Any
    environment: str | None
    updated_at: datetime
    revision: int
    deleted: bool = False
    target_commit: int | None = None
    run_id: str | None = None
    value_type: str | None = None
    origin: str | None = None

    @property
    def is_index(self) -> bool:
        """Whether a run wrote it as what a commit of its table carries; else somebody set it by hand."""
        return self.run_id is not None and self.target_commit is not None


@dataclass(frozen=True)
class KeyRestore:
    """What :meth:`~odi_assets.state.backend.StateBackend.restore` shall add to one key.

    Attributes:
        entry: the key's next revision, as it shall be stored.
        expected: the revision that the key has now, a tombstone's too; None if it was never set.
        older: revisions that lie between the two, oldest first.
    """

    entry: HwmEntry
    expected: int | None
    older: tuple[HwmEntry, ...] = ()


_HWMS = ("hwm_before", "hwm_after")
DETAILS = "odi_assets"
"""The metric under which a table without columns of ours holds what belongs into them."""


class RunStatus(StrEnum):
    """How a node's attempt ended. CANCELLED: somebody ended its run. LOST: its run vanished without a word."""

    SUCCESS = "SUCCESS"
    NO_DATA = "NO_DATA"
    FAILURE = "FAILURE"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"

    @property
    def succeeded(self) -> bool:
        """SUCCESS, and NO_DATA: there was nothing to do and it was done."""
        return self in (RunStatus.SUCCESS, RunStatus.NO_DATA)

    @classmethod
    def parse(cls, text: str | None) -> RunStatus:
        """A stored status; what Odibi writes for a failure (``FAILED``) and anything unknown is FAILURE."""
        try:
            return cls((text or "").upper())
        except ValueError:
            return cls.FAILURE


@dataclass(frozen=True)
class RunRecord:
    """One attempt of one node.

    Attributes:
        run_id: Dagster's.
        rows_processed: rows written; None if not known.
        metrics: facts that JSON can hold.
        environment: stamped by the backend that stores the record.
        timestamp: when the node ended, UTC.
        started_at: when the node began, UTC.
        attempt: 1 for the first, more for retries in the same run.
        hwm_before, hwm_after: high-water marks as JSON values.
        table_version: version of the target that the attempt committed; None if it committed nothing.
    """

    run_id: str
    project: str | None
    pipeline_name: str
    node_name: str
    status: RunStatus
    rows_processed: int | None
    duration_ms: int
    timestamp: datetime
    metrics: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    started_at: datetime | None = None
    partition_key: str | None = None
    trigger: str | None = None
    attempt: int = 1
    hwm_before: Any = None
    hwm_after: Any = None
    table_version: int | None = None
    code_version: str | None = None
    error: str | None = None

    @property
    def date(self) -> date:
        """The day it ended, in UTC."""
        return self.timestamp.date()

    def to_row(self, environment: str | None) -> dict[str, Any]:
        """The row of ``meta_runs``, stamped with ``environment``: Odibi's columns first, then ours."""
        same = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "metrics"}
        ended = self.timestamp.astimezone(UTC)
        return {
            **same,
            "status": RunStatus(self.status).value,
            "metrics_json": json.dumps(dict(self.metrics), default=str, ensure_ascii=False),
            "environment": environment,
            "timestamp": ended,
            "date": ended.date(),
            "started_at": self.started_at and self.started_at.astimezone(UTC),
            **{name: None if same[name] is None else encode(same[name]).json for name in _HWMS},
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RunRecord:
        """The record of a row; columns that Odibi does not write may be missing or null."""
        metrics = decode(row.get("metrics_json"), None)
        if isinstance(metrics, dict) and isinstance(metrics.get(DETAILS), dict):
            details = metrics.pop(DETAILS)
            row = {**row, **details, "started_at": _moment(details.get("started_at"))}
        values = {item.name: row[item.name] for item in fields(cls) if row.get(item.name) is not None}
        never = datetime.min.replace(tzinfo=UTC)
        required = {"run_id": "", "pipeline_name": "", "node_name": "", "duration_ms": 0, "timestamp": never}
        nullable = {"project": None, "rows_processed": None}
        return cls(
            **{
                **required,
                **nullable,
                **values,
                "status": RunStatus.parse(row.get("status")),
                "metrics": metrics if isinstance(metrics, dict) else {},
                **{name: decode(row.get(name), None) for name in _HWMS},
            }
        )


def newest_first(record: RunRecord) -> tuple[datetime, int]:
    """Sort key, to be reversed."""
    return record.timestamp, record.attempt


def check_key(key: str) -> str:
    """``key`` itself, if it can be one.

    Raises:
        StateError: it is not text, is empty, or cannot be written as UTF-8.
    """
    if not isinstance(key, str) or not key:
        raise StateError(f"a state key is text of at least one character, not {key!r}", fix="name the key", key=key)
    if key.isascii():
        return key
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StateError(f"the state key {key!r} is not valid Unicode text", fix="rename the key", key=key) from error
    return key


def check_environment(environment: str | None) -> str | None:
    """``environment`` itself, if it can be one: a name, or None for the environment without a name.

    Raises:
        StateError: it is not text, or is empty.
    """
    if environment is None:
        return None
    if not isinstance(environment, str) or not environment:
        raise StateError(f"an environment is a name or None, not {environment!r}", fix="name it, or leave it out")
    return environment


OTHERS = "odi/results"
"""Key of a run's metrics: what a results object holds beside the fields that are known."""
_NODE = ("success", "timestamp", "rows_processed", "duration", "error", "metadata")
_DATA = (str, int, float, Decimal, date, Mapping, list, tuple)

# -- runs in Odibi's forms: results objects in, status and info out ----------------------------------------------------


def pipeline_data(results: Any) -> dict[str, Any]:
    """Odibi's document of a pipeline run, from a results object (``node_results``, ``to_dict()``) or a mapping."""
    data = results.to_dict() if hasattr(results, "to_dict") else results
    data = data if isinstance(data, Mapping) else {}
    nodes = getattr(results, "node_results", None)
    if nodes is None:
        nodes = data.get("node_results") or data.get("nodes") or {}
    return {
        **_others(data, ("end_time", "last_run", "node_results", "nodes")),
        "last_run": data.get("end_time") or data.get("last_run"),
        "nodes": {name: _node_data(result) for name, result in nodes.items()},
    }


def records_of(pipeline: str, data: Mapping[str, Any]) -> list[RunRecord]:
    """One record per node of Odibi's document of a pipeline run."""
    ended = _moment(data.get("last_run")) or datetime.now(UTC)
    run_id = str(data.get("run_id") or uuid4())
    others = _others(data, ("last_run", "nodes", "run_id"))
    return [_record(pipeline, name, node, run_id, ended, others) for name, node in (data.get("nodes") or {}).items()]


def info_of(record: RunRecord | None) -> dict[str, Any] | None:
    """A record as ``get_last_run_info`` gives it: ``success`` and ``metadata``, as Odibi has them, and what else was
    given of the node; what else was given of its pipeline's run is ``pipeline``."""
    if record is None:
        return None
    metrics = dict(record.metrics)
    others = metrics.pop(OTHERS, {})
    names = ("run_id", "rows_processed", "duration_ms", *_HWMS, "table_version", "code_version", "error")
    return {
        **others,
        "success": record.status.succeeded,
        "metadata": metrics,
        "timestamp": record.timestamp.isoformat(),
        "status": record.status.value,
        **{name: getattr(record, name) for name in names},
    }


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it; what JSON has no form for becomes its text."""
    return json.loads(json.dumps(value, default=str))


def _others(results: Any, known: Iterable[str]) -> dict[str, Any]:
    """What a results object holds beside the ``known`` names, as far as it is data; of objects, what is set."""
    attributes = (
        results if isinstance(results, Mapping) else {n: v for n, v in getattr(results, "__dict__", {}).items() if v}
    )
    data = {name: value for name, value in attributes.items() if name not in known and not name.startswith("_")}
    return {name: plain(value) for name, value in data.items() if value is None or isinstance(value, _DATA)}


def _node_data(result: Any) -> dict[str, Any]:
    def get(name: str) -> Any:
        return result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)

    metadata = plain(get("metadata") or {})
    data = {"success": bool(get("success")), "timestamp": get("timestamp") or metadata.get("timestamp")}
    for name in ("rows_processed", "duration", "error"):
        if get(name) is not None:
            data[name] = plain(get(name))
    return {**_others(result, _NODE), **data, "metadata": metadata}


def _record(
    pipeline: str, name: str, node: Mapping[str, Any], run_id: str, ended: datetime, of_pipeline: Mapping[str, Any]
) -> RunRecord:
    metadata = dict(node.get("metadata") or {})
    others = {**({"pipeline": of_pipeline} if of_pipeline else {}), **_others(node, _NODE)}
    rows = node.get("rows_processed", metadata.get("rows_processed"))
    seconds = node.get("duration", metadata.get("duration"))
    return RunRecord(
        run_id=run_id,
        project=None,
        pipeline_name=pipeline,
        node_name=name,
        status=RunStatus.SUCCESS if node.get("success") else RunStatus.FAILURE,
        rows_processed=rows if isinstance(rows, int) else None,
        duration_ms=int(seconds * 1000) if isinstance(seconds, int | float) else 0,
        timestamp=_moment(node.get("timestamp")) or ended,
        metrics={**metadata, OTHERS: others} if others else metadata,
        error=None if node.get("error") is None else str(node["error"]),
    )


def _moment(text: Any) -> datetime | None:
    """A moment in UTC; without a zone it is this machine's time, as Odibi writes it."""
    try:
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.astimezone(UTC)
