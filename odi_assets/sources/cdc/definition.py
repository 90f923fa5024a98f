"""What a table is made of, as far as its rows may change with it: a rewrite leaves no trace of rows in the log."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Definition:
    """What a mark keeps of a table's definition.

    Attributes:
        file: where its rows are: a rewrite gives it another one, and so do VACUUM FULL and TRUNCATE.
        columns: another text after each statement that changes a column.
        key: the same for the columns of its key.
        types: by number of a type of its values, how many texts the type has, and a digest of these.
    """

    file: str
    columns: str
    key: str
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"file": self.file, "columns": self.columns, "key": self.key}
        return {**stored, "types": dict(self.types)} if self.types else stored

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Definition:
        types = {str(name): str(text) for name, text in value.get("types", {}).items()}
        return cls(str(value["file"]), str(value["columns"]), str(value["key"]), types)


@dataclass(frozen=True)
class TableDefinition:
    """A table's definition as its database has it now.

    Attributes:
        file: as of :class:`Definition`.
        columns, key: texts that change with the columns, and with the key columns.
        types: by number of a type, the texts of its values, oldest first; or what else its values depend on.
    """

    file: str
    columns: Sequence[str]
    key: Sequence[str]
    types: Mapping[str, Sequence[str]]

    @property
    def noted(self) -> Definition:
        """What a mark keeps of it."""
        types = {name: _counted(texts) for name, texts in self.types.items()}
        return Definition(self.file, _digest(self.columns), _digest(self.key), types)

    def rewrites(self, before: Definition) -> bool:
        """Whether rows may be others than with an earlier definition, although no row was changed."""
        if self.file != before.file and _digest(self.columns) != before.columns:
            return True
        for name, texts in self.types.items():
            then = before.types.get(name)
            # Values that were added to a type are in no row of before.
            if then is not None and then != _counted(texts[: int(then.partition(".")[0])]):
                return True
        return False

    def rewrites_keys(self, before: Definition) -> bool:
        """Whether keys of rows may be others than with an earlier definition."""
        return self.rewrites(before) and _digest(self.key) != before.key


def _counted(texts: Sequence[str]) -> str:
    return f"{len(texts)}.{_digest(texts)}"


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
