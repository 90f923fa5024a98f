"""Where sources stand, as the sensor's look found it: observations of their assets, one for each move."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import MetadataValue

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.sources import Sources
from odi_assets.sources.marks import Unresolved, hwm_text, moment_of
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Position
from odi_assets.sources.source import Source

READ_TAG = "odi/read"
"""Tag of an observation: a hash of what was looked at. One asset may be several files or queries."""
VERSION_TAG = "dagster/data_version"
_DIGITS = 12
_LOOKED_BACK = 20
"""Observations among which a process that has just begun looks for one of the same position."""


@dataclass(frozen=True)
class Sighting:
    """Where one source of a node stands.

    Attributes:
        name: of the source, in the node.
        read: a hash of what was looked at.
        version: a hash of where it stands; another one once there is something new.
        metadata: what Dagster shows.
    """

    name: str
    read: str
    version: str
    metadata: Mapping[str, Any]


def sightings(plan: NodePlan, positions: Mapping[str, Position], *, settled: bool) -> tuple[Sighting, ...]:
    """Where the sources of a plan stand.

    Args:
        positions: by source that was looked at.
        settled: the same positions will give the same plan.
    """
    sources = {source.name: source for source in plan.node.sources}
    positioned_reads = ((read, sources[read.name], positions.get(read.name)) for read in plan.reads)
    seen = (
        _sighting(plan, read, source, at, settled) for read, source, at in positioned_reads if at and source.connection
    )
    return tuple(sighting for sighting in seen if sighting is not None)


def _sighting(plan: NodePlan, read: PlannedRead, source: Source, at: Position, settled: bool) -> Sighting | None:
    behind = not plan.nothing_new and not read.nothing_new
    if not behind and (plan.node.config.captures_server or not settled):
        # A log moves with all that its server does; files that settle are news later.
        return None
    settles = source.settles_within.total_seconds()
    stands: Any = read.stands_at or at
    if settles:
        # Files that have settled are news at the same position.
        stands = [stands, _text(read.after if read.after is not None else read.before)]
    what = [source.uri, source.label, source.cursor, settles, sorted(at)]
    metadata = {
        "dagster/uri": source.uri,
        "position": MetadataValue.json(json.loads(json.dumps(at, default=str))),
        **_newest(read),
        "node": str(plan.node),
        **({"behind": read.summary if behind else "nothing", **_lag(read, behind)} if read.follows else {}),
    }
    return Sighting(source.name, digest(what), digest(stands), metadata)


def _newest(read: PlannedRead) -> dict[str, Any]:
    newest = read.snapshot.newest
    if newest is None:
        return {}
    name, moment = newest
    return {"newest_file": name, "newest_file_at": MetadataValue.timestamp(moment)}


def _lag(read: PlannedRead, behind: bool) -> dict[str, Any]:
    """How far the node is behind the source: files, bytes and rows to read, and seconds between two marks of times."""
    if not behind:
        return {"lag_seconds": 0.0} if moment_of(read.before) is not None else {}
    counts = {"files_behind": read.file_count, "bytes_behind": read.bytes, "rows_behind": read.rows_known}
    since, until = moment_of(read.before), moment_of(read.after)
    seconds = None if since is None or until is None else max(0.0, until - since)
    figures = {**counts, "lag_seconds": seconds, **read.metrics}
    return {name: value for name, value in figures.items() if isinstance(value, int | float)}


def _text(mark: Any) -> str | None:
    return str(mark) if mark is None or isinstance(mark, Unresolved) else hwm_text(mark.value)


def digest(value: object) -> str:
    """A short hash of what JSON can write."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:_DIGITS]


class Observer:
    """Reports sightings of the sources of a project, each position once, whichever node and sensor saw it."""

    def __init__(self, project: Project, sources: Sources | None = None) -> None:
        self._sources = sources or Sources(project)
        self._reported: dict[tuple[dg.AssetKey, str], str] = {}

    def report(
        self, instance: dg.DagsterInstance, key: NodeKey, seen: Iterable[Sighting], running: Container[NodeKey]
    ) -> bool:
        """Report what moved of what a node reads. Asks ``instance`` for nothing but the last observations of that.

        Args:
            running: nodes that are in a run. What they read is not reported: Dagster takes what changes before a run
                ends for read by it.

        Returns:
            whether all is reported.
        """
        assets = self._sources.by_name(key)
        moved = [
            (asset, sighting)
            for sighting in seen
            for asset in assets.get(sighting.name, ())
            if self._is_new(asset, sighting)
        ]
        if any(reader in running for asset, _ in moved for reader in self._sources.readers[asset]):
            return False
        for asset, sighting in moved:
            if _last_version(instance, asset, sighting.read) != sighting.version:
                for event in self._events(asset, sighting):
                    instance.report_runless_asset_event(event)
            self._reported[asset, sighting.read] = sighting.version
        return True

    def _is_new(self, asset: dg.AssetKey, seen: Sighting) -> bool:
        return self._reported.get((asset, seen.read)) != seen.version

    def _events(self, asset: dg.AssetKey, seen: Sighting) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
        tags = {VERSION_TAG: seen.version, READ_TAG: seen.read}
        yield dg.AssetObservation(asset, metadata=seen.metadata, tags=tags)
        if self._sources.owns(asset):
            # Of an asset that Dagster does not execute, conditions see materializations alone. Where somebody else
            # lands the rows, that asset is materialized by its own run.
            yield dg.AssetMaterialization(asset, metadata=seen.metadata, tags=tags)


def _last_version(instance: dg.DagsterInstance, asset: dg.AssetKey, read: str) -> str | None:
    """The version of the last observation of ``read``; None if it was not observed of late."""
    for record in instance.fetch_observations(asset, limit=_LOOKED_BACK).records:
        observation = record.asset_observation
        if observation is not None and observation.tags.get(READ_TAG) == read:
            return observation.tags.get(VERSION_TAG)
    return None
