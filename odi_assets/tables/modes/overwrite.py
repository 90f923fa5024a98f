"""The rows, and their columns, replace the table."""

from __future__ import annotations

from odi_assets.tables.modes.base import Mode, Outcome, Write


class Overwrite(Mode):
    """Former versions stay readable."""

    def stage(self, write: Write) -> Outcome:
        """Stage the rows in place of all files."""
        handle = write.handle
        return Outcome("table", write.stage(write.df), removed=handle.live_files, replaces_table=handle.exists)


MODE = Overwrite()
