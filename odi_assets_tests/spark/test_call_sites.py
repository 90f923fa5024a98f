"""Spark hears where the project's code makes an expression, and nothing of this package's own."""

from __future__ import annotations

import pytest
from pyspark.errors import utils as errors

from odi_assets.spark.call_sites import with_call_sites, without_call_sites


@pytest.fixture(autouse=True)
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_enable_debugging_cache", None)


def test_a_block_within_another_one_leaves_them_off() -> None:
    with without_call_sites():
        with without_call_sites():
            pass
        assert errors._enable_debugging_cache is False
        with with_call_sites():
            assert errors._enable_debugging_cache is None
            with without_call_sites():
                assert errors._enable_debugging_cache is False
        assert errors._enable_debugging_cache is False
    assert errors._enable_debugging_cache is None


def test_after_a_failure_pyspark_looks_at_its_setting_again() -> None:
    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError), without_call_sites(), with_call_sites():  # noqa: PT011  it is ours
        fail()
    assert errors._enable_debugging_cache is None
