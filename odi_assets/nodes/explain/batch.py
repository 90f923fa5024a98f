"""Follows a key from the landing files through each node to a table: where it is, and where it was lost, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import StatefulIncrement
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, OdiError, SourceError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.resolve import resolve
from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.explain.spans import Stay, stays
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.reads import NothingNew, Read, UnresolvedRead
from odi_assets.sources.source import Source
from odi_assets.state.backend import StateBackend
from odi_assets.streaming.explain.collect import key_sql, only_asked
from odi_assets.streaming.explain.definition import Condition
from odi_assets.streaming.explain.plan import Outline, read_outline
from odi_assets.streaming.explain.verdicts import key_parts
from odi_assets.tables.columns import quoted
from odi_assets.tables.reader import file_uri_key, read_table
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "_odi_file"
_FILES_SHOWN = 3


class Finding(StrEnum):
    """Where a key is, or why it is not there."""

    PRESENT = "PRESENT"
    NOT_LANDED = "NOT_LANDED"
    NOT_READ = "NOT_READ"
    FILTERED = "FILTERED"
    LOST_BY_JOIN = "LOST_BY_JOIN"
    REPLACED = "REPLACED"
    DELETED = "DELETED"
    LATE = "LATE"
    LEFT_OUT = "LEFT_OUT"
    UNEXPLAINED = "UNEXPLAINED"


@dataclass(frozen=True)
class Place:
    """A source or a table that the key was looked for in.

    Attributes:
        name: ``pipeline.node``, or the label of a source: ``landing:orders/*.csv``.
        finding: what was found there.
        text: in words.
        rows: how many rows of the key are there now.
        version, run_id: of a table: the version that brought the key or took it away, and its run.
        files: of a source: the files with the key.
        is_source: it is no table of a node.
    """

    name: str
    finding: Finding
    text: str
    rows: int = 0
    version: int | None = None
    run_id: str | None = None
    files: tuple[str, ...] = ()
    is_source: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {**vars(self), "files": list(self.files)}


@dataclass(frozen=True)
class KeyTrace:
    """Where a key is on its way to a node, sources first.

    Attributes:
        finding: ``PRESENT`` if the node's table has it, else why not.
        absent_since: the node that has not got it, while what it reads has; None if the key is there or never landed.
    """

    key: tuple[str, ...]
    finding: Finding
    sentence: str
    absent_since: str | None
    places: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        key = self.key[0] if len(self.key) == 1 else list(self.key)
        return {**vars(self), "key": key, "places": [place.to_json() for place in self.places]}


@dataclass(frozen=True)
class Followed:
    """A node on the way, and the columns of the key in its table and in its sources.

    Attributes:
        sources: by name of a source that has the key, its columns there.
    """

    node: Node
    columns: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    outline: Outline | None


@dataclass
class _Trace:
    project: Project
    spark: SparkSession
    state: StateBackend
    keys: Sequence[str]
    places: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))
    """By key, in the order they were looked at."""
    at: dict[str, dict[str, Place]] = field(default_factory=lambda: defaultdict(dict))
    """By key and name of the place."""

    def add(self, key: str, place: Place) -> None:
        if place.name not in self.at[key]:
            self.places[key].append(place)
            self.at[key][place.name] = place


def trace(
    project: Project,
    spark: SparkSession,
    state: StateBackend,
    key: NodeKey,
    columns: Sequence[str],
    keys: Sequence[str],
) -> list[KeyTrace]:
    """Follow ``keys`` to the table of a node.

    Args:
        columns: the columns of the node's table that the key is made of.
        keys: each as one text (``SEPARATOR`` between the parts of several columns).

    Raises:
        ConfigError: the node's table has no such column.
        SourceError, TableError: something on the way cannot be read.
    """
    found = _Trace(project, spark, state, keys)
    way = _way(project, spark, key, tuple(columns))
    for followed in way:
        _look(found, followed)
    return [_conclusion(found, str(key), one) for one in keys]


# -- the way -----------------------------------------------------------------------------------------------------------


def _way(project: Project, spark: SparkSession, key: NodeKey, columns: tuple[str, ...]) -> list[Followed]:
    """The nodes that the key comes through, the first one first."""
    wanted: dict[NodeKey, tuple[str, ...]] = {key: columns}
    found: list[Followed] = []
    for one in reversed(project.graph.order(None)):
        if one not in wanted:
            continue
        node = Node.of(project, one)
        if project.graph.node(one).stream is not None and one != key:
            # What a stream has done with its rows, `odi stream explain` tells.
            found.append(Followed(node, wanted[one], {}, None))
            continue
        followed = _followed(spark, node, wanted[one])
        found.append(followed)
        for name, upstream in _upstream(node).items():
            if name in followed.sources:
                wanted.setdefault(upstream, followed.sources[name])
    return list(reversed(found))


def _upstream(node: Node) -> dict[str, NodeKey]:
    resolve_name = node.project.graph.resolve
    return {name: resolve_name(node.key, given.node) for name, given in node.config.inputs.items() if given.node}


def _followed(spark: SparkSession, node: Node, columns: tuple[str, ...]) -> Followed:
    frames = {source.name: frame for source in node.sources if (frame := _rows_of(spark, source)) is not None}
    outline = _outline(spark, node, frames)
    sources: dict[str, tuple[str, ...]] = {}
    for name, frame in frames.items():
        by_lower = {column.lower(): column for column in frame.columns}
        parts = [_column_in(name, column, by_lower, outline) for column in columns]
        if all(part is not None for part in parts):
            sources[name] = tuple(part for part in parts if part is not None)
    return Followed(node, columns, sources, outline)


def _column_in(view: str, column: str, columns: Mapping[str, str], outline: Outline | None) -> str | None:
    """The column of an input that a column of the result is; by its name, where the plan does not tell."""
    if outline is not None:
        known = {name.lower(): origins for name, origins in outline.columns.items()}.get(column.lower(), ())
        return next((origin for source, origin in known if source == view), None) or _equal_in(view, known, outline)
    return columns.get(column.lower())


def _equal_in(view: str, known: Sequence[tuple[str, str]], outline: Outline) -> str | None:
    """The column of ``view`` that a join requires to be equal to one of ``known``."""
    texts = {f"{source}.{column}" for source, column in known}
    for one in outline.equalities:
        for place in (0, 1):
            prefix, side = f"{view}.", one.sides[place]
            if one.sides[1 - place] in texts and one.views[place] == view and side.startswith(prefix):
                return side.removeprefix(prefix).strip("`")
    return None


def _outline(spark: SparkSession, node: Node, frames: Mapping[str, DataFrame]) -> Outline | None:
    """What the node's query does, from its plan; None where no plan can be had: with Spark Connect, or of a function
    that looks at rows."""
    if not hasattr(spark, "_jsparkSession") or len(frames) < len(node.sources):
        return None
    schemas = {name: frame.schema for name, frame in frames.items()}

    def transform(streams: Mapping[str, DataFrame]) -> DataFrame:
        return transformed(spark, node.config, node.project.root, streams, str(node))

    try:
        return read_outline(spark, schemas, transform, str(node))
    except Exception as error:  # noqa: BLE001  a user's function may raise anything when it is given streams
        import logging

        logging.getLogger(__name__).debug("no plan of %s: %s", node, error)
        return None


def _rows_of(spark: SparkSession, source: Source) -> DataFrame | None:
    """All rows of a source; None if there is nothing yet."""
    try:
        read = source.whole()
        return read.load(spark)
    except SourceError:
        return None


# -- looking -----------------------------------------------------------------------------------------------------------


def _look(found: _Trace, followed: Followed) -> None:
    node = followed.node
    for source in node.sources:
        if source.name in followed.sources and not isinstance(source, DeltaTableSource):
            _look_into_source(found, source, followed.sources[source.name])
    handle = TableHandle.open(node.target.location)
    there = _stays(found, handle, followed.columns)
    absent = [key for key in found.keys if key not in there or not there[key].rows]
    for key in found.keys:
        if key not in absent:
            found.add(key, _present(node, there[key]))
    if absent:
        _Absence(found, followed, handle).explain(absent, there)


def _stays(found: _Trace, handle: TableHandle, columns: tuple[str, ...]) -> dict[str, Stay]:
    if not handle.exists:
        return {}
    known = {name.lower(): name for name in handle.columns}
    missing = next((column for column in columns if column.lower() not in known), None)
    if missing is not None:
        raise ConfigError(
            f"the table at {handle.location.uri} has no column {missing}",
            fix=f"it has {', '.join(handle.columns)}: name one, as in --key COLUMN=VALUE",
            column=missing,
        )
    return stays(found.spark, handle, key_sql([quoted(known[column.lower()]) for column in columns]), found.keys)


def _present(node: Node, stay: Stay) -> Place:
    run = f" (run {stay.since_run[:8]})" if stay.since_run else ""
    since = f"since version {stay.since}{run}" if stay.since is not None else "since before its log begins"
    text = f"{node} has {counted(stay.rows, 'row')} of it, {since}"
    return Place(str(node), Finding.PRESENT, text, stay.rows, stay.since, stay.since_run)


def _look_into_source(found: _Trace, source: Source, columns: tuple[str, ...]) -> None:
    rows = _rows_of(found.spark, source)
    counts = {} if rows is None else _by_file(found, source, rows, columns)
    for key in found.keys:
        in_files = counts.get(key, {})
        if in_files:
            total, names = sum(in_files.values()), tuple(sorted(name for name in in_files if name))
            where = f" in {_some(names)}" if names else ""
            text = f"{source.label} has {counted(total, 'row')} of it{where}"
            found.add(key, Place(source.label, Finding.PRESENT, text, total, files=names, is_source=True))
        else:
            text = f"{source.label} has no row of it"
            found.add(key, Place(source.label, Finding.NOT_LANDED, text, is_source=True))


def _by_file(found: _Trace, source: Source, rows: DataFrame, columns: tuple[str, ...]) -> dict[str, dict[str, int]]:
    from pyspark.sql import functions as F

    base = getattr(source.unwaited, "base", None)
    root = "" if base is None else file_uri_key(base.uri).rstrip("/") + "/"
    key = key_sql([quoted(column) for column in columns])
    frame = rows.withColumn(_FILE, F.input_file_name()).selectExpr(f"{key} AS key", _FILE)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in only_asked(frame, found.keys).groupBy("key", _FILE).count().collect():
        counts[row["key"]][file_uri_key(row[_FILE]).removeprefix(root) if row[_FILE] else ""] = row["count"]
    return counts


def _failed_sql(conditions: Sequence[Condition]) -> str:
    """SQL of the place of the first condition that a row does not meet; -1 if it meets all."""
    cases = " ".join(f"WHEN NOT coalesce({one.sql}, false) THEN {place}" for place, one in enumerate(conditions))
    return f"CASE {cases} ELSE -1 END" if cases else "-1"


def _with_reason(gone: Place, reason: Place) -> Place:
    """What became of a key that a table had until it was computed anew, and why it was not computed again."""
    if reason.finding in (Finding.UNEXPLAINED, Finding.LATE, Finding.REPLACED):
        return gone
    return replace(gone, finding=reason.finding, text=f"{gone.text}: {reason.text}")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _FILES_SHOWN
    return ", ".join(names[:_FILES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


@dataclass
class _Absence:
    """Why keys are not in the table of a node."""

    found: _Trace
    followed: Followed
    handle: TableHandle

    @property
    def node(self) -> Node:
        return self.followed.node

    def explain(self, absent: Sequence[str], there: Mapping[str, Stay]) -> None:
        """Add a place for each key that is absent."""
        waiting, gone = [], dict[str, Place]()
        for key in absent:
            if key in there:
                gone[key] = self._gone(key, there[key])
                if there[key].gone_mode == "overwrite" and self._has_source(key):
                    # The table was computed anew without it, and that has a reason.
                    waiting.append(key)
                else:
                    self.found.add(key, gone[key])
            elif not self._has_source(key):
                self.found.add(key, self._never_came(key))
            else:
                waiting.append(key)
        if not waiting:
            return
        if self.node.config.stream is not None:
            for key in waiting:
                fix = f"odi stream explain {self.node} tells why"
                self.found.add(key, Place(str(self.node), Finding.UNEXPLAINED, f"{self.node} has no row of it: {fix}"))
            return
        for key, place in self._reasons(waiting):
            self.found.add(key, _with_reason(gone[key], place) if key in gone else place)

    def _has_source(self, key: str) -> bool:
        return any(place.rows for place in self._sources(key).values())

    def _sources(self, key: str) -> dict[str, Place]:
        """Where the key was looked for in what the node reads, by name of the source."""
        upstream = _upstream(self.node)
        names = {
            s.name: str(upstream.get(s.name, s.label)) for s in self.node.sources if s.name in self.followed.sources
        }
        at = self.found.at[key]
        return {name: at[place] for name, place in names.items() if place in at}

    def _never_came(self, key: str) -> Place:
        above = list(self._sources(key).values())
        if above:
            where = " and ".join(place.name for place in above)
            return Place(str(self.node), above[0].finding, f"{self.node} has no row of it, for {where} has none")
        columns = ", ".join(f"`{column}`" for column in self.followed.columns)
        text = f"{self.node} has no row of it; {columns} is computed there, so the key cannot be followed to what it "
        text += "reads: ask by a column that it takes unchanged, with --key COLUMN=VALUE, or ask the nodes above it"
        return Place(str(self.node), Finding.UNEXPLAINED, text)

    def _gone(self, key: str, stay: Stay) -> Place:
        keys = self.node.config.write.keys
        replaced = bool(keys) and stay.gone_mode == "upsert" and self._kept_keys(key, stay)
        run = f" (run {stay.gone_run[:8]})" if stay.gone_run else ""
        since = f"since version {stay.since}, " if stay.since is not None else ""
        if replaced:
            text = f"{self.node} had it {since}until version {stay.gone}{run} put a newer row with the same "
            text += f"{', '.join(keys)} in its place"
            return Place(str(self.node), Finding.REPLACED, text, 0, stay.gone, stay.gone_run)
        did = "replaced rows" if stay.gone_mode in ("overwrite", "partition_overwrite") else "took it out"
        text = f"{self.node} had it {since}until version {stay.gone}{run} {did}, and has no row of it now"
        return Place(str(self.node), Finding.DELETED, text, 0, stay.gone, stay.gone_run)

    def _kept_keys(self, key: str, stay: Stay) -> bool:
        """Whether a row with the keys of the row that is gone is in the table now."""
        before = TableHandle.open(self.handle.location, (stay.gone or 1) - 1)
        columns = [quoted(column) for column in self.node.config.write.keys]
        was = read_table(self.found.spark, before).where(self._is_key(key)).select(*columns)
        return bool(
            read_table(self.found.spark, self.handle).join(was.distinct(), list(self.node.config.write.keys)).take(1)
        )

    def _is_key(self, key: str) -> Any:
        from pyspark.sql import functions as F

        return F.expr(key_sql([quoted(column) for column in self.followed.columns])) == F.lit(key)

    # -- reasons, where the sources have the key

    def _reasons(self, keys: Sequence[str]) -> Iterator[tuple[str, Place]]:
        unread = self._unread(keys)
        failing = self._failing(keys)
        lacking = self._lacking(keys)
        given = self._given(keys)
        for key in keys:
            yield key, self._reason(unread.get(key), failing.get(key), lacking.get(key), given.get(key))

    def _reason(self, unread: str | None, failing: str | None, lacking: str | None, given: str | None) -> Place:
        node = self.node
        if unread:
            return Place(str(node), Finding.NOT_READ, f"{node} has not read it yet: {unread}")
        if failing:
            text = f"{node} leaves it out: its rows do not meet `{failing}`"
            return Place(str(node), Finding.FILTERED, text)
        if lacking:
            return Place(str(node), Finding.LOST_BY_JOIN, f"{node} loses it in a join: {lacking}")
        if given is None:
            choices = self.followed.outline.choices if self.followed.outline else ()
            why = f": `{'`, `'.join(choices)}`" if choices else ""
            return Place(str(node), Finding.LEFT_OUT, f"the transform of {node} gives no row of it{why}")
        if given == "replaced":
            text = f"a newer row with the same {', '.join(node.config.write.keys)} is in {node} instead"
            return Place(str(node), Finding.REPLACED, text)
        stateful = [s for s in node.sources if isinstance(s.increment, StatefulIncrement)]
        if stateful:
            return Place(str(node), Finding.LATE, self._late(stateful[0]))
        changed = self._changed()
        if changed:
            text = f"{node} has not read it yet: {changed}. To read it: odi run {node.command}"
            return Place(str(node), Finding.NOT_READ, text)
        text = f"{node} would have it if it was computed now, and has not: what it reads changed since it was read, or "
        text += f"the node did. To compute it anew: odi run {node.command} --full-refresh"
        return Place(str(node), Finding.UNEXPLAINED, text)

    def _changed(self) -> str | None:
        """How a source that is read whole has changed since the node's last run, in words."""
        stamp = self.handle.last_stamp(app_id(self.node.key)) if self.handle.exists else None
        positions = (CommitFacts.of(stamp).positions if stamp else None) or {}
        for source in self.node.sources:
            if source.name in self.followed.sources and not source.follows and source.name in positions:
                changed = source.change_since(positions[source.name])
                if changed:
                    return f"{source.label} changed since the last run ({changed})"
        return None

    def _late(self, source: Source) -> str:
        increment = source.increment
        assert isinstance(increment, StatefulIncrement)
        lag = f" minus its lag of {increment.watermark_lag}" if increment.watermark_lag else ""
        text = (
            f"{self.node} has read {source.label} beyond it: its `{increment.column}` was not above the high-water mark"
        )
        return f"{text}{lag} when it came. A larger `watermark_lag` would have caught it; a full refresh reads it now"

    def _unread(self, keys: Sequence[str]) -> dict[str, str]:
        """By key whose rows are all yet to be read, where they are."""
        try:
            plan = plan_node(self.found.project, self.found.state, self.node.key)
            reads = resolve(plan, self.found.spark).reads
        except OdiError:
            # A node that cannot be planned has read what it has read; `odi plan` says what is wrong with it.
            return {}
        found: dict[str, str] = {}
        for read in reads:
            waits_for = read.waits_for if isinstance(read, NothingNew) else None
            if (
                read.name not in self.followed.sources
                or (read.nothing_new and waits_for is None)
                or not (read.follows or not self.handle.exists)
            ):
                continue
            rows = read.increment if isinstance(read, NothingNew) else read
            rows = rows.resolve(self.found.spark) if isinstance(rows, UnresolvedRead) else rows
            if not isinstance(rows, Read):
                continue
            why = f"above the high-water mark. Run: odi run {self.node.command}" if waits_for is None else waits_for
            new = self._count(rows.load(self.found.spark), read.name, keys)
            for key, count in new.items():
                place = self._sources(key).get(read.name)
                if place is not None and count >= place.rows:
                    where = f" in {_some(place.files)}" if place.files else ""
                    found[key] = f"{place.name} has it{where}, {'' if waits_for is None else 'and '}{why}"
        return found

    def _count(self, frame: DataFrame, source: str, keys: Sequence[str]) -> dict[str, int]:
        key = key_sql([quoted(column) for column in self.followed.sources[source]])
        rows = only_asked(frame.selectExpr(f"{key} AS key"), keys)
        return {row["key"]: row["count"] for row in rows.groupBy("key").count().collect()}

    def _failing(self, keys: Sequence[str]) -> dict[str, str]:
        """By key none of whose rows meets the conditions of an input, the first condition that is not met."""
        from pyspark.sql import functions as F

        found: dict[str, str] = {}
        for source in self.node.sources:
            conditions = self._conditions(source.name)
            rows = _rows_of(self.found.spark, source) if source.name in self.followed.sources else None
            if not conditions or rows is None:
                continue
            key = key_sql([quoted(column) for column in self.followed.sources[source.name]])
            frame = rows.alias(source.name).selectExpr(f"{key} AS key", f"{_failed_sql(conditions)} AS failed")
            grouped = only_asked(frame, keys).groupBy("key")
            for row in grouped.agg(F.min("failed").alias("best"), F.max("failed").alias("failed")).collect():
                if row["best"] >= 0:
                    found[row["key"]] = conditions[row["failed"]].text
        return found

    def _conditions(self, view: str) -> tuple[Condition, ...]:
        """What rows of an input must meet; those of its second part in a join with itself are left out."""
        found = self.followed.outline.conditions.get(view, ()) if self.followed.outline else ()
        return tuple(one for one in found if f"{view}_2." not in one.sql)

    def _lacking(self, keys: Sequence[str]) -> dict[str, str]:
        """By key whose rows have no counterpart in a join, what is lacking."""
        from pyspark.sql import functions as F

        found: dict[str, str] = {}
        frames = {source.name: _rows_of(self.found.spark, source) for source in self.node.sources}
        labels = {source.name: source.label for source in self.node.sources}
        for one in self.followed.outline.equalities if self.followed.outline else ():
            for name in self.followed.sources:
                other = one.other(name)
                if other is None or frames.get(name) is None or frames.get(one.views[other]) is None:
                    continue
                key = key_sql([quoted(column) for column in self.followed.sources[name]])
                left, right = frames[name], frames[one.views[other]]
                assert left is not None
                assert right is not None
                rows = left.alias(name).selectExpr(f"{key} AS key", f"{one.sides[1 - other]} AS value")
                rows = only_asked(rows, keys)
                conditions = self._conditions(one.views[other])
                counterparts = right.alias(one.views[other]).selectExpr(
                    f"{one.sides[other]} AS there", f"{_failed_sql(conditions)} AS failed"
                )
                # By value, -1 if a row of it meets all conditions, else the last one that stopped a row.
                best = F.when(F.min("failed") < 0, -1).otherwise(F.max("failed")).alias("failed")
                joined = rows.join(
                    counterparts.groupBy("there").agg(best), F.col("value").eqNullSafe(F.col("there")), "left"
                )
                text = F.max(F.col("value").cast("string")).alias("value")
                matches = F.count(F.when(F.col("failed") < 0, 1)).alias("matches")
                for row in joined.groupBy("key").agg(matches, F.max("failed").alias("failed"), text).collect():
                    if not row["matches"]:
                        column = one.sides[other].removeprefix(f"{one.views[other]}.")
                        value = f"{column} = {'NULL' if row['value'] is None else repr(row['value'])}"
                        label = labels[one.views[other]]
                        found[row["key"]] = f"{label} has no row with {value}"
                        if row["failed"] is not None:
                            failed = conditions[row["failed"]].text
                            found[row["key"]] = f"the rows of {label} with {value} do not meet `{failed}`"
        return found

    def _given(self, keys: Sequence[str]) -> dict[str, str]:
        """The keys that the transform gives now: ``given``, or ``replaced`` if the table has their ``write.keys``."""
        from pyspark.sql import functions as F

        frames = {source.name: _rows_of(self.found.spark, source) for source in self.node.sources}
        whole = {name: frame for name, frame in frames.items() if frame is not None}
        if len(whole) < len(frames):
            return {}
        node = self.node
        rows = transformed(self.found.spark, node.config, node.project.root, whole, str(node))
        key = key_sql([quoted(column) for column in self.followed.columns])
        rows = only_asked(rows.withColumn("_odi_key", F.expr(key)), keys, "_odi_key")
        given = {row["_odi_key"]: "given" for row in rows.select("_odi_key").distinct().collect()}
        columns = list(node.config.write.keys)
        if given and columns and self.handle.exists:
            table = read_table(self.found.spark, self.handle).select(*map(quoted, columns)).distinct()
            kept = rows.select("_odi_key", *map(quoted, columns)).join(table, columns)
            given |= {row["_odi_key"]: "replaced" for row in kept.select("_odi_key").distinct().collect()}
        return given


# -- the answer --------------------------------------------------------------------------------------------------------


def _conclusion(found: _Trace, node: str, key: str) -> KeyTrace:
    places = tuple(found.places[key])
    last = found.at[key][node]
    if last.finding is Finding.PRESENT:
        return KeyTrace(key_parts(key), last.finding, f"{_capital(last.text)}.", None, places)
    # The first place that has not got the key, while one before it has, tells why.
    tables = [place for place in places if not place.files and place.finding is not Finding.PRESENT]
    cause = next((place for place in tables if place.finding is not Finding.NOT_LANDED), None)
    if cause is None or (not any(place.rows for place in places) and last.finding is Finding.NOT_LANDED):
        looked = dict.fromkeys(place.name for place in places if place.is_source)
        sentence = (
            f"It has not landed: {' and '.join(looked) or node} {'have' if len(looked) > 1 else 'has'} no row of it."
        )
        return KeyTrace(key_parts(key), Finding.NOT_LANDED, sentence, None, places)
    return KeyTrace(key_parts(key), cause.finding, f"{_capital(cause.text)}.", cause.name, places)


def _capital(text: str) -> str:
    # The name of a node stays as it is.
    return text if "." in text.partition(" ")[0] else text[:1].upper() + text[1:]
