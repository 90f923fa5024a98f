"""What is in the checkpoint folder of a Spark Structured Streaming query, read from its files without Spark.

Layout (Spark 4.2): ``metadata`` names the query; ``offsets/N`` is written before batch N runs, ``commits/N`` after it;
``state/<operator>/_metadata`` describes the operator's state stores. Spark keeps the newest 100 batches unless
``spark.sql.streaming.minBatchesToRetain`` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from odi_assets.checkpoints.log_files import instant, numbered_files, read_lines, read_object, torn
from odi_assets.errors import CheckpointError

_NO_OFFSET = "-"

JOIN = "symmetricHashJoin"
"""What Spark calls a join of streams."""
JOIN_STORES = tuple(
    f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")
)
"""The stores of a join: how many rows each key has, and the rows."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch as the offset log planned it.

    ``watermark`` is the one the batch ran with, None before there was one; ``offsets`` holds, by source number or
    name, how far the batch reads, as the source wrote it, None where it reads nothing. ``committed_at`` is the time of
    the file ``commits/N``: in a copied checkpoint, the time of the copying.
    """

    batch_id: int
    committed_at: datetime | None
    planned_at: datetime | None
    watermark: datetime | None
    offsets: Mapping[str, str | None]
    conf: Mapping[str, str] = field(repr=False)

    @property
    def committed(self) -> bool:
        """Whether the batch finished."""
        return self.committed_at is not None


@dataclass(frozen=True)
class StoreInfo:
    """A state store of an operator; each partition has one.

    ``schema_file`` describes its keys and values; None if the checkpoint does not have that file. ``schema_named_at``
    is where Spark looks for it if that is nowhere: it notes absolute paths (for ``transformWithState``, and for joins
    whose stores share one), so such a checkpoint can be read only where it was written.
    """

    name: str
    partitions: int
    prefix_columns: int
    schema_file: Path | None = None
    schema_named_at: str | None = None


@dataclass(frozen=True)
class StateVariable:
    """A named variable of ``transformWithState``. ``kind`` is ValueState, ListState or MapState."""

    operator_id: int
    name: str
    kind: str
    ttl: bool


@dataclass(frozen=True)
class Operator:
    """A stateful operator. A join has four stores, most others one with the name ``default``.

    ``name`` is None, and ``stores`` empty, in checkpoints of a Spark before 3.5, which wrote no description.
    ``properties`` are the settings of ``transformWithState`` (time mode, output mode, state variables), or of a join
    whose four stores share one.
    """

    operator_id: int
    name: str | None
    stores: tuple[StoreInfo, ...]
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_join(self) -> bool:
        """Whether it joins two streams."""
        return self.name == JOIN

    @property
    def has_variables(self) -> bool:
        """Whether its state is in named variables: whether it is a ``transformWithState``."""
        return self.name is not None and self.name.startswith("transformWithState")

    @property
    def store_names(self) -> tuple[str, ...]:
        """The names that a reader may ask for."""
        if self.is_join:
            return JOIN_STORES
        return tuple(store.name for store in self.stores)

    @property
    def variables(self) -> tuple[StateVariable, ...]:
        """Its named variables, without those that Spark keeps for its timers."""
        return tuple(
            StateVariable(
                self.operator_id, variable["stateName"], variable["stateVariableType"], variable["ttlEnabled"]
            )
            for variable in self.properties.get("stateVariables", ())
            if not variable["stateName"].startswith("$")
        )

    @property
    def time_mode(self) -> str | None:
        """``EventTime``, ``ProcessingTime`` or ``None``, in which case it has no timers; None for other operators."""
        mode: str | None = self.properties.get("timeMode")
        return mode


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: its retained batches, oldest first, and the watermark of the next batch."""

    path: Path
    query_id: str
    batches: tuple[MicroBatch, ...]
    operators: tuple[Operator, ...]
    watermark: datetime | None

    @property
    def last_committed(self) -> MicroBatch | None:
        """The newest batch that finished; None if none did."""
        return next((batch for batch in reversed(self.batches) if batch.committed), None)

    @property
    def in_flight(self) -> MicroBatch | None:
        """The batch that was planned and did not finish: it runs now, or a restart will run it. None if none."""
        newest = self.batches[-1] if self.batches else None
        return newest if newest and not newest.committed else None

    def committed_batch(self, batch_id: int | None = None) -> int:
        """The number of a retained batch that finished: ``batch_id``, or of the last one if that is None.

        Raises:
            CheckpointError: there is no such batch, or not any more.
        """
        kept = [batch.batch_id for batch in self.batches if batch.committed]
        if not kept:
            fault, fix = "has no committed batch yet", "let its query finish a batch"
        elif batch_id is None or batch_id in kept:
            return kept[-1] if batch_id is None else batch_id
        elif batch_id > kept[-1]:
            fault, fix = f"has no committed batch {batch_id}", f"the last one is {kept[-1]}"
        elif batch_id < kept[0]:
            fault = f"has no batch {batch_id} any more"
            fix = (
                f"it keeps the batches {kept[0]} to {kept[-1]}; "
                "spark.sql.streaming.minBatchesToRetain says how many a query keeps"
            )
        else:
            fault, fix = f"has no committed batch {batch_id}", f"it has {', '.join(map(str, kept))}"
        raise CheckpointError(f"{self.path} {fault}.", fix=fix, path=str(self.path))

    @property
    def shuffle_partitions(self) -> int | None:
        """Number of partitions of the state, fixed by the query's first run; None before a batch."""
        value = self._conf("spark.sql.shuffle.partitions")
        return int(value) if value and value.isdecimal() else None

    @property
    def state_store_provider(self) -> str | None:
        """Class of the state store provider, also fixed by the first run; None before a batch."""
        return self._conf("spark.sql.streaming.stateStore.providerClass")

    def overrides(self, wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The settings that Spark takes from the checkpoint although others are wanted: wanted and in force, by
        name."""
        conf = self.batches[-1].conf if self.batches else {}
        return {
            name: (str(value), conf[name])
            for name, value in wanted.items()
            if name in conf and str(value) != conf[name]
        }

    def batch(self, batch_id: int) -> MicroBatch | None:
        """The retained batch of that number, or None."""
        return next((batch for batch in self.batches if batch.batch_id == batch_id), None)

    def operator(self, operator_id: int) -> Operator:
        """The stateful operator of that number.

        Raises:
            CheckpointError: there is none.
        """
        for operator in self.operators:
            if operator.operator_id == operator_id:
                return operator
        known = ", ".join(f"{op.operator_id} ({op.name})" for op in self.operators)
        raise CheckpointError(
            f"{self.path} has no stateful operator {operator_id}.",
            fix=f"its operators are {known}" if known else "its query keeps no state, or has not run yet",
            path=str(self.path),
        )

    def _conf(self, key: str) -> str | None:
        return self.batches[-1].conf.get(key) if self.batches else None


def rows_store(side: str) -> str:
    """The store that holds the rows of one side of a join."""
    return f"{side}-keyWithIndexToValue"


def local_path(checkpoint: str | Path) -> Path | None:
    """The folder that a path or a ``file:`` URI names; None for a URI of another scheme."""
    text = str(checkpoint)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        return Path(text)
    parts = urlsplit(text)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def inspect(path: str | Path, *, since: int = 0) -> Checkpoint:
    """The content of the checkpoint in a local folder, read from its files alone. Its query may be running.

    Args:
        since: the first batch that counts: one before it whose file is torn is left out.

    Raises:
        CheckpointError: there is no such folder, it is no checkpoint, or the file ``path`` in it is incomplete.
    """
    root = local_path(path)
    if root is None:
        raise CheckpointError(
            f"{path} is not a folder of this machine.",
            fix="give the folder that odi_assets.checkpoints.local_copy makes of it, or read it through "
            "Spark: CheckpointReader.metadata, .read",
            path=str(path),
        )
    _require_checkpoint(root)
    query_id = read_object(root / "metadata").get("id")
    if not isinstance(query_id, str):
        raise torn(root / "metadata", "it does not name a query")
    commits = numbered_files(root / "commits")
    offsets = numbered_files(root / "offsets")
    if commits and max(commits) not in offsets:
        raise CheckpointError(
            f"{root} has commits/{max(commits)} and no offsets/{max(commits)}: a part of it was removed.",
            fix="restore offsets/ from a copy of the checkpoint; Spark cannot restart the query from this",
            path=str(root / "offsets" / str(max(commits))),
        )
    batches = tuple(_read_batches(offsets, commits, since))
    return Checkpoint(root, query_id, batches, _read_operators(root / "state"), _watermark(commits, batches))


def _read_batches(offsets: Mapping[int, Path], commits: Mapping[int, Path], since: int) -> Iterator[MicroBatch]:
    for number in sorted(offsets):
        try:
            yield read_batch(offsets[number], number, _time_of(commits.get(number)))
        except CheckpointError:
            if number >= since:
                raise


def require_folder(root: Path) -> None:
    """Raises CheckpointError if there is no folder, or nothing of a checkpoint in it."""
    if not root.is_dir():
        fault = "is a file, not a folder" if root.exists() else "does not exist"
        raise CheckpointError(f"{root} {fault}.", fix="give the query's checkpointLocation", path=str(root))
    if not any((root / folder).is_dir() for folder in ("offsets", "commits", "state")):
        _require_checkpoint(root)


def _require_checkpoint(root: Path) -> None:
    if not root.is_dir():
        require_folder(root)
    if not (root / "metadata").is_file():
        nearby = [root.parent / "metadata", *sorted(root.glob("*/metadata"))]
        inside = next((file.parent for file in nearby if file.is_file()), None)
        raise CheckpointError(
            f"{root} is not a checkpoint: it has no file called metadata.",
            fix=f"did you mean {inside}?" if inside else "give the query's checkpointLocation",
            path=str(root),
        )


def _time_of(commit: Path | None) -> datetime | None:
    return None if commit is None else datetime.fromtimestamp(commit.stat().st_mtime, UTC)


def read_batch(file: Path, batch_id: int, committed_at: datetime | None) -> MicroBatch:
    """A batch, of its file in the log of offsets.

    Raises:
        CheckpointError: the file is torn.
    """
    version, lines = read_lines(file)
    if not lines:
        raise torn(file, "it ends after its version")
    head = read_object(file, lines[0]) if lines[0].strip() else {}
    conf = head.get("conf", {})
    if not isinstance(conf, dict):
        raise torn(file, "its settings are not an object")
    return MicroBatch(
        batch_id=batch_id,
        committed_at=committed_at,
        planned_at=instant(file, head.get("batchTimestampMs")),
        watermark=instant(file, head.get("batchWatermarkMs")),
        offsets=_read_offsets(file, version, lines[1:]),
        conf={str(key): str(value) for key, value in conf.items()},
    )


def _read_offsets(file: Path, version: int, lines: list[str]) -> dict[str, str | None]:
    named: dict[str, str] = {}
    for number, line in enumerate(lines):
        # Version 1 has a line a source, in order; version 2 names the source before the first colon.
        name, colon, offset = line.partition(":") if version > 1 else (str(number), ":", line)
        if not colon or not offset:
            raise torn(file, f"its line {number + 3} is not a source's offset")
        named[name] = offset
    return {name: None if offset == _NO_OFFSET else offset for name, offset in named.items()}


def _watermark(commits: Mapping[int, Path], batches: tuple[MicroBatch, ...]) -> datetime | None:
    after = None
    if commits:
        file = commits[max(commits)]
        _, lines = read_lines(file)
        after = instant(file, read_object(file, "\n".join(lines)).get("nextBatchWatermarkMs"))
    return after or (batches[-1].watermark if batches else None)


def _read_operators(state: Path) -> tuple[Operator, ...]:
    return tuple(read_operator(folder, number) for number, folder in sorted(numbered_files(state).items()))


def read_operator(folder: Path, operator_id: int, revision: int | None = None) -> Operator:
    """A stateful operator, of its folder below ``state/``.

    Args:
        revision: which of its descriptions counts, of an operator that has several; None: the newest.

    Raises:
        CheckpointError: its description is torn.
    """
    described = folder / "_metadata"
    # Version 2 has a description for each run, by the number of the run's first batch.
    revisions = numbered_files(described / "v2")
    newest = max(revisions, default=None) if revision is None else revision
    file = described / "metadata" if newest is None or not revisions else revisions[newest]
    if not file.exists():
        return Operator(operator_id, None, ())
    _, lines = read_lines(file)
    content = read_object(file, "\n".join(lines))
    try:
        stores = tuple(_read_store(folder, info) for info in content["stateStoreInfo"])
        name: Any = content["operatorInfo"]["operatorName"]
    except (KeyError, TypeError) as error:
        raise torn(file, f"it does not describe an operator ({error})") from error
    properties = content.get("operatorPropertiesJson")
    return Operator(operator_id, name, stores, read_object(file, properties) if properties else {})


def torn_descriptions(root: Path) -> dict[str, str]:
    """The descriptions of stateful operators that are torn and that a batch writes if they are missing, by their path
    below the checkpoint, each with what is wrong.

    Version 2 is left out: its descriptions name schemas that nothing else names.
    """
    torn_files = {}
    for number, folder in sorted(numbered_files(root / "state").items()):
        if (folder / "_metadata" / "v2").exists():
            continue
        try:
            read_operator(folder, number)
        except CheckpointError as error:
            torn_files[f"state/{number}/_metadata/metadata"] = error.message
    return torn_files


def missing_descriptions(root: Path) -> list[str]:
    """The descriptions of stateful operators and of their stores that are gone and that the next batch writes again:
    their paths below the checkpoint. See :func:`torn_descriptions` for torn ones."""
    missing, torn_files = [], torn_descriptions(root)
    for number, folder in sorted(numbered_files(root / "state").items()):
        if f"state/{number}/_metadata/metadata" in torn_files:
            continue
        operator = read_operator(folder, number)
        if not operator.stores:
            missing.append(folder / "_metadata" / "metadata")
        elif not operator.has_variables:
            stores = [store.name for store in operator.stores if store.schema_file is None]
            missing += [store_folder(folder, 0, name) / "_metadata" / "schema" for name in stores]
    return [path.relative_to(root).as_posix() for path in missing]


def _read_store(folder: Path, info: Mapping[str, Any]) -> StoreInfo:
    name = info["storeName"]
    schema_paths = info.get("stateSchemaFilePaths")
    if schema_paths:
        schema = folder / "_stateSchema" / name / PurePosixPath(schema_paths[-1]).name
        known_place = local_path(schema_paths[-1])
        lost = schema_paths[-1] if known_place is not None and not known_place.is_file() else None
    else:
        schema, lost = store_folder(folder, 0, name) / "_metadata" / "schema", None
    schema_file = schema if schema.exists() else None
    return StoreInfo(name, info["numPartitions"], info["numColsPrefixKey"], schema_file, lost)


def store_folder(operator: Path, partition: int, store: str) -> Path:
    """The folder of a partition's state store, in the folder of its operator."""
    return operator / str(partition) / ("" if store == "default" else store)
