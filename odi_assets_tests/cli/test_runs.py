"""``odi runs list`` before anything ran. What runs leave there is in ``test_run``."""

from __future__ import annotations

import json

import pytest

from odi_assets_tests.cli.conftest import Odi

pytestmark = pytest.mark.usefixtures("shop")


def test_no_runs_are_an_empty_list(odi: Odi) -> None:
    answer = odi("runs", "list", "--json")
    assert (answer.code, json.loads(answer.out)) == (0, [])
    assert odi("runs", "list").out == ""


@pytest.mark.parametrize("arguments", [["--node", "ordes"], ["--pipeline", "shpo"], ["--limit", "0"]])
def test_a_name_or_number_that_means_nothing_is_bad_input(odi: Odi, arguments: list[str]) -> None:
    answer = odi("runs", "list", *arguments)
    assert (answer.code, answer.out) == (2, "")
