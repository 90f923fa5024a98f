"""What a PostgreSQL database has under the names of tables, and which of it can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odi_assets.errors import ConfigError
from odi_assets.sources.cdc.database import CapturedTable

_INHERITED, _UNLOGGED = "a table that others inherit from", "unlogged"
_PARTITION = "a partition of a table, whose rows come and go without a change"


@dataclass(frozen=True)
class PostgresTable(CapturedTable):
    """A table of the database that can be captured.

    Attributes:
        identity: ``d``, ``i``, ``f`` or ``n``: what the log has of a row that was changed.
    """

    oid: int
    identity: str

    @property
    def unidentified(self) -> str | None:
        """Why the log does not say which of its rows was changed; None if it says so."""
        if self.identity == "n":
            return "REPLICA IDENTITY NOTHING"
        return None if self.identity == "f" or self.key else "no primary key"


@dataclass(frozen=True)
class ListedTable:
    """What the database has under the name of a table, captured or not.

    Attributes:
        schema: the schema that it is in.
        why_not: why the log does not have its changes; None if it has them.
    """

    schema: str
    table: PostgresTable
    why_not: str | None


def why_not_logged(kind: str, persistence: str, is_inherited: bool, is_partition: bool) -> str | None:
    """Why the log does not have the changes of a table; None if it has them."""
    if is_partition:
        return _PARTITION
    kinds = {"f": "a table of another server", "v": "a view", "m": "a materialized view"}
    # Rows that come and go with a partition, or with a table that inherits, have no change in the log.
    kinds["p"] = "a table with partitions, whose rows come and go without a change"
    if kind in kinds:
        return kinds[kind]
    if is_inherited:
        return _INHERITED
    return None if persistence == "p" else _UNLOGGED


def no_table(pattern: str, matched: Sequence[ListedTable], label: str) -> ConfigError:
    """The error of a pattern that names no table that can be captured.

    Args:
        matched: what it names.
        label: of the server.
    """
    if not matched:
        return ConfigError(
            f"{label}: no table of the database is named `{pattern}`; tables are named with their schema",
            fix="correct `tables`, or take it out",
        )
    listed = ", ".join(f"{entry.table.name} is {entry.why_not}" for entry in matched)
    quoted = matched[0].table.quoted
    ways = {
        _INHERITED: f"; or drop the inheritance: ALTER TABLE CHILD NO INHERIT {quoted}",
        _PARTITION: f"; or make it a table of its own: ALTER TABLE PARENT DETACH PARTITION {quoted}",
        _UNLOGGED: f"; or ALTER TABLE {quoted} SET LOGGED",
    }
    leave = f"take it out of `tables`{'' if matched[0].table.name == pattern else ': name the others there'}"
    fix = leave + ways.get(matched[0].why_not or "", "")
    return ConfigError(f"{label}: `{pattern}` names what the log has no changes of: {listed}", fix=fix)
