"""Equal documents have one fingerprint, and dumping loses nothing."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_assets.documents import canonical, compare, dump, fingerprint, parse_olake
from odi_assets.documents.moves import Move
from odi_assets_tests.documents.documents import document, on_a_busy_machine, stream

names = st.text('abc._ "\\é日😀', min_size=1, max_size=8)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.integers(2**53, 2**90), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)
unknown = st.dictionaries(names.map(lambda name: f"x-{name}"), values, max_size=3)
bounds = st.one_of(st.none(), st.integers(), st.text(max_size=5))
chunks = st.lists(st.fixed_dictionaries({"min": bounds, "max": bounds}), max_size=4)
states = st.builds(lambda rest, own: {**rest, **own}, unknown, st.fixed_dictionaries({}, optional={"chunks": chunks}))
streams = st.lists(st.tuples(names, states), max_size=4, unique_by=lambda pair: pair[0]).map(
    lambda pairs: [stream(state, name) for name, state in pairs]
)
documents = st.builds(
    lambda rest, members, listed: {
        **rest,
        "type": "GLOBAL",
        "global": {"state": {"lsn": "A/1"}, "streams": listed},
        "streams": members,
    },
    unknown,
    streams,
    st.lists(names, max_size=4),
)


def shuffled(value: Any, order: random.Random) -> Any:
    """The same document with its keys and its sets in another order."""
    if isinstance(value, dict):
        items = [
            (key, order.sample(member, len(member)) if key in ("chunks", "streams") else member)
            for key, member in value.items()
        ]
        order.shuffle(items)
        return {key: shuffled(member, order) for key, member in items}
    if isinstance(value, list):
        return [shuffled(member, order) for member in value]
    return value


@pytest.mark.slow
@on_a_busy_machine
@given(documents)
def test_dump_and_parse_give_the_same_document(content: dict[str, Any]) -> None:
    read = parse_olake(json.dumps(content))
    assert json.loads(dump(read)) == content
    again = parse_olake(dump(read))
    assert again == read
    assert dump(again) == dump(read)
    assert fingerprint(again) == fingerprint(read)


@pytest.mark.slow
@on_a_busy_machine
@given(documents, st.randoms(use_true_random=False))
def test_order_and_spacing_do_not_change_the_fingerprint(content: dict[str, Any], order: random.Random) -> None:
    read = parse_olake(json.dumps(content))
    other = parse_olake(json.dumps(shuffled(content, order), indent=order.choice([None, 1, 4])))
    assert canonical(other) == canonical(read)
    assert fingerprint(other) == fingerprint(read)
    assert {move.move for move in compare(read, other)} <= {Move.SAME}


@on_a_busy_machine
@given(st.integers(), st.integers())
def test_other_values_have_other_fingerprints(one: int, other: int) -> None:
    same = fingerprint(document(stream({"id": one}))) == fingerprint(document(stream({"id": other})))
    assert same is (one == other)


@on_a_busy_machine
@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_one_number_has_one_canonical_spelling_and_keeps_its_own_in_a_dump(number: Decimal) -> None:
    def read(spelling: str) -> Any:
        return parse_olake(f'{{"type":"STREAM","streams":[{{"stream":"t","state":{{"n":{spelling}}}}}]}}')

    plain = read(str(number))
    assert plain.streams[0].cursors["n"] == number
    assert fingerprint(read(f"{number:e}")) == fingerprint(plain)
    assert parse_olake(dump(plain)).streams[0].cursors["n"] == number


def test_the_order_of_a_list_that_is_no_set_counts() -> None:
    assert fingerprint(document(extra=[1, 2])) != fingerprint(document(extra=[2, 1]))


def test_half_of_a_surrogate_pair_does_no_harm() -> None:
    read = parse_olake('{"type":"STREAM","note":"\\ud800","streams":[]}')
    assert parse_olake(dump(read)) == read
    assert len(fingerprint(read)) == 64
