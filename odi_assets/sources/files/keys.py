"""The keys of JSON files, compared with the columns that are wanted, and with each other.

Names of columns know no capitals, and keys of JSON do: Spark takes ``ID`` for the column ``id`` as it looks for the
columns, and for no column as it reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from odi_assets.sources.files.look.json_text import Key, Tree
from odi_assets.spark.lazy import T

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def tree_of(kind: DataType) -> Tree | None:
    """The parts of a type; None if it has none."""
    if isinstance(kind, T.StructType):
        return {field.name: tree_of(field.dataType) for field in kind}
    if isinstance(kind, T.ArrayType):
        return tree_of(kind.elementType)
    return {None: tree_of(kind.valueType)} if isinstance(kind, T.MapType) else None


class KeyJudge:
    """Judges the keys of one file after the other.

    Args:
        declared: the columns of ``read.schema``; None if Spark finds them out.
        needed: those that each file needs in some row, if it has others.
        is_kept: ``rescued`` keeps what ``declared`` lacks.
    """

    def __init__(self, declared: Tree | None, needed: set[str], *, is_kept: bool) -> None:
        self._declared = set(_flat(declared or {}))
        self._needed = needed
        self._takes_all = declared is None or is_kept
        self._is_kept = is_kept
        self._seen = {_lowered(key): key for key in self._declared}

    def fault(self, keys: set[Key]) -> tuple[str, Any] | None:
        """The kind of a fault and what there is to say about it; None if there is none."""
        for key in sorted(keys, key=str):
            if self._takes_all and key[-1] == "" and key not in self._declared:
                return "silent", "an object has a key without a name, which Spark leaves out"
            first = self._seen.get(_lowered(key), key)
            if first != key:
                where = "`read.schema` has" if first in self._declared else "here or in a file before it there is"
                return "capitals", f"it has the key `{shown(key)}`, and {where} `{shown(first)}`"
            if self._takes_all:
                self._seen[_lowered(key)] = key
        if self._takes_all:
            return None
        more = [key for key in keys if key not in self._declared]
        missing = sorted(name for name in self._needed if (name,) not in keys)
        others = sorted(str(key[0]) for key in more if len(key) == 1)
        if missing and others:
            return "renamed", [missing, others]
        within = sorted(shown(key) for key in more if len(key) > 1)
        return ("within", within[0]) if within else None


def shown(key: Key) -> str:
    """A key with those that lead to it, ``s.a``. A key of a map is ``*``."""
    return ".".join("*" if part is None else part for part in key)


def _lowered(key: Key) -> Key:
    return tuple(part and part.lower() for part in key)


def _flat(tree: Mapping[str | None, Any], above: Key = ()) -> Iterator[Key]:
    for name, parts in tree.items():
        if name is not None:
            yield (*above, name)
        yield from _flat(parts or {}, (*above, name))
