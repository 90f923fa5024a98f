"""What a capture of a database's log can have, and what the server or its user lacks before it can begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.postgres.server import ServerSession
from odi_assets.sources.cdc.postgres.tables import ListedTable, PostgresTable

_LEAVES = (
    "SELECT t.relid::regclass::text FROM pg_partition_tree(%s::oid) t JOIN pg_class c ON c.oid = t.relid "
    "WHERE t.isleaf AND c.relispartition ORDER BY 1"
)
HIDES = "row policies hide rows of it from the user"


@dataclass(frozen=True)
class Need:
    """What is missing before the first run, and the statement that gives it."""

    what: str
    statement: str


def why_not_captured(listed: ListedTable, all_listed: Sequence[ListedTable], session: ServerSession) -> str | None:
    """Why a table cannot be captured; None if it can."""
    table = listed.table
    if listed.why_not is not None:
        leaves = [name for (name,) in session.rows(_LEAVES, [table.oid])]
        return f"{listed.why_not}; its partitions go with it: {', '.join(leaves)}" if leaves else listed.why_not
    if table.unidentified is not None:
        return (
            f"{table.unidentified}, so the log does not say which row was changed; give it a primary key, or "
            f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL"
        )
    if sum(listed_table.table.name == table.name for listed_table in all_listed) > 1:
        return "another schema and table have this name too, with the dot elsewhere"
    if session.one("SELECT row_security_active(%s::oid)", [table.oid]):
        return HIDES
    return None


def columns_left_out(name: str, table: PostgresTable) -> Iterator[tuple[str, str]]:
    """The columns of a table that is captured which the log does not have, and why."""
    if table.generated:
        yield f"{name} ({', '.join(table.generated)})", "the database generates it, and its log does not have it"


def free_slot(session: ServerSession, name: str) -> str:
    """A name of a slot that the server does not have yet: no two captures share one."""
    slot, number = name, 1
    while session.slot(slot) is not None:
        number += 1
        slot = f"{name}_{number}"
    return slot


def needs(session: ServerSession, publication: str, tables: Sequence[PostgresTable]) -> Iterator[Need]:
    """What is missing before ``tables`` can be captured."""
    for what, statement in session.lacking():
        yield Need(what, statement)
    (most,) = session.rows("SELECT current_setting('max_replication_slots')::int, count(*) FROM pg_replication_slots")
    if most[1] >= most[0]:
        yield Need(
            f"the server has {most[1]} replication slots, and no room for another one",
            f"ALTER SYSTEM SET max_replication_slots = {most[1] + 1}; then restart the server",
        )
    user = session.one("SELECT quote_ident(current_user)")
    yield from _unreadable(session, user, tables)
    yield from _unpublished(session, user, publication, tables)


def _unreadable(session: ServerSession, user: str, tables: Sequence[PostgresTable]) -> Iterator[Need]:
    oids = [[table.oid for table in tables]]
    schemas = session.rows(
        "SELECT DISTINCT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = ANY(%s::oid[]) AND NOT has_schema_privilege(n.oid, 'USAGE') ORDER BY 1",
        oids,
    )
    if schemas:
        names = ", ".join(str(name) for (name,) in schemas)
        yield Need(f"{user} may not look into {names}", f"GRANT USAGE ON SCHEMA {names} TO {user}")
    closed = session.rows(
        "SELECT oid::bigint FROM unnest(%s::oid[]) t(oid) WHERE NOT has_table_privilege(oid, 'SELECT')", oids
    )
    if closed:
        names = _listed(tables, {int(oid) for (oid,) in closed})
        yield Need(f"{user} may not read {names}", f"GRANT SELECT ON {names} TO {user}")


def _unpublished(
    session: ServerSession, user: str, publication: str, tables: Sequence[PostgresTable]
) -> Iterator[Need]:
    published = session.published(publication)
    if published is not None:
        try:
            session.require_all_published(publication, {table.name: table.key for table in tables})
        except SourceError as error:
            yield Need(error.message.removeprefix(f"{session.label}: "), str(error.fix))
    missing = [table for table in tables if published is None or table.name not in published]
    if not missing:
        return
    of_others = session.rows(
        "SELECT oid::bigint FROM pg_class WHERE oid = ANY(%s::oid[]) AND NOT pg_has_role(relowner, 'USAGE')",
        [[table.oid for table in missing]],
    )
    names = _listed(missing, {table.oid for table in missing})
    name = session.one("SELECT quote_ident(%s)", [publication])
    make = f"CREATE PUBLICATION {name} FOR TABLE" if published is None else f"ALTER PUBLICATION {name} ADD TABLE"
    if of_others:
        owned = _listed(missing, {int(oid) for (oid,) in of_others})
        yield Need(f"{user} does not own {owned}, and only owners publish", f"{make} {names}")
    elif published is None and not session.one("SELECT has_database_privilege(current_database(), 'CREATE')"):
        database = session.one("SELECT quote_ident(current_database())")
        yield Need(f"{user} may make no publication", f"GRANT CREATE ON DATABASE {database} TO {user}")
    elif published is not None and not session.one(
        "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s", [publication]
    ):
        yield Need(f"the publication {name} is not {user}'s, and lacks tables", f"{make} {names}")


def _listed(tables: Sequence[PostgresTable], oids: set[int]) -> str:
    return ", ".join(table.quoted for table in tables if table.oid in oids)
