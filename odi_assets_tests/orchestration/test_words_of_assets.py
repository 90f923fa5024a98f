"""Errors of nodes in the words of assets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import odi_assets
from odi_assets.orchestration.assets import words
from odi_assets.orchestration.assets.words import MADE_BY_ASSET, WORDS_OF_ASSETS


def texts() -> Iterator[str]:
    """All texts of the package's code but those of the module of phrases; a value in an f-string is left out."""
    for file in Path(odi_assets.__file__).parent.rglob("*.py"):
        if file == Path(words.__file__):
            continue
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
            elif isinstance(part, ast.JoinedStr):
                yield "".join(str(piece.value) if isinstance(piece, ast.Constant) else "\0" for piece in part.values)


@pytest.fixture(scope="module")
def said() -> str:
    return "\n".join(texts())


@pytest.mark.parametrize("phrase", [phrase for phrase, _ in (*WORDS_OF_ASSETS, *MADE_BY_ASSET)])
def test_each_phrase_that_is_replaced_stands_in_an_error(phrase: str, said: str) -> None:
    assert phrase in said
