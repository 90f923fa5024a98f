"""Tables are made here as they are in the tests of writes."""

from odi_assets_tests.tables.conftest import engine, rewritten_by, table, write

__all__ = ["engine", "rewritten_by", "table", "write"]
