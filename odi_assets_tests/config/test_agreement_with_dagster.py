"""What the loader lets through, Dagster takes."""

from __future__ import annotations

import pytest
from dagster._core.definitions.utils import DISALLOWED_NAMES, is_valid_owner
from dagster._utils.schedules import is_valid_cron_string
from dagster._utils.tags import is_valid_tag_key
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from odi_assets.config.models.fields import RESERVED_JOB_NAMES, Cron, Name, Owner, Tag


def accepts(kind: object, value: str) -> bool:
    try:
        TypeAdapter[str](kind).validate_python(value)
    except ValidationError:
        return False
    return True


def test_reserved_names_are_those_of_dagster() -> None:
    assert RESERVED_JOB_NAMES >= DISALLOWED_NAMES


@pytest.mark.parametrize(
    "owner", ["data@example.org", "team:data", "team:", "joe", "a@b", "@", "a b@c.de", "x@y.museum"]
)
def test_owners_are_those_of_dagster(owner: str) -> None:
    assert accepts(Owner, owner) == is_valid_owner(owner)


CRONS = [
    "* * * * *", "0 6 * * MON-FRI", "*/5 0-6,12 1 JAN *", "@daily", "0 0 L * *", "0 0 * * sat#2", "0 25 * * *", "",
    "0 0 * * * *", "@reboot", "0 0 30 2 *", "0 0 31 2 *", "0 0 29 2 *", "*/0 * * * *", "x", "0 0 * * 8", "0 0 0 * *",
    "  0 6 * * * ", "0 6 * *", "60 * * * *", "0 0 32 * *",
    "0 6 15W * *", "0 6 w15 * *", "0 6 1,15w * 1", "0 6 LW * *", "0 6 * * wed", "0 6 * mar,apr fri",
]  # fmt: skip


@pytest.mark.parametrize("cron", CRONS)
def test_schedules_are_those_of_dagster(cron: str) -> None:
    assert accepts(Cron, cron) == is_valid_cron_string(cron)


@pytest.mark.parametrize("cron", ["0 6 * * r", "r 6 * * *", "0 R(0-5) * * *", "0 6 * * r/60"])
def test_a_schedule_that_is_drawn_by_lot_is_refused(cron: str) -> None:
    """Dagster draws another time whenever it looks, and now and then one that it refuses."""
    assert not accepts(Cron, cron)


@given(st.text(st.sampled_from("aZ9_.-/:é "), max_size=70))
def test_a_tag_that_is_accepted_is_a_tag_of_dagster(tag: str) -> None:
    if accepts(Tag, tag):
        assert is_valid_tag_key(tag)


@given(st.text(st.sampled_from("aZ9_.-/:é \n"), max_size=8))
def test_a_name_is_what_an_asset_key_can_hold(name: str) -> None:
    assert accepts(Name, name) == (bool(name) and all(letter in "aZ9_" for letter in name))
