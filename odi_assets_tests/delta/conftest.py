"""Tables are made here as they are in the tests of writes."""

from odi_assets_tests.tables.conftest import rewritten_by, table, write

__all__ = ["rewritten_by", "table", "write"]
