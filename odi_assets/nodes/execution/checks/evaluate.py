"""Evaluates checks over rows: one aggregate for all that a row says of itself, and one more pass for each check that
compares rows, or looks them up."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.config.diagnostics.mistakes import closest
from odi_assets.config.models.checks import FAILED_CHECKS, Check, Freshness, Reference, RowCount
from odi_assets.errors import ConfigError
from odi_assets.nodes.execution.checks.conditions import (
    condition_of,
    kind_of,
    require_comparable,
    require_same_family,
)
from odi_assets.nodes.execution.checks.outcomes import CheckOutcome
from odi_assets.spark.lazy import F, spark_errors
from odi_assets.spark.raised import own_words
from odi_assets.tables.columns import quoted
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Lookup = Callable[[Reference], DataFrame]
    """The values that a foreign key may have: a frame of one column."""

_SAMPLES = 3
_SHOWN_COLUMNS, _SHOWN_TEXT = 8, 40
_OURS = "__odi_"
"""How columns begin that are not the user's."""
_HIT, _KEY, _ROWS = f"{_OURS}hit", f"{_OURS}key", f"{_OURS}rows"


@dataclass
class Evaluation:
    """The checks of ``rows``.

    Attributes:
        rows: the rows, which may be read several times.
        label: whose they are, for messages.
        lookup: gives the values of foreign keys.
        counts: which rows are looked at; None: all of them. Others are never found to fail.
        keys: columns that tell which row a row is; samples begin with them.
        passes: whether it is known without the rows that none of them fails a check.
        total: how many rows are looked at, if that is known.
        apart: columns that hold rows apart: rows that differ in them, as rows of two deliveries do, are not compared.
    """

    rows: DataFrame
    checks: Sequence[Check]
    label: str
    lookup: Lookup
    counts: Column | None = None
    keys: Sequence[str] = ()
    passes: Callable[[Check], bool] = lambda _: False
    total: int | None = None
    apart: Sequence[str] = ()
    outcomes: tuple[CheckOutcome, ...] = field(init=False, default=())

    def run(self) -> tuple[CheckOutcome, ...]:
        """Evaluate all of them.

        Raises:
            ConfigError: a check names a column that is not there, or is no condition or query that Spark can run.
        """

        looked_at = self.rows if self.counts is None else self.rows.where(self.counts)
        self._require_possible()
        known = {check.name for check in self.checks if check.kind != "unique" and self.passes(check)}
        own = {check.name: condition_of(check, self.rows) for check in self.checks if check.name not in known}
        measures = [measure for check in self.checks for measure in self._measured(check, own.get(check.name))]
        with ThreadPoolExecutor(1) as beside:
            # This process compares keys while Spark looks at the rows.
            compared = {
                unique_check.name: beside.submit(self.passes, unique_check)
                for unique_check in self.checks
                if unique_check.kind == "unique"
            }
            totals: dict[str, Any] = {_ROWS: self.total}
            if measures or self.total is None:
                totals = self._totals(looked_at, measures, own)
            known |= {name for name, passed in compared.items() if passed.result()}
            outcomes = []
            for check in self.checks:
                if check.name in known:
                    outcomes.append(_passed(check, int(totals[_ROWS])))
                    continue
                with self._named(check):
                    outcomes.append(self._outcome(check, looked_at, own[check.name], totals))
            self.outcomes = tuple(outcomes)
        return self.outcomes

    def _measured(self, check: Check, condition: Column | None) -> list[Column]:
        """What one aggregate over the rows computes for a check."""
        if condition is not None:
            return [F.count_if(condition).alias(check.name)]
        if check.config.freshness is None:
            return []
        newest = F.max(quoted(check.columns[0])).cast("timestamp")
        age = (F.unix_micros(F.current_timestamp()) - F.unix_micros(newest)) / F.lit(1_000_000)
        return [age.alias(check.name), newest.cast("string").alias(f"{check.name} newest")]

    def _totals(self, rows: DataFrame, wanted: Sequence[Column], own: Mapping[str, Column | None]) -> dict[str, Any]:
        """One aggregate for all checks; where it fails, one for each, to find the check that it fails for."""
        conditions = {name: condition for name, condition in own.items() if condition is not None}
        try:
            # A filter reads what its statistics cannot rule out. Checks that all rows pass need no counts.
            if self.total is not None and len(conditions) == len(wanted):
                fails_any = reduce(lambda left, right: left | right, conditions.values())
                if rows.where(fails_any).isEmpty():
                    return {_ROWS: self.total, **dict.fromkeys(conditions, 0)}
            return dict(rows.agg(F.count(F.lit(1)).alias(_ROWS), *wanted).collect()[0].asDict())
        except spark_errors.PySparkException:
            for check in self.checks:
                if measured := self._measured(check, own.get(check.name)):
                    with self._named(check):
                        rows.agg(*measured).collect()
            raise

    def with_failed_checks(self) -> DataFrame:
        """The rows, with an array of the names of the checks that each fails; call it after :meth:`run`.

        Checks of the rows as a whole are in no array.
        """
        rows, failed = self.rows, []
        for check in (outcome.check for outcome in self.outcomes if not outcome.passed and outcome.check.by_row):
            condition = condition_of(check, self.rows)
            if condition is None:
                hit = f"{_HIT} {check.name}"
                rows = self._marked(rows, check, hit)
                condition = F.col(quoted(hit))
            if self.counts is not None:
                condition = condition & self.counts
            failed.append(F.when(condition, F.lit(check.name)))
        names = F.array_compact(F.array(*failed)) if failed else F.array().cast("array<string>")
        return rows.withColumn(FAILED_CHECKS, names).select(*map(quoted, self.rows.columns), FAILED_CHECKS)

    # -- one check -----------------------------------------------------------------------------------------------------

    def _outcome(
        self, check: Check, rows: DataFrame, condition: Column | None, totals: Mapping[str, Any]
    ) -> CheckOutcome:
        config, total = check.config, int(totals[_ROWS])
        if config.row_count is not None:
            return _row_count(check, config.row_count, total)
        if config.freshness is not None:
            return _freshness(check, config.freshness, total, totals)
        if config.sql is not None:
            return self._by_query(check, config.sql, rows, total)
        failed = int(totals[check.name]) if condition is not None else self._compared(check, rows)
        if not failed:
            return _passed(check, total)
        bad = rows.where(condition) if condition is not None else self._bad(rows, check)
        text = f"{failed:,} of {counted(total, 'row')} {_what(check, failed)}"
        return CheckOutcome(check, False, text, total, failed, self._samples(bad, check))

    def _compared(self, check: Check, rows: DataFrame) -> int:
        if check.kind == "unique":
            repeated = self._repeated(rows, check).agg(F.sum(_HIT)).collect()[0][0]
            return int(repeated or 0)
        return self._bad(rows, check).count()

    def _repeated(self, rows: DataFrame, check: Check) -> DataFrame:
        """The keys that come more than once, with how often."""
        whole = rows.where(
            reduce(lambda left, right: left & right, [F.isnotnull(quoted(name)) for name in check.columns])
        )
        return (
            whole.groupBy(*map(quoted, (*check.columns, *self.apart)))
            .agg(F.count(F.lit(1)).alias(_HIT))
            .where(F.col(_HIT) > 1)
        )

    def _bad(self, rows: DataFrame, check: Check) -> DataFrame:
        if check.kind == "unique":
            return self._marked(rows, check, _HIT).where(F.col(_HIT)).drop(_HIT)
        column = F.col(quoted(check.columns[0]))
        return rows.where(column.isNotNull()).join(self._known(check), column == F.col(_KEY), "left_anti")

    def _known(self, check: Check) -> DataFrame:
        """The values of a foreign key, as the column ``_KEY``."""
        reference = check.config.references
        assert reference is not None
        known = self.lookup(reference).toDF(_KEY)
        require_same_family(check, kind_of(self.rows, check.columns), kind_of(known, (_KEY,)), self.label)
        return known.where(F.col(_KEY).isNotNull())

    def _marked(self, rows: DataFrame, check: Check, hit: str) -> DataFrame:
        """``rows`` with a column that says which of them fail a check that compares rows, or looks them up."""
        if check.kind == "unique":
            looked_at = self.rows if self.counts is None else self.rows.where(self.counts)
            columns = (*check.columns, *self.apart)
            names = [f"{_KEY} {index}" for index, _ in enumerate(columns)]
            repeated = self._repeated(looked_at, check).select(
                *[F.col(quoted(name)).alias(key) for name, key in zip(columns, names, strict=True)]
            )
            same = [F.col(quoted(a)) == F.col(quoted(b)) for a, b in zip(columns, names, strict=True)]
            joined = rows.join(repeated, reduce(lambda left, right: left & right, same), "left")
            return joined.withColumn(hit, F.col(quoted(names[0])).isNotNull()).drop(*names)
        # Values that are missing are of the column's own type: each row meets one of them at most. Of known values,
        # two may be one value for the column, as 0.1 and 0.10000000000000000001 are for a DOUBLE.
        column, value = F.col(quoted(check.columns[0])), f"{_OURS}value"
        values = self._bad(self.rows, check).select(column.alias(value)).distinct()
        return rows.join(values, column == F.col(value), "left").withColumn(hit, F.col(value).isNotNull()).drop(value)

    def _by_query(self, check: Check, query: str, rows: DataFrame, total: int) -> CheckOutcome:
        spark, view = rows.sparkSession, f"odi_rows_{uuid.uuid4().hex}"
        rows.drop(*[name for name in rows.columns if name.startswith(_OURS)]).createOrReplaceTempView(view)
        try:
            bad = spark.sql(f"WITH df AS (SELECT * FROM {view}) SELECT * FROM (\n{query.strip().rstrip(';')}\n)")
            failed = bad.count()
            samples = self._samples(bad, check) if failed else ()
        finally:
            spark.catalog.dropTempView(view)
        what = f"its query gives {counted(failed, 'row')}" if failed else "its query gives no row"
        return CheckOutcome(check, not failed, what, total, failed, samples)

    def _samples(self, bad: DataFrame, check: Check) -> tuple[str, ...]:
        present = {name.casefold(): name for name in bad.columns}
        first = [present[name.casefold()] for name in (*self.keys, *check.columns) if name.casefold() in present]
        others = [name for name in bad.columns if not name.startswith(_OURS)]
        names = list(dict.fromkeys([*first, *others]))[:_SHOWN_COLUMNS]
        # As text, for not every value of Spark has one in Python.
        texts = bad.selectExpr(*[f"CAST({quoted(name)} AS STRING) AS {quoted(name)}" for name in names])
        return tuple(_row_text(row.asDict()) for row in texts.limit(_SAMPLES).collect())

    # -- mistakes ------------------------------------------------------------------------------------------------------

    def _require_possible(self) -> None:
        present = {name.casefold() for name in self.rows.columns}
        for check in self.checks:
            for name in check.columns:
                if name.casefold() not in present:
                    meant = closest(name, self.rows.columns)
                    raise ConfigError(
                        f"{self.label}: its check `{check.name}` looks at `{name}`, and its rows have "
                        f"{', '.join(self.rows.columns)}",
                        fix=f"did you mean `{meant}`?" if meant else "correct the check in the project file",
                        node=self.label,
                    )
            require_comparable(check, self.rows, self.label)
            if check.config.expression is not None:
                with self._named(check):
                    # Spark looks at the names and types in it; it computes nothing.
                    _ = self.rows.where(check.config.expression).schema

    @contextmanager
    def _named(self, check: Check) -> Iterator[None]:
        try:
            yield
        except spark_errors.PySparkException as error:
            of_a_row = not isinstance(error, spark_errors.AnalysisException | spark_errors.ParseException)
            tries = "; `try_divide`, `try_cast` and the like give NULL there, which is accepted"
            advice = tries if of_a_row and check.config.expression is not None else ""
            raise ConfigError(
                f"{self.label}: its check `{check.name}` cannot be evaluated: "
                f"{'Spark cannot compute it for a row: ' if of_a_row else ''}{own_words(str(error))}",
                fix=f"correct the check in the project file{advice}; nothing was committed",
                node=self.label,
            ) from error


def _passed(check: Check, total: int) -> CheckOutcome:
    return CheckOutcome(check, passed=True, text=f"no row of {total:,} fails", rows=total, rows_failed=0)


def _row_count(check: Check, wanted: RowCount, total: int) -> CheckOutcome:
    passed = (wanted.min is None or total >= wanted.min) and (wanted.max is None or total <= wanted.max)
    least = None if wanted.min is None else f"at least {wanted.min:,}"
    most = None if wanted.max is None else f"at most {wanted.max:,}"
    text = f"{counted(total, 'row')}, and it wants {' and '.join(filter(None, [least, most]))}"
    return CheckOutcome(check, passed, text, total)


def _freshness(check: Check, wanted: Freshness, total: int, totals: Mapping[str, Any]) -> CheckOutcome:
    age, newest = totals[check.name], totals[f"{check.name} newest"]
    if age is None:
        return CheckOutcome(check, False, f"no row has a value of `{wanted.column}`", total)
    passed = float(age) <= wanted.within.total_seconds()
    text = f"the newest `{wanted.column}` is {newest} UTC; it may be {wanted.within_text} old"
    return CheckOutcome(check, passed, text, total)


def _what(check: Check, failed: int) -> str:
    """What is wrong with rows, after their number."""
    config, names = check.config, ", ".join(f"`{name}`" for name in check.columns)
    is_one = failed == 1
    if config.not_null is not None:
        return f"{'has' if is_one else 'have'} NULL in {names}"
    if config.unique is not None:
        return f"{'shares its' if is_one else 'share their'} {names} with another row"
    if config.accepted_values is not None:
        listed = ", ".join(map(str, config.accepted_values.values[:10]))
        return f"{'has' if is_one else 'have'} a value of {names} other than {listed}"
    if config.range is not None:
        least = None if config.range.min is None else f"below {config.range.min}"
        most = None if config.range.max is None else f"above {config.range.max}"
        return f"{'has' if is_one else 'have'} {names} {' or '.join(filter(None, [least, most]))}"
    if config.references is not None:
        key = config.references.key or config.references.column
        return (
            f"{'has' if is_one else 'have'} a value of {names} that `{config.references.node}` does not have in `{key}`"
        )
    return f"{'makes' if is_one else 'make'} `{config.expression}` false"


def _row_text(row: dict[str, str | None]) -> str:
    return ", ".join(f"{name}={_cut(value)}" for name, value in row.items())


def _cut(value: str | None) -> str:
    text = "NULL" if value is None else value
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
