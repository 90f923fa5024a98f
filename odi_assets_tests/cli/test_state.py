"""``odi state``."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odi_assets.cli.state import inspect
from odi_assets.nodes.project import Project
from odi_assets_tests.cli.conftest import Odi

pytestmark = pytest.mark.usefixtures("shop")

VALUES = [
    None,
    True,
    42,
    2**80,
    1.0,
    "2013-01-31",
    '{"type": "int", "value": 1}',
    Decimal("12.50"),
    date(2013, 1, 31),
    datetime(2013, 1, 31, 5, 0),
    datetime(2013, 1, 31, 5, 0, tzinfo=UTC),
    b"\x00\xff",
    UUID("12345678-1234-5678-1234-567812345678"),
    [1, "a"],
    {"type": "int", "value": 1},
    {"orders": {"version": 3, "table_id": "t"}, "seen": date(2013, 1, 31)},
]


def stored(root: Path, key: str) -> Any:
    return Project.load(root / "odibi.yaml").open_state().get_hwm(key)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r}"[:40])
def test_what_get_prints_set_reads_back_with_its_type(shop: Path, odi: Odi, value: Any) -> None:
    Project.load().open_state().reset_hwm("shop.orders", value)
    printed = odi("state", "get", "shop.orders")
    assert printed.code == 0
    json.loads(printed.out)
    assert odi("state", "set", "copy", printed.out.strip()).code == 0
    copied = stored(shop, "copy")
    assert copied == value
    assert type(copied) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2013-01-31", "date", date(2013, 1, 31)),
        ("2013-01-31T05:00:00Z", "datetime", datetime(2013, 1, 31, 5, tzinfo=UTC)),
        ("2013-01-31T05:00:00", "timestamp", datetime(2013, 1, 31, 5)),
        ("12.50", "decimal", Decimal("12.50")),
        ("42", "str", "42"),
        ("42", "string", "42"),
        ('"42"', "str", "42"),
        ("42", "int", 42),
        ("-42", "int", -42),
        ("42", "float", 42.0),
    ],
)
def test_a_type_can_be_given_for_plain_text(shop: Path, odi: Odi, text: str, kind: str, value: Any) -> None:
    assert odi("state", "set", "shop.orders", text, "--type", kind).code == 0
    assert stored(shop, "shop.orders") == value
    assert type(stored(shop, "shop.orders")) is type(value)


def test_a_value_keeps_the_type_of_the_one_it_replaces_where_json_has_none(shop: Path, odi: Odi) -> None:
    odi("state", "set", "shop.orders", "2013-01-31", "--type", "date")
    assert odi("state", "set", "shop.orders", "2013-02-01").code == 0
    assert stored(shop, "shop.orders") == date(2013, 2, 1)
    assert odi("state", "set", "shop.orders", '"2013-02-02"').code == 0
    assert stored(shop, "shop.orders") == date(2013, 2, 2)


def test_set_goes_back_as_well_as_forward_and_says_what_it_did(shop: Path, odi: Odi) -> None:
    odi("state", "set", "shop.orders", "10")
    answer = odi("state", "set", "shop.orders", "4")
    assert answer.code == 0
    assert answer.out == ""
    assert "shop.orders: 10 → 4" in answer.err
    assert stored(shop, "shop.orders") == 4


def test_set_names_the_value_that_it_replaced_and_not_the_one_that_it_saw_first(
    shop: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm("shop.orders", 1)

    def another_writer(*_: object) -> None:
        state.reset_hwm("shop.orders", 7)

    monkeypatch.setattr(inspect, "require_inputs", another_writer)
    assert "shop.orders: 7 → 9" in odi("state", "set", "shop.orders", "9").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["yesterday"],
        ["yesterday", "--type", "date"],
        ["1", "--type", "number"],
        ['{"a": 1, "a": 2}', "--type", "dict"],
        ['{"a": {"b": 1, "b": 2}}'],
        ['[{"b": 1, "b": 2}]', "--type", "json"],
    ],
)
def test_a_value_that_cannot_be_read_is_bad_input_and_changes_nothing(
    shop: Path, odi: Odi, arguments: list[str]
) -> None:
    answer = odi("state", "set", "shop.orders", *arguments)
    assert answer.code == 2
    assert answer.err.startswith("odi: ")
    assert "→" in answer.err
    assert stored(shop, "shop.orders") is None


def test_setting_a_key_that_no_node_uses_warns_with_the_nearest(odi: Odi) -> None:
    answer = odi("state", "set", "shop.ordres", "1")
    assert answer.code == 0
    assert "did you mean shop.orders?" in answer.err


def test_get_tells_a_node_that_was_never_loaded_from_a_key_that_does_not_exist(odi: Odi) -> None:
    never = odi("state", "get", "shop.orders")
    assert (never.code, never.out) == (1, "")
    assert "no high-water mark yet" in never.err
    unknown = odi("state", "get", "shop.ordres")
    assert (unknown.code, unknown.out) == (2, "")
    assert "did you mean shop.orders?" in unknown.err


def test_list_as_json_is_an_array_of_objects(odi: Odi) -> None:
    assert json.loads(odi("state", "list", "--json").out) == []
    odi("state", "set", "shop.orders", "2013-01-31", "--type", "date")
    answer = odi("state", "list", "--json")
    (entry,) = json.loads(answer.out)
    assert (entry["key"], entry["value"], entry["value_type"]) == ("shop.orders", "2013-01-31", "date")
    assert set(entry) == {
        "key",
        "value",
        "value_type",
        "environment",
        "updated_at",
        "revision",
        "target_commit",
        "run_id",
    }


def test_list_is_a_table_with_a_line_per_key(odi: Odi) -> None:
    assert odi("state", "list").out == ""
    odi("state", "set", "shop.orders", "2013-01-31", "--type", "date")
    odi("state", "set", "shop.spending", '{"orders": 7}')
    head, first, second = odi("state", "list").out.splitlines()
    assert head.split()[:3] == ["key", "HWM", "type"]
    assert first.split()[:3] == ["shop.orders", "2013-01-31", "date"]
    assert second.split()[:4] == ["shop.spending", "orders", "7", "dict"]


def test_the_nodes_of_a_pipeline_that_have_no_mark_yet_are_listed(shop: Path, odi: Odi) -> None:
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm("shop.orders", 1)
    state.set_hwm("another.node", 1)
    found = json.loads(odi("state", "list", "--pipeline", "shop", "--json").out)
    assert [(one["key"], one["value"], one["revision"]) for one in found] == [
        ("shop.orders", 1, 1),
        ("shop.spending", None, None),
    ]
    assert found[0].keys() == found[1].keys()
    answer = odi("state", "list", "--pipeline", "shop")
    assert "another.node" not in answer.out
    assert "shop.spending" in answer.err


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (["10"], """odi state set shop.spending '{"orders": 10}'"""),
        (["2024-01-31", "--type", "date"], None),
        (['{"ordres": 10}'], "name the inputs that it follows: orders"),
    ],
)
def test_a_mark_of_a_node_with_named_inputs_says_which_input_it_is_of(
    odi: Odi, value: list[str], remedy: str | None
) -> None:
    answer = odi("state", "set", "shop.spending", *value)
    assert answer.code == 2
    said = " ".join(answer.err.split())
    assert remedy is None or remedy in said
    assert "no high-water mark yet" in odi("state", "get", "shop.spending").err
    if "odi state set" in said:
        command = shlex.split(said[said.index("odi state set") :])[1:5]
        assert odi(*command[:4]).code == 0
        assert odi("state", "get", "shop.spending").code == 0


@pytest.mark.usefixtures("shop")
def test_a_mark_that_is_set_back_to_a_value_says_which_input_it_is_of(odi: Odi) -> None:
    assert odi("state", "set", "shop.spending", '{"orders": 10}').code == 0
    answer = odi("state", "reset", "shop.spending", "--value", "9", "--yes")
    assert answer.code == 2
    assert """'{"orders": 9}'""" in " ".join(answer.err.split())
