"""The local folder that holds a project's system tables: one that was there and is gone may be a disk to be mounted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from odi_assets.errors import StateError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Disk:
    """A local folder, and the note beside the project file that says that system tables were made in it.

    Attributes:
        folder: ``base_path`` of the connection of ``system``.
        note: the file that holds the folder's path once there are system tables.
    """

    folder: Path
    note: Path

    def remember(self) -> None:
        """Note that the folder holds system tables. If the project's folder cannot be written, nothing is noted."""
        try:
            self.note.parent.mkdir(parents=True, exist_ok=True)
            self.note.write_text(str(self.folder), encoding="utf-8")
        except OSError as error:
            _log.info("%s cannot be written, so a disk that is not mounted would not be missed: %s", self.note, error)

    def require(self) -> None:
        """Called where a system table is missing.

        Raises:
            StateError: system tables were made in the folder, and now it is gone or empty.
        """
        if not self.note.exists() or self.note.read_text(encoding="utf-8") != str(self.folder):
            return
        if not self.folder.exists() or not any(self.folder.iterdir()):
            raise StateError(
                f"{self.folder} is {'empty' if self.folder.exists() else 'gone'}, and the state of this project was in "
                "it: is its disk mounted?",
                fix=f"mount it; or, if all of it was deleted on purpose, delete {self.note} and begin anew",
                path=str(self.folder),
            )
