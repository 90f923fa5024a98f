"""Figures of a project's nodes for Prometheus, computed when somebody asks: a run that was killed leaves none stale."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.errors import OdiError
from odi_assets.nodes.history.capture_lag import lag_of
from odi_assets.nodes.history.freshness import freshness_of
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.forecast import Forecast, forecasts
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import REWIND
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry, RunRecord, RunStatus

_RECENT = timedelta(days=1)
_NODE = ("pipeline", "node")
_TEXTS: Mapping[str, str] = {
    "odi_up": "1 if the project file and the state could be read.",
    "odi_look_seconds": "How long it took to compute these figures.",
    "odi_looked_at_timestamp_seconds": "When these figures were computed.",
    "odi_node_ahead": "1 if the sources have what the node has not read, 0 if not.",
    "odi_node_stopped": "1 if the node's next run would stop, or its sources cannot be looked at.",
    "odi_node_files_waiting": "Files that the next run would read.",
    "odi_node_rows_waiting": "Rows that the next run would read, where that is known without reading.",
    "odi_node_rows_held": "Rows ahead of the clock, left for later.",
    "odi_node_rows_below_hwm": "Rows that arrived at or below the HWM, which no increment reads.",
    "odi_node_last_run_timestamp_seconds": "When the last attempt of the node ended.",
    "odi_node_last_run_seconds": "How long the last attempt of the node took.",
    "odi_node_last_run_status": "1 for the status of the last attempt of the node.",
    "odi_node_last_success_timestamp_seconds": "When the last attempt ended that succeeded, with data or without.",
    "odi_node_last_data_timestamp_seconds": "When the last attempt ended that wrote data.",
    "odi_node_stale": "1 if the table is without new rows for longer than `freshness` of the node allows.",
    "odi_node_runs_last_day": "Attempts of the last 24 hours, by how they ended.",
    "odi_node_rows_written_last_day": "Rows that the attempts of the last 24 hours wrote.",
    "odi_node_hwm_updated_timestamp_seconds": "When the HWM of the node was written.",
    "odi_node_hwm_timestamp_seconds": "The HWM itself, where it is a date or a time (without a zone: as UTC).",
    "odi_capture_lag_bytes": "Log of the server above what is captured.",
    "odi_capture_lag_seconds": "Age of the oldest change that is not captured.",
    "odi_capture_slot_bytes": "Log that the server keeps for the slot.",
    "odi_stream_batch": "Number of the last batch.",
    "odi_stream_committed_timestamp_seconds": "When the last batch was committed.",
    "odi_stream_watermark_timestamp_seconds": "The watermark of the last batch.",
    "odi_stream_state_rows": "Rows in the state after the last batch.",
    "odi_stream_state_bytes": "Bytes of the state after the last batch.",
}


class ProjectGauges(Collector):
    """The figures of a project, each time they are collected. Spark is not started.

    A source or a server that cannot be looked at has no figures but `odi_node_stopped`.

    Args:
        load: loads the project; it is called for each collection, so edits of the file count.
        say: takes what could not be looked at, in words.

    Attributes:
        is_up: whether the last collection could read the project file and the state.

    Example:
        >>> registry = CollectorRegistry()
        >>> registry.register(ProjectGauges(lambda: Project.load("odibi.yaml"), print))
    """

    def __init__(self, load: Callable[[], Project], say: Callable[[str], None]) -> None:
        self._load, self._say = load, say
        self.is_up = True

    def describe(self) -> Iterator[Metric]:
        """The names; nothing is looked at."""
        return (GaugeMetricFamily(name, text) for name, text in _TEXTS.items())

    def collect(self) -> Iterator[Metric]:
        """Look at the project, and give what was found."""
        began, gauges, self.is_up = time.perf_counter(), _Gauges(self._say), True
        try:
            project = self._load()
            state = project.open_state()
            keys = project.graph.order()
            for looked in (_of_history, _of_freshness, _of_hwms, _of_sources, _of_captures, _of_kinds):
                looked(gauges, project, state, keys)
        except OdiError as error:
            self.is_up = False
            self._say(f"the project cannot be looked at: {error}")
        gauges.add("odi_up", self.is_up)
        gauges.add("odi_looked_at_timestamp_seconds", time.time())
        gauges.add("odi_look_seconds", time.perf_counter() - began)
        yield from gauges.families.values()


class _Gauges:
    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.families: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, value: float | datetime | None, key: NodeKey | None = None, **labels: str) -> None:
        """Add a figure; None is none."""
        if value is None:
            return
        metric_labels = {} if key is None else {"pipeline": key.pipeline, "node": key.node}
        metric_labels |= labels
        family = self.families.setdefault(name, GaugeMetricFamily(name, _TEXTS[name], labels=[*metric_labels]))
        family.add_metric([*metric_labels.values()], _seconds(value) if isinstance(value, datetime) else float(value))


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _of_history(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    """What the run history says; a rewind is no run."""
    by_node: dict[NodeKey, list[RunRecord]] = defaultdict(list)
    for record in state.list_runs():
        if record.trigger != REWIND and record.project in (None, project.config.project):
            by_node[NodeKey(record.pipeline_name, record.node_name)].append(record)
    since = datetime.now(UTC) - _RECENT
    for key in keys:
        records = by_node[key]
        recent = [record for record in records if record.timestamp >= since]
        for status, count in sorted(Counter(record.status.value for record in recent).items()):
            gauges.add("odi_node_runs_last_day", count, key, status=status)
        gauges.add("odi_node_rows_written_last_day", sum(record.rows_processed or 0 for record in recent), key)
        if records:
            gauges.add("odi_node_last_run_timestamp_seconds", records[0].timestamp, key)
            gauges.add("odi_node_last_run_seconds", records[0].duration_ms / 1000, key)
            gauges.add("odi_node_last_run_status", 1, key, status=records[0].status.value)
        good = [record for record in records if record.status.succeeded]
        wrote = [record for record in good if record.status is RunStatus.SUCCESS]
        for name, group in (("success", good), ("data", wrote)):
            gauges.add(f"odi_node_last_{name}_timestamp_seconds", group[0].timestamp if group else None, key)


def _of_freshness(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    del state
    for key in keys:
        try:
            freshness = freshness_of(project, key)
        except OdiError as error:
            gauges.say(f"{key}: its table cannot be looked at: {error}")
            continue
        if freshness is not None:
            gauges.add("odi_node_stale", freshness.is_stale(), key)


def _of_hwms(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    entries: dict[str, HwmEntry] = {entry.key: entry for entry in state.list_hwms()}
    for key in keys:
        entry = entries.get(state_key(key, project.graph.node(key)))
        if entry is not None:
            gauges.add("odi_node_hwm_updated_timestamp_seconds", entry.updated_at, key)
            gauges.add("odi_node_hwm_timestamp_seconds", _moment(entry.value), key)


def _moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _of_sources(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    for forecast in forecasts(project, state, keys, RunRequest(accept_loss=True)):
        _of_forecast(gauges, forecast)


def _of_forecast(gauges: _Gauges, forecast: Forecast) -> None:
    if forecast.error is not None:
        gauges.say(f"{forecast.key} would stop: {forecast.error}")
    gauges.add("odi_node_stopped", forecast.error is not None, forecast.key)
    reads = forecast.facts.get("reads", [])
    followed = [read for read in reads if read["incremental"]]
    if forecast.error is None and (followed or forecast.action == "follow"):
        # A node that reads all of its sources in each run is never behind them.
        gauges.add("odi_node_ahead", forecast.action != "nothing", forecast.key)
    for name, field in (("files_waiting", "files"), ("rows_waiting", "rows")):
        counts = [read[field] for read in followed if read[field] is not None]
        gauges.add(f"odi_node_{name}", sum(counts) if counts else None, forecast.key)
    for name in ("rows_held", "rows_below_hwm"):
        gauges.add(f"odi_node_{name}", sum(read[name] for read in reads) if reads else None, forecast.key)


def _of_captures(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    for key in keys:
        if not project.graph.node(key).captures_server:
            continue
        try:
            capture_lag = lag_of(project, state, key)
        except OdiError as error:
            gauges.say(f"{key}: the server's log cannot be looked at: {error}")
            continue
        for name, value in (
            capture_lag.lag.metrics if capture_lag is not None and capture_lag.lag is not None else {}
        ).items():
            gauges.add(f"odi_capture_{name}", value, key)


def _of_kinds(gauges: _Gauges, project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> None:
    del state
    for key in keys:
        node = Node.of(project, key)
        for name, value in node.kind.figures(node).items():
            gauges.add(name, value, key)
