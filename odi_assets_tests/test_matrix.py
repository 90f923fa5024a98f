from __future__ import annotations

import itertools

import pytest

from odi_assets_tests.matrix import WHOLE_VARIABLE, cases, few_that_meet_most

AXES = ("ab", (0, 1, 2), ("x", "y"), (None, True))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WHOLE_VARIABLE, raising=False)


def test_each_two_values_of_two_axes_meet_in_few_cases() -> None:
    found = cases(*AXES)
    for left, right in itertools.combinations(range(len(AXES)), 2):
        assert {(one[left], one[right]) for one in found} == set(itertools.product(AXES[left], AXES[right]))
    assert len(found) < 10


def test_each_value_comes_once_at_least() -> None:
    assert cases("ab", "xyz", together=1) == [("a", "x"), ("b", "y"), ("a", "z")]


def test_the_long_form_has_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHOLE_VARIABLE, "1")
    assert cases(*AXES) == list(itertools.product(*AXES))


def test_of_many_cases_a_few_have_many_values_between_them_the_first_one_among_them() -> None:
    found = itertools.product("ab", (0, 1, 2))
    few = few_that_meet_most(every := [[*enumerate(one)] for one in found], 3)
    assert [dict(every[place]) for place in few] == [{0: "a", 1: 0}, {0: "b", 1: 2}, {0: "b", 1: 1}]
    assert few_that_meet_most(every, 100) == few_that_meet_most(every, len(every))
    assert sorted(few_that_meet_most(every, 100)) == [*range(len(every))]
