"""The rows, and their columns, replace the table."""

from __future__ import annotations

from odi_assets.delta.commit import FileChanges
from odi_assets.tables.modes.base import Mode, Write


class Overwrite(Mode):
    """Former versions stay readable."""

    def stage(self, write: Write) -> FileChanges:
        """Stage the rows in place of all files."""
        handle = write.handle
        return FileChanges("table", write.stage(write.df), removed=handle.live_files, replace_all=handle.exists)


MODE = Overwrite()
