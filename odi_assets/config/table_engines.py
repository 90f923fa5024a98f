"""Table engines: who writes and reads tables. A connection names the engine of its tables.

A new engine of this package is a row here and a folder in ``tables/``. Another package registers its own as an entry
point of the group ``odi_assets.table_engines``; its module is loaded when a table of such a connection is first used.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "odi_assets.table_engines"
EMBEDDED = "embedded"

_BUILT_IN = {EMBEDDED: EntryPoint(EMBEDDED, "odi_assets.tables.embedded.engine:EmbeddedEngine", GROUP)}


def find_engine(name: str) -> EntryPoint | None:
    """Where the class of the engine ``name`` is; None if nobody registered it. A package cannot replace a built-in."""
    return _BUILT_IN.get(name) or next(iter(entry_points(group=GROUP, name=name)), None)


def known_engines() -> list[str]:
    """The names of all engines that are installed here."""
    return [*_BUILT_IN, *sorted(entry_points(group=GROUP).names - _BUILT_IN.keys())]
