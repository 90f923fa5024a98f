"""Rows tied with a mark, which a closed boundary knows by what they look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.digits import MOST, looks_otherwise
from odi_assets.sources.cursor.types import TypeName, kind_of
from odi_assets.sources.marks import CursorMark


def tied_by(types: Mapping[str, TypeName]) -> dict[str, Any]:
    """The types of columns, as far as they decide how values look: whole numbers of any size look alike."""
    return {name: "int" if kind_of(str(kind)) == "int" else kind for name, kind in types.items()}


def require_comparable(
    mark: CursorMark,
    columns: Mapping[str, TypeName],
    declared: Mapping[str, Sequence[Any]],
    rescued: str | None,
    label: str,
) -> None:
    """Raises IncrementError if the rows at the mark do not look as they did when they were remembered.

    Args:
        columns: the types of the source's columns.
        declared: the same as the source itself calls them, as far as it does (see ``SourceSnapshot.declared``).
        rescued: the column of what its own columns do not hold; None if there is none.
        label: the source in words.
    """
    then, types = mark.tied_by or {}, tied_by(columns)
    why = [f"`{name}` is there no more" for name in then if name not in types]
    why += [
        f"`{name}` was {then[name]} and is {types[name]} now"
        for name in then
        if name in types and types[name] != then[name]
    ]
    why += [
        f"`{name}` was {_said(before)} and is {_said(declared[name])} now"
        for name, before in mark.declared.items()
        if name in declared and looks_otherwise(before, declared[name])
    ]
    if rescued in then:
        why += [f"`{name}` may have been in `{rescued}`, and is a column now" for name in types if name not in then]
    if why:
        raise IncrementError(
            f"{label}: {why[0]}, so rows tied with the HWM (`boundary: closed`) cannot be compared with those "
            "that are loaded",
            fix="put it back, values included, until the HWM has moved on; or rebuild the table from its sources: "
            "odi run --full-refresh",
            label=label,
        )


def _said(declared: Sequence[Any]) -> str:
    name, kept = declared
    return str(name) if kept is None or kept >= MOST else f"{name}({kept})"
