"""The servers of the room of SQL databases."""

from odi_assets_tests.sources.sql.conftest import databases

__all__ = ["databases"]
