"""A table of a SQLite file as a kind of source: the keys of its ``read``."""

from pydantic import Field

from odi_assets.config.models.fields import Text
from odi_assets.config.models.reads import SourceKind, StoredRead


class SqliteRead(StoredRead):
    """A table of a SQLite file."""

    table: Text = Field(description="Table of the file.")

    @property
    def place(self) -> str:
        return f"{self.path}/{self.table}"


SQLITE = SourceKind(SqliteRead, "odi_sqlite_source:sqlite_source")
