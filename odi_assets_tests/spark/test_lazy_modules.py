"""Modules that are loaded when they are first used."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

from odi_assets.util.lazy import LazyModule
from odi_assets.util.lazy import pa as lazy_pa


def test_a_lazy_module_is_loaded_at_the_first_look_at_an_attribute() -> None:
    script = (
        "import sys; from odi_assets.util.lazy import pa; before = 'pyarrow' in sys.modules; "
        "pa.table({'id': [1]}); print(before, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_a_lazy_module_has_what_the_module_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lazy_pa.table is pa.table
    monkeypatch.setattr(json, "dumps", str)
    assert LazyModule("json").dumps is str
    with pytest.raises(AttributeError, match="nothing"):
        LazyModule("json").nothing  # noqa: B018


def test_executors_get_the_module_itself() -> None:
    assert pickle.loads(pickle.dumps(LazyModule("json"))) is json
