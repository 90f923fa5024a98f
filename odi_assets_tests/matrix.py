"""Few of many cases: of several axes those that meet all values, of given ones those that meet many."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

WHOLE_VARIABLE = "ODI_TEST_WHOLE"
"""Set: :func:`cases` gives every combination, and `make test` runs all cases of a test: the long form of the suite."""


def cases(*axes: Iterable[Any], together: int = 2) -> list[tuple[Any, ...]]:
    """Combinations of ``axes``, for ``pytest.mark.parametrize``.

    Args:
        together: how many axes each choice of values is wanted of. With 2, each value of an axis comes with each value
            of each other axis; with 1, each value comes once at least.

    Example:
        >>> cases("ab", "xyz", together=1)
        [('a', 'x'), ('b', 'y'), ('a', 'z')]
    """
    lists = [list(axis) for axis in axes]
    every = list(itertools.product(*map(range, map(len, lists))))
    if WHOLE_VARIABLE in os.environ:
        return [_values(lists, one) for one in every]
    missing = {
        (places, values)
        for places in itertools.combinations(range(len(lists)), together)
        for values in itertools.product(*(range(len(lists[place])) for place in places))
    }
    found: list[tuple[int, ...]] = []
    used: Counter[tuple[int, int]] = Counter()
    while missing:
        # What meets the most, of values used the least; of equal ones the first: the same in each process.
        best = max(
            every, key=lambda one: (len(missing & _met(one, together)), -sum(map(used.__getitem__, enumerate(one))))
        )
        missing -= _met(best, together)
        used.update(enumerate(best))
        found.append(best)
    return [_values(lists, one) for one in found]


def few_that_meet_most(cases: Sequence[Collection[Hashable]], limit: int) -> list[int]:
    """The places of at most ``limit`` cases that have many different values between them.

    Args:
        cases: the values of each case.

    Example:
        >>> few_that_meet_most(["ax", "ay", "bx", "by"], 2)
        [0, 3]
    """
    left, met = list(range(len(cases))), set[Hashable]()
    found: list[int] = []
    while left and len(found) < limit:
        # The first one; then of those that have as many new values the last one.
        best = max(left, key=lambda place: (len(set(cases[place]) - met), place)) if found else 0
        left.remove(best)
        met.update(cases[best])
        found.append(best)
    return found


def _met(one: tuple[int, ...], together: int) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    return {
        (places, tuple(one[place] for place in places)) for places in itertools.combinations(range(len(one)), together)
    }


def _values(lists: list[list[Any]], one: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(values[place] for values, place in zip(lists, one, strict=True))
