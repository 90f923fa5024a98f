"""Table engines: who writes and reads tables. A connection names the engine of its tables.

A new engine of this package is a row here and a folder in ``tables/``. Another package registers its own as an entry
point of the group ``odi_assets.table_engines``; its module is loaded when a table of such a connection is first used.
"""

from __future__ import annotations

from odi_assets.util.extensions import ExtensionPoint

EMBEDDED = "embedded"

TABLE_ENGINES = ExtensionPoint(
    group="odi_assets.table_engines",
    what="table engine",
    built_in={EMBEDDED: "odi_assets.tables.embedded.engine:EmbeddedEngine"},
    wanted="class derived from `odi_assets.tables.engine.TableEngine`",
)
