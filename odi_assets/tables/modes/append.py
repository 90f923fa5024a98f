"""Rows are added to those that are there."""

from __future__ import annotations

from odi_assets.delta.commit import FileChanges
from odi_assets.tables.modes.base import Mode, Write


class Append(Mode):
    """Looks at no row that is there."""

    def stage(self, write: Write) -> FileChanges:
        """Stage the rows as they come."""
        return FileChanges("rows", write.stage(write.df))


MODE = Append()
