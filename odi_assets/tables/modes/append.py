"""Rows are added to those that are there."""

from __future__ import annotations

from odi_assets.tables.modes.base import Mode, Outcome, Write


class Append(Mode):
    """Looks at no row that is there."""

    def stage(self, write: Write) -> Outcome:
        """Stage the rows as they come."""
        return Outcome("rows", write.stage(write.df))


MODE = Append()
