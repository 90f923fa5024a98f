"""Verdicts from evidence that is made by hand: the edges of lateness, of the state, and of what is still known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, Evidence, EvidenceRows, Lost, Pairs, Watermarks
from odi_assets.explain.evidence.explain import decide
from odi_assets.explain.evidence.similar import normalized
from odi_assets.explain.evidence.words import distance
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets.spark.plans.definition import Condition, Input, QueryDefinition
from odi_assets.spark.plans.sql_text import readable_sql

MINUTE = 60_000
RANGE = 5 * MINUTE
WATERMARKS = {0: 0, 1: 10 * MINUTE, 2: 20 * MINUTE, 3: 30 * MINUTE}

Row = tuple[float | None, int]
"""Event time in minutes, and the batch that read the row."""


def side(view: str) -> Input:
    no_test, no_null = (
        Condition("x", f"{view}.x"),
        Condition("k IS NOT NULL", f"{view}.k IS NOT NULL", null_of_key=True),
    )
    return Input(view, view, ("k", "t"), ("k",), (no_test, no_null), "t", RANGE + 1, "t")


JOIN = QueryDefinition(
    "join",
    (side("l"), side("r")),
    (
        Condition("r >= l", "r.t >= l.t - 5", ("r", "l - 5"), "time"),
        Condition("r <= l", "r.t <= l.t + 5", ("r", "l + 5"), "time"),
    ),
    key_names=("k",),
)


def rows(
    given: Sequence[Row], failed: Sequence[int] = (), spread: Mapping[int, tuple[int, int]] | None = None
) -> EvidenceRows:
    """Rows of the key ``k``. ``spread``: by place, the batches that may have read the row."""
    times = np.array([NO_TIME if t is None else round(t * MINUTE * 1000) for t, _ in given], dtype=np.int64)
    ranges = [(spread or {}).get(place, (batch, batch)) for place, (_, batch) in enumerate(given)]
    return EvidenceRows(
        key=np.array(["k"] * len(given), dtype=object),
        time_us=times,
        late_us=times,
        failed=np.array([*failed, *[-1] * (len(given) - len(failed))], dtype=np.int64),
        first=np.array([low for low, _ in ranges], dtype=np.int64),
        last=np.array([high for _, high in ranges], dtype=np.int64),
        file=np.array([f"{place}.json" for place in range(len(given))], dtype=object),
    )


def judged(
    left: EvidenceRows, right: EvidenceRows, known: Mapping[int, int] = WATERMARKS, **more: Any
) -> KeyExplanation:
    pairs = [(a, b) for a in range(len(left)) for b in range(len(right))]
    apart = np.array([[right.time_us[b] - left.time_us[a]] for a, b in pairs], dtype=float).reshape(len(pairs), 1)
    apart = np.hstack([apart + RANGE * 1000, apart - RANGE * 1000])
    holds = np.hstack([apart[:, :1] >= 0, apart[:, 1:] <= 0])
    places = [np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1)]
    evidence = Evidence(("k",), (left, right), Watermarks.of(known), Pairs(places[0], places[1], holds, apart))
    (found,) = decide(JOIN, replace(evidence, **more))
    return found


@pytest.mark.parametrize(
    ("left", "right", "verdict", "batch"),
    [
        ((31, 1), (36, 2), "MATCHED", 2),
        ((31, 1), (36.001, 2), "OUT_OF_WINDOW", None),
        # A row of batch 2 is late if it is not after the watermark of batch 1, which is 10.
        ((12, 1), (10, 2), "COUNTERPART_LATE", None),
        ((12, 1), (10.001, 2), "MATCHED", 2),
        # What the batch's own watermark (20) removes, for 14.9 + 5 < 20, is joined before.
        ((14.9, 2), (14.9, 2), "MATCHED", 2),
        ((15, NOT_READ), (15, 1), "COUNTERPART_NOT_READ", None),
        ((None, 1), (15, 1), "OUT_OF_WINDOW", None),
    ],
)
def test_one_pair(left: Row, right: Row, verdict: str, batch: int | None) -> None:
    found = judged(rows([left]), rows([right]))
    assert (found.verdict, found.batch) == (verdict, batch)


def test_the_first_match_of_several_pairs_is_the_answer() -> None:
    found = judged(rows([(12, 1), (40, 3)]), rows([(60, 3), (41, 3), (12, 2)]))
    assert (found.verdict, found.batch) == ("MATCHED", 2)


def test_late_goes_before_filtered_and_both_before_out_of_window() -> None:
    late, filtered, far = (10.0, 2), (12.0, 2), (60.0, 2)
    assert judged(rows([(12, 1)]), rows([filtered, late, far], failed=[0])).verdict == "COUNTERPART_LATE"
    assert judged(rows([(12, 1)]), rows([filtered, far], failed=[0])).verdict == "COUNTERPART_FILTERED"
    assert judged(rows([(12, 1)]), rows([far])).verdict == "OUT_OF_WINDOW"


def test_how_far_outside_is_told() -> None:
    found = judged(rows([(12, 1)]), rows([(25, 1)]))
    assert (found.condition, distance(found.misses_by)) == ("r.t <= l.t + 5", "8 min")  # type: ignore[arg-type]
    assert "by 8 min" in found.sentence


def test_fates_of_rows_without_a_counterpart() -> None:
    nothing = rows([])
    assert [row.fate for row in judged(rows([(40, 3)]), nothing).rows] == ["WAITING", "NEVER_ARRIVED"]
    waiting = judged(rows([(40, 3)]), nothing).rows[0]
    assert waiting.watermark is not None
    assert waiting.watermark.minute == 45
    expired = judged(rows([(14, 1)]), nothing).rows[0]
    assert (expired.fate, expired.batch) == ("EXPIRED", 2)
    # 15 + 5 is not passed by 20, only reached.
    assert judged(rows([(15, 1)]), nothing).rows[0].batch == 3
    assert judged(nothing, nothing).verdict == "NO_COUNTERPART"
    assert judged(rows([(14, 1)], failed=[1]), nothing).rows[0].fate == "NULL_KEY"


def test_watermarks_that_are_known_bound_those_that_are_not() -> None:
    known = {3: 30 * MINUTE}
    lost = Lost("batches 0 to 2 are gone", "meta_batches keeps them")
    unknown = {0: (0, 2)}
    # After 30 it was never late, whichever batch read it.
    assert judged(rows([(31, 1)], spread=unknown), rows([(32, 3)]), known).verdict == "MATCHED"
    found = judged(rows([(25, 1)], spread=unknown), rows([(32, 3)]), known, lost_batches=lost)
    assert (found.verdict, found.lost) == ("OUT_OF_WINDOW", ())
    found = judged(rows([(28, 1)], spread=unknown), rows([(32, 3)]), known, lost_batches=lost)
    assert (found.verdict, found.lost) == ("UNDECIDABLE", (str(lost),))
    assert "batches 0 to 2 are gone" in found.sentence
    # The table has the row: it was joined.
    found = judged(rows([(28, 1)], spread=unknown), rows([(32, 3)]), known, lost_batches=lost, written={"k": 1})
    assert (found.verdict, found.batch) == ("MATCHED", None)


def test_rows_that_are_gone_make_everything_undecidable_but_a_match() -> None:
    gone = Lost("r no longer has 1 file", "keep the files")
    found = judged(rows([(12, 1)]), rows([]), lost_rows=(None, gone))
    assert (found.verdict, found.lost, found.rows[1].fate) == ("UNDECIDABLE", (str(gone),), "UNDECIDABLE")
    assert judged(rows([(12, 1)]), rows([(60, 1)]), lost_rows=(None, gone)).verdict == "UNDECIDABLE"
    assert judged(rows([(12, 1)]), rows([(12, 1)]), lost_rows=(None, gone)).verdict == "MATCHED"


def test_what_the_table_says_otherwise_is_reported() -> None:
    missing = judged(rows([(12, 1)]), rows([(12, 1)]), written={})
    assert missing.verdict == "MATCHED"
    assert "the table has no row with this key" in missing.disagreements[0]
    surplus = judged(rows([(12, 1)]), rows([(60, 1)]), written={"k": 2})
    assert surplus.verdict == "OUT_OF_WINDOW"
    assert "the table has 2 rows with this key" in surplus.disagreements[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("ORD-1", "ord-1"), (" ord 1", "ord-1"), ("0574", "574"), ("574.0", "574"), ("ord\u00a01", "ord1")],
)
def test_keys_that_are_almost_the_same(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ("(NOT (status = 'test'))", "status <> 'test'"),
        ("(p.at >= o.at + INTERVAL '-05' MINUTE)", "p.at >= o.at - INTERVAL '5' MINUTE"),
        ("(amount > 0.00BD)", "amount > 0.00"),
        ("(customer IS NOT NULL)", "customer IS NOT NULL"),
        ("((a = 1L) OR (b = 2))", "(a = 1) OR (b = 2)"),
        ("no ( sql", "no ( sql"),
    ],
)
def test_conditions_are_written_as_people_do(plan: str, text: str) -> None:
    assert readable_sql(plan) == text
