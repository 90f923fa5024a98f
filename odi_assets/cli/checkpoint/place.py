"""What the commands of ``odi checkpoint`` do alike: find what PATH names, read it with Spark, print its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints import CheckpointReader, copy_of_remote
from odi_assets.checkpoints.inspect import local_path
from odi_assets.cli.terminal.options import Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, note, stdout_kept_for_data
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.spark.lazy import F, spark_errors
from odi_assets.spark.session import open_session
from odi_assets.streams.planning.marks import checkpoint_of
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_assets.config.graph import NodeKey
    from odi_assets.config.models.stream import HealthLimits
    from odi_assets.nodes.project import Project
    from odi_assets.state.delta.batches import BatchRecord


@dataclass(frozen=True)
class CheckpointPlace:
    """Where a checkpoint is, the project that was read to find it, and the node whose it is."""

    location: Location
    project: Project | None = None
    node: NodeKey | None = None

    @property
    def path(self) -> str:
        """The folder, or the URI."""
        return self.location.uri

    @contextmanager
    def on_this_machine(self, *, logs_only: bool = False) -> Iterator[CheckpointPlace]:
        """The checkpoint as files of this machine: itself, or a copy of one in a store. Who reads it finds its damage.

        Raises:
            CheckpointError: there is none in the store, or the store cannot be read.
        """
        if local_path(self.location.uri) is not None:
            yield self
            return
        with copy_of_remote(self.location, logs_only=logs_only) as copy:
            yield replace(self, location=Location(str(copy)))

    def records(self) -> Sequence[BatchRecord]:
        """The records of the node's batches in ``meta_batches``; nothing for a checkpoint of no node."""
        if self.project is None or self.node is None:
            return ()
        return self.project.open_batches().of_node(str(self.node))

    def limits(self) -> HealthLimits | None:
        """The limits that the node's `stream.health` sets."""
        if self.project is None or self.node is None:
            return None
        stream = self.project.graph.node(self.node).stream
        return stream.health if stream else None


def find_place(settings: Settings, path: str) -> CheckpointPlace:
    """Where PATH is; the project file is read only if PATH is neither a folder nor a URI.

    Raises:
        ConfigError: it is nothing of what it may be, or the node has run no batch.
    """
    if "://" in path or Path(path).exists():
        return CheckpointPlace(Location(path))
    try:
        project_file = settings.project_file
    except ConfigError:
        # There is no project file here, so PATH can only be a folder; its reader reports it if it does not exist.
        project_file = None
    project = None if project_file is None else settings.project()
    if project is None:
        return CheckpointPlace(Location(path))
    connection, colon, below = path.partition(":")
    if colon and connection in project.config.connections:
        return CheckpointPlace(project.location(connection, below), project)
    node = project.find_node(path)
    if node is None:
        streams = [str(key) for key, config in project.graph.nodes.items() if config.stream is not None]
        raise ConfigError(
            f"{path} does not exist, and no node has this name",
            fix=f"give a query's checkpointLocation, or one of {', '.join(streams)}"
            if streams
            else "give a query's checkpointLocation; the project has no stream nodes",
            path=path,
        )
    return _of_node(project, node)


def _of_node(project: Project, key: NodeKey) -> CheckpointPlace:
    location = checkpoint_of(Node.of(project, key), project.open_batches().of_node(str(key)))
    if location is None:
        raise ConfigError(
            f"{key} has run no batch as a stream, so it has no checkpoint",
            fix="name a stream node that has run, or the folder of a checkpoint",
            node=str(key),
        )
    return CheckpointPlace(location, project, key)


@contextmanager
def open_reader(place: CheckpointPlace, *, logs_only: bool = True) -> Iterator[CheckpointReader]:
    """The reader of a checkpoint, with a Spark session as the project has it. What Spark prints goes to stderr.

    Args:
        logs_only: what is asked for of a checkpoint in a store is checked against its logs, not against all its files.

    Raises:
        CheckpointError: there is no checkpoint; this is checked before Spark starts.
    """
    location = place.location
    with stdout_kept_for_data(), copy_of_remote(location, logs_only=logs_only) as copy:
        handle = open_session(place.project.config.spark if place.project else None, app_name="odi checkpoint")
        try:
            yield CheckpointReader(location.uri, handle.spark, copy=copy, settings=location.reader_options)
        finally:
            handle.stop()


def collect_rows(reader: CheckpointReader, frame: DataFrame, where: str | None, limit: int) -> list[Any]:
    """The rows of a DataFrame as JSON values, one more than ``limit`` if there are more.

    Raises:
        ConfigError: the condition is no SQL, or names columns that there are not.
    """
    try:
        filtered = frame.where(where) if where else frame
        text = filtered.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
        text.schema  # noqa: B018  through Connect, this is the first call that can raise an error
    except (spark_errors.AnalysisException, spark_errors.ParseException) as error:
        raise ConfigError(
            f"--where cannot be understood: {str(error).splitlines()[0]}",
            fix=f"the columns are {frame.schema.simpleString()}",
        ) from error
    with reader.errors():
        rows = (text.limit(limit + 1) if limit else text).collect()
    return [json.loads(row["row"]) for row in rows]


def show_rows(rows: list[Any], columns: Sequence[str], limit: int, as_json: bool, nothing: str) -> None:
    """Print rows as a table with these columns, or as JSON."""
    shown = rows[:limit] if limit else rows
    if as_json:
        data_json(shown)
    elif shown:
        data_table([_column(name) for name in columns], shown)
    else:
        note(nothing)
    if len(rows) > len(shown):
        note(f"Not all rows are shown: --limit {limit} allows {counted(limit, 'row')}; --limit 0 shows all.")


def _column(name: str) -> Column:
    def cell(row: dict[str, Any]) -> str | int | None:
        value = row[name]
        if value is None or isinstance(value, str):
            return value
        return str(value) if isinstance(value, int) else _flat(value)

    return Column(name.replace("_", " "), cell, wrap=True)


def _flat(value: Any) -> str:
    """``{"id": 7, "shop": "x"}`` as ``id 7, shop x``: shorter, and enough for a table."""
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {_flat(member) if isinstance(member, (dict, list)) else member}" for name, member in value.items()
        )
    return json.dumps(value, ensure_ascii=False)
