"""Why a key is not in the table of a node, though what the node reads has it, or had it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.config.models.checks import FAILED_CHECKS
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, IdentityMismatchError, IncrementError, LossError, TargetBehindStateError
from odi_assets.explain.evidence.collect import first_failing_sql, key_sql, only_asked
from odi_assets.explain.places import Trace, some_names
from odi_assets.explain.spans import Stay
from odi_assets.explain.stream import StreamExplainer
from odi_assets.explain.verdicts import KeyVerdict, SearchedPlace
from odi_assets.explain.way import Followed, rows_of, upstream
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.resolve import resolve
from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.planning.writers import quarantine_of
from odi_assets.sources.reads import NothingNew, Read, UnresolvedRead
from odi_assets.sources.source import Source
from odi_assets.spark.lazy import F
from odi_assets.spark.plans.definition import Condition
from odi_assets.streams.kind import StreamKind
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_STOPPED = (ConfigError, IdentityMismatchError, IncrementError, LossError, TargetBehindStateError)
"""What stops a plan for what the node is, and not because something cannot be looked at."""


@dataclass
class Absence:
    """Why keys are not in the table of a node."""

    trace: Trace
    followed: Followed
    handle: TableHandle

    @property
    def node(self) -> Node:
        return self.followed.node

    def explain(self, absent: Sequence[str], there: Mapping[str, Stay]) -> None:
        """Add a place for each key that is absent."""
        waiting, gone = [], dict[str, SearchedPlace]()
        for key in absent:
            if key in there:
                gone[key] = self._gone(key, there[key])
                if there[key].gone_mode == "overwrite" and self._has_source(key):
                    # The table was recomputed without the key, and that has a reason.
                    waiting.append(key)
                else:
                    self.trace.add(key, gone[key])
            elif self._has_source(key) or isinstance(self.node.kind, StreamKind):
                waiting.append(key)
            else:
                self.trace.add(key, self._never_came(key))
        if not waiting:
            return
        reasons = self._of_stream if isinstance(self.node.kind, StreamKind) else self._reasons
        for key, place in reasons(waiting):
            self.trace.add(key, _with_reason(gone[key], place) if key in gone else place)

    def _has_source(self, key: str) -> bool:
        return any(place.rows for place in self._sources(key).values())

    def _sources(self, key: str) -> dict[str, SearchedPlace]:
        """Where the key was looked for in what the node reads, by name of the source."""
        above = upstream(self.node)
        names = {s.name: str(above.get(s.name, s.label)) for s in self.node.sources if s.name in self.followed.sources}
        at = self.trace.at[key]
        return {name: at[label] for name, label in names.items() if label in at}

    def _never_came(self, key: str) -> SearchedPlace:
        above = list(self._sources(key).values())
        if above:
            where = " and ".join(place.name for place in above)
            return SearchedPlace(
                str(self.node), above[0].verdict, f"{self.node} has no row of it, for {where} has none"
            )
        columns = ", ".join(f"`{column}`" for column in self.followed.columns)
        text = f"{self.node} has no row of it; {columns} is computed there, so the key cannot be followed to what it "
        text += "reads: ask by a column that it takes unchanged, with --key COLUMN=VALUE, or ask the nodes above it"
        return SearchedPlace(str(self.node), KeyVerdict.UNEXPLAINED, text)

    def _gone(self, key: str, stay: Stay) -> SearchedPlace:
        keys = self.node.config.write.keys
        replaced = bool(keys) and stay.gone_mode == "upsert" and self._kept_keys(key, stay)
        run = f" (run {stay.gone_run[:8]})" if stay.gone_run else ""
        since = f"since version {stay.since}, " if stay.since is not None else ""
        if replaced:
            text = f"{self.node} had it {since}until version {stay.gone}{run} put a newer row with the same "
            text += f"{', '.join(keys)} in its place"
            return SearchedPlace(str(self.node), KeyVerdict.REPLACED, text, 0, stay.gone, stay.gone_run)
        did = "replaced rows" if stay.gone_mode in ("overwrite", "partition_overwrite") else "took it out"
        text = f"{self.node} had it {since}until version {stay.gone}{run} {did}, and has no row of it now"
        return SearchedPlace(str(self.node), KeyVerdict.DELETED, text, 0, stay.gone, stay.gone_run)

    def _kept_keys(self, key: str, stay: Stay) -> bool:
        """Whether a row with the keys of the row that is gone is in the table now."""
        before = TableHandle.open(self.handle.location, (stay.gone or 1) - 1)
        columns = [quoted(column) for column in self.node.config.write.keys]
        was = engine_of(before).read(self.trace.spark, before).where(self._is_key(key)).select(*columns)
        return bool(
            engine_of(self.handle)
            .read(self.trace.spark, self.handle)
            .join(was.distinct(), list(self.node.config.write.keys))
            .take(1)
        )

    @property
    def _key_sql(self) -> str:
        return key_sql([quoted(column) for column in self.followed.columns])

    def _is_key(self, key: str) -> Any:
        return F.expr(self._key_sql) == F.lit(key)

    def _of_stream(self, keys: Sequence[str]) -> Iterator[tuple[str, SearchedPlace]]:
        """Why the query of a stream node did not write keys that are absent from its table."""
        node = self.node
        unasked = f"its query has another key. To ask by a column that it reads: odi explain {node} --key COLUMN=VALUE"
        try:
            explainer = StreamExplainer.of(self.trace.project, node.key, self.trace.spark)
            answers = explainer.of_columns(self.followed.columns, keys)
        except _STOPPED as error:
            answers, unasked = {}, error.message
        for key in keys:
            answer = answers.get(key)
            if answer is None:
                yield key, SearchedPlace(str(node), KeyVerdict.UNEXPLAINED, f"{node} has no row of it; {unasked}")
                continue
            said = "; ".join(answer.disagreements)
            text = f"{node} has no row of it: {said or answer.sentence.rstrip('.')}"
            verdict = KeyVerdict.UNEXPLAINED if said else answer.verdict
            yield key, SearchedPlace(str(node), verdict, text)

    # -- reasons, where the sources have the key

    def _reasons(self, keys: Sequence[str]) -> Iterator[tuple[str, SearchedPlace]]:
        unread = self._unread(keys)
        failing = self._failing(keys)
        lacking = self._lacking(keys)
        outcome_by_key = self._given(keys)
        quarantined = self._quarantined(keys)
        for key in keys:
            if key in quarantined:
                yield key, SearchedPlace(str(self.node), KeyVerdict.QUARANTINED, quarantined[key])
                continue
            yield key, self._reason(unread.get(key), failing.get(key), lacking.get(key), outcome_by_key.get(key))

    def _quarantined(self, keys: Sequence[str]) -> dict[str, str]:
        """The keys whose rows are in the node's quarantine, and what they fail, in words."""
        location = quarantine_of(self.node)
        table = None if location is None else TableHandle.open(location)
        if location is None or table is None or not {*self.followed.columns, FAILED_CHECKS} <= set(table.columns):
            return {}
        rows = engine_of(table).read(self.trace.spark, table)
        rows = only_asked(rows.withColumn("_odi_key", F.expr(self._key_sql)), keys, "_odi_key")
        failed = F.array_distinct(F.flatten(F.collect_list(FAILED_CHECKS))).alias("failed")
        where = f"{self.node} has it in its quarantine {location.uri}"
        return {
            row["_odi_key"]: f"{where}: it fails {' and '.join(f'`{name}`' for name in row['failed'])}"
            for row in rows.groupBy("_odi_key").agg(failed).collect()
        }

    def _reason(
        self, unread: str | None, failing: str | None, lacking: str | None, outcome: str | None
    ) -> SearchedPlace:
        node = self.node
        if unread:
            return SearchedPlace(str(node), KeyVerdict.NOT_READ, f"{node} has not read it yet: {unread}")
        if failing:
            text = f"{node} leaves it out: its rows do not meet `{failing}`"
            return SearchedPlace(str(node), KeyVerdict.FILTERED, text)
        if lacking:
            return SearchedPlace(str(node), KeyVerdict.LOST_BY_JOIN, f"{node} loses it in a join: {lacking}")
        if outcome is None:
            choices = self.followed.outline.choices if self.followed.outline else ()
            why = f": `{'`, `'.join(choices)}`" if choices else ""
            return SearchedPlace(str(node), KeyVerdict.LEFT_OUT, f"the transform of {node} gives no row of it{why}")
        if outcome == "replaced":
            text = f"a newer row with the same {', '.join(node.config.write.keys)} is in {node} instead"
            return SearchedPlace(str(node), KeyVerdict.REPLACED, text)
        stateful = [s for s in node.sources if isinstance(s.increment, StatefulIncrement)]
        if stateful:
            return SearchedPlace(str(node), KeyVerdict.LATE, self._late(stateful[0]))
        changed = self._changed()
        if changed:
            text = f"{node} has not read it yet: {changed}. To read it: odi run {node.command}"
            return SearchedPlace(str(node), KeyVerdict.NOT_READ, text)
        text = f"{node} would have it if it was computed now, and has not: what it reads changed since it was read, or "
        text += f"the node did. To recompute it: odi run {node.command} --full-refresh"
        return SearchedPlace(str(node), KeyVerdict.UNEXPLAINED, text)

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
            plan = plan_node(self.trace.project, self.trace.state, self.node.key)
            reads = resolve(plan, self.trace.spark).reads
        except _STOPPED:
            # It has read what it has read; `odi plan` says what is wrong with it.
            return {}
        reason_by_key: dict[str, str] = {}
        for read in reads:
            waits_for = read.waits_for if isinstance(read, NothingNew) else None
            if (
                read.name not in self.followed.sources
                or (read.nothing_new and waits_for is None)
                or not (read.follows or not self.handle.exists)
            ):
                continue
            rows = read.increment if isinstance(read, NothingNew) else read
            rows = rows.resolve(self.trace.spark) if isinstance(rows, UnresolvedRead) else rows
            if not isinstance(rows, Read):
                continue
            why = f"above the high-water mark. Run: odi run {self.node.command}" if waits_for is None else waits_for
            new = self._count(rows.load(self.trace.spark), read.name, keys)
            for key, count in new.items():
                place = self._sources(key).get(read.name)
                if place is not None and count >= place.rows:
                    where = f" in {some_names(place.files)}" if place.files else ""
                    reason_by_key[key] = f"{place.name} has it{where}, {'' if waits_for is None else 'and '}{why}"
        return reason_by_key

    def _count(self, frame: DataFrame, source: str, keys: Sequence[str]) -> dict[str, int]:
        key = key_sql([quoted(column) for column in self.followed.sources[source]])
        rows = only_asked(frame.selectExpr(f"{key} AS key"), keys)
        return {row["key"]: row["count"] for row in rows.groupBy("key").count().collect()}

    def _failing(self, keys: Sequence[str]) -> dict[str, str]:
        """By key none of whose rows meets the conditions of an input, the first condition that is not met."""
        condition_by_key: dict[str, str] = {}
        for source in self.node.sources:
            conditions = self._conditions(source.name)
            rows = rows_of(self.trace.spark, source) if source.name in self.followed.sources else None
            if not conditions or rows is None:
                continue
            key = key_sql([quoted(column) for column in self.followed.sources[source.name]])
            frame = rows.alias(source.name).selectExpr(f"{key} AS key", f"{first_failing_sql(conditions)} AS failed")
            grouped = only_asked(frame, keys).groupBy("key")
            for row in grouped.agg(F.min("failed").alias("best"), F.max("failed").alias("failed")).collect():
                if row["best"] >= 0:
                    condition_by_key[row["key"]] = conditions[row["failed"]].text
        return condition_by_key

    def _conditions(self, view: str) -> tuple[Condition, ...]:
        """What rows of an input must meet, without the conditions on its second side in a self-join."""
        conditions = self.followed.outline.conditions.get(view, ()) if self.followed.outline else ()
        return tuple(condition for condition in conditions if f"{view}_2." not in condition.sql)

    def _lacking(self, keys: Sequence[str]) -> dict[str, str]:
        """By key whose rows have no counterpart in a join, what is lacking."""
        reason_by_key: dict[str, str] = {}
        frames = {source.name: rows_of(self.trace.spark, source) for source in self.node.sources}
        labels = {source.name: source.label for source in self.node.sources}
        for equality in self.followed.outline.equalities if self.followed.outline else ():
            for name in self.followed.sources:
                other_side = equality.other(name)
                if other_side is None or frames.get(name) is None or frames.get(equality.views[other_side]) is None:
                    continue
                key = key_sql([quoted(column) for column in self.followed.sources[name]])
                left, right = frames[name], frames[equality.views[other_side]]
                assert left is not None
                assert right is not None
                rows = left.alias(name).selectExpr(f"{key} AS key", f"{equality.sides[1 - other_side]} AS value")
                rows = only_asked(rows, keys)
                conditions = self._conditions(equality.views[other_side])
                counterparts = right.alias(equality.views[other_side]).selectExpr(
                    f"{equality.sides[other_side]} AS there", f"{first_failing_sql(conditions)} AS failed"
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
                        column = equality.sides[other_side].removeprefix(f"{equality.views[other_side]}.")
                        value = f"{column} = {'NULL' if row['value'] is None else repr(row['value'])}"
                        label = labels[equality.views[other_side]]
                        reason_by_key[row["key"]] = f"{label} has no row with {value}"
                        if row["failed"] is not None:
                            failed = conditions[row["failed"]].text
                            reason_by_key[row["key"]] = f"the rows of {label} with {value} do not meet `{failed}`"
        return reason_by_key

    def _given(self, keys: Sequence[str]) -> dict[str, str]:
        """The keys that the transform gives now: ``given``, or ``replaced`` if the table has their ``write.keys``."""
        frames = {source.name: rows_of(self.trace.spark, source) for source in self.node.sources}
        whole = {name: frame for name, frame in frames.items() if frame is not None}
        if len(whole) < len(frames):
            return {}
        node = self.node
        rows = transformed(self.trace.spark, node.config, node.project.root, whole, str(node))
        rows = only_asked(rows.withColumn("_odi_key", F.expr(self._key_sql)), keys, "_odi_key")
        outcome_by_key = {row["_odi_key"]: "given" for row in rows.select("_odi_key").distinct().collect()}
        columns = list(node.config.write.keys)
        if outcome_by_key and columns and self.handle.exists:
            table = engine_of(self.handle).read(self.trace.spark, self.handle).select(*map(quoted, columns)).distinct()
            kept = rows.select("_odi_key", *map(quoted, columns)).join(table, columns)
            outcome_by_key |= {row["_odi_key"]: "replaced" for row in kept.select("_odi_key").distinct().collect()}
        return outcome_by_key


def _with_reason(gone: SearchedPlace, reason: SearchedPlace) -> SearchedPlace:
    """Why a key that a table had is missing since the table was recomputed."""
    if reason.verdict in (KeyVerdict.UNEXPLAINED, KeyVerdict.LATE, KeyVerdict.REPLACED):
        return gone
    return replace(gone, verdict=reason.verdict, text=f"{gone.text}: {reason.text}")
