"""Edits of how rows are read and known: none of the models' keys is forgotten."""

from __future__ import annotations

from benchmarks.reading.edits import keys_without_edits


def test_each_key_of_the_models_has_an_edit() -> None:
    assert keys_without_edits() == set()
