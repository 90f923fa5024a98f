"""Text high-water marks are compared as what their node declares, dates or numbers, or else as text."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odi_assets.config.models import ProjectConfig
from odi_assets.errors import StateError
from odi_assets.sources.cursor.types import fitting
from odi_assets.state import StateBackend, StateManager, create_state_backend
from odi_assets.state.text_order import parse_date


def config(system: bool, schema: str = "at STRING", **increment: Any) -> ProjectConfig:
    read = {"connection": "lake", "format": "csv", "path": "in", "schema": schema}
    read["incremental"] = {"mode": "stateful", "column": "at", **increment}
    node = {"name": "n", "read": read, "write": {"connection": "lake", "path": "n"}}
    return ProjectConfig.model_validate(
        {
            "project": "x",
            "connections": {"lake": {"type": "local", "base_path": "lake"}},
            "system": {"connection": "lake"} if system else None,
            "pipelines": [{"pipeline": "p", "nodes": [node]}],
        }
    )


@pytest.fixture(params=[False, True], ids=["json", "delta"])
def system(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize(
    ("declared", "before", "after"),
    [
        ({"date_format": "oracle"}, "31-MAR-24", "20-APR-24"),
        ({"date_format": "oracle"}, "1-JAN-99", "1-JAN-24 9:05:00"),
        ({"date_format": "us"}, "12/31/2023", "1/2/2024"),
        ({"date_format": "eu"}, "31/12/2023", "2/1/2024 10:00"),
        ({"date_format": "iso"}, "2024-01-01T23:30:00-02:00", "2024-01-02T01:45:00"),
        ({"schema": "id INT, at BIGINT"}, "9", "10"),
        ({"schema": "`at`: DECIMAL(10,2), x STRING"}, "9.5", "10"),
        ({"schema": "at TIMESTAMP"}, "2024-01-01T23:30:00-02:00", "2024-01-02T01:45:00Z"),
        ({"date_format": "oracle", "state_key": "orders_hwm"}, "31-MAR-24", "20-APR-24"),
    ],
)
def test_what_the_node_declares_counts(
    tmp_path: Path, system: bool, declared: dict[str, Any], before: str, after: str
) -> None:
    key = declared.get("state_key", "p.n")
    state = StateManager(backend=create_state_backend(config(system, **declared), tmp_path))
    state.set_hwm(key, before)
    state.set_hwm_batch([{"key": key, "value": after}])
    assert state.get_hwm(key) == after
    with pytest.raises(StateError, match=r"lies before its present value .* as `"):
        state.set_hwm(key, before)
    there: StateBackend = create_state_backend(config(system, **declared), tmp_path).in_environment("dev")
    there.set_hwm(key, before)
    assert there.set_hwm(key, after).value == after


@pytest.mark.parametrize("key", ["p.n", "free"])
def test_without_a_declaration_the_message_says_that_it_is_the_order_of_text(
    tmp_path: Path, system: bool, key: str
) -> None:
    state = create_state_backend(config(system), tmp_path)
    state.set_hwm(key, "9")
    with pytest.raises(StateError, match="in text order") as told:
        state.set_hwm(key, "10")
    assert "date_format" in str(told.value)
    assert "a number or a date" in str(told.value)
    assert state.set_hwm(key, "91").value == "91"


def test_a_text_that_is_not_as_declared_is_text(tmp_path: Path, system: bool) -> None:
    state = create_state_backend(config(system, date_format="oracle"), tmp_path)
    state.set_hwm("p.n", "b")
    with pytest.raises(StateError, match="in text order"):
        state.set_hwm("p.n", "a")


@pytest.mark.parametrize("typed", [True, False])
def test_a_node_goes_on_from_a_date_that_is_written_as_it_declares(typed: bool) -> None:
    increment: Any = config(False, date_format="oracle").pipelines[0].nodes[0].increments["read", "incremental"]
    assert fitting("31-MAR-24", "timestamp", increment, "in", typed=typed) == datetime(2024, 3, 31, tzinfo=UTC)


@pytest.mark.parametrize(("text", "year"), [("1-jan-49", 2049), ("1-JAN-50", 1950), ("1-Jan-1949", 1949)])
def test_two_digits_of_a_year_are_read_as_oracle_does(text: str, year: int) -> None:
    assert parse_date(text, "oracle").year == year
