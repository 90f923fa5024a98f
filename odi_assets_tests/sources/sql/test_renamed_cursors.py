"""A cursor column that is renamed in the database and in the project file: adopting its node leads on."""

from __future__ import annotations

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

FOLLOWED = [
    "{mode: stateful, column: AT}",
    "{mode: stateful, column: AT, fallback_column: made, watermark_lag: 1}",
    "{mode: stateful, column: AT, boundary: closed}",
    "{mode: cursors, columns: [made, AT], snapshot: {by: [id], rows: 2}}",
]


def followed(make: Make, increment: str, column: str) -> Sandbox:
    rows_are_known = "watermark_lag" in increment
    write = "mode: upsert, keys: [id]" if rows_are_known else "mode: append"
    if column == "happened":
        # The table keeps its columns.
        write += '}\n    transform: {sql: "SELECT id, happened AS at, made FROM df"'
    return make(f"table: events, incremental: {increment.replace('AT', column)}", write)


def adopt(box: Sandbox) -> str:
    found = plan_adoption(box.project, box.state, NodeKey("p", "events"), lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    return "; ".join(found.changes)


@both
@pytest.mark.parametrize("increment", FOLLOWED)
def test_a_cursor_that_was_renamed_is_adopted_and_each_row_is_read_once(
    make: Make, server: Server, increment: str
) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint, made bigint)")
    server.insert("events", (1, 10, None), (2, 20, None), (3, 20, None))
    followed(make, increment, "at").run("events")
    server.execute("ALTER TABLE events RENAME COLUMN at TO happened")
    server.insert("events", (4, 30, None))
    box = followed(make, increment, "happened")
    with pytest.raises(IdentityMismatchError, match=r"was followed by .* is followed by") as stopped:
        box.run("events")
    assert "odi state adopt p.events" in str(stopped.value.fix)
    said = adopt(box)
    assert "the former is gone, so `at` is `happened` now: the next run reads " in said
    box.run("events")
    ids = sorted(row[0] for row in box.rows("events"))
    assert ids == [1, 2, 3, 4]
    assert box.run("events").status is RunStatus.NO_DATA or "watermark_lag" in increment


def test_a_column_whose_values_are_others_is_not_taken_for_the_one_that_is_gone(make: Make, server: Server) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint, made date)")
    server.insert("events", (1, 10, "2024-01-01"))
    followed(make, FOLLOWED[0], "at").run("events")
    server.execute("ALTER TABLE events DROP COLUMN at")
    box = followed(make, FOLLOWED[0], "made")
    with pytest.raises(IdentityMismatchError, match=r"has no column `at`.*goes on by no other column") as stopped:
        adopt(box)
    assert "put the former definition back" not in str(stopped.value.fix)
    assert "--full-refresh" in str(stopped.value.fix)
