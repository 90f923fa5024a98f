"""The mark of a source that a cursor document drives: the mark of the rows, and the position of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.sources.marks import CursorMark, Identity, Mark, hwm_text


@dataclass(frozen=True)
class DrivenMark:
    """The mark of a source that is read when a stream of a cursor document moves.

    Attributes:
        position: how far the stream was (see ``cursors.codec``); None if that is not known.
        rows: the mark of what is read; None if that keeps none.
    """

    position: Mapping[str, Any] | None
    rows: Mark | None = None
    measures: Identity | None = field(default=None, compare=False)

    @property
    def value(self) -> dict[str, Any]:
        rows = None if self.rows is None else self.rows.value
        position = self.position
        stream = f"{position.get('stream')} at {position.get('at')}" if isinstance(position, Mapping) else None
        shown = " and ".join(filter(None, [hwm_text(rows), stream]))
        return {"shown": shown, "cursor": self.position, "rows": rows}

    @staticmethod
    def is_value(value: Mapping[str, Any]) -> bool:
        """Whether this is what such a mark stores."""
        return {"cursor", "rows"} <= value.keys()

    def remembered(self) -> dict[str, Any]:
        """What its commit has to store beside the value, JSON-ready."""
        return self.rows.remembered() if isinstance(self.rows, CursorMark) else {}
