"""A node reads another table in another way: what the former table still holds for it is not lost."""

from __future__ import annotations

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

BY_ID, BY_MADE = "{mode: stateful, column: id}", "{mode: stateful, column: made}"
IN_CHUNKS = "{mode: cursors, columns: [id], snapshot: {by: [id], rows: 2}}"


@both
@pytest.mark.parametrize(("before", "after"), [(BY_ID, BY_MADE), (IN_CHUNKS, BY_MADE), (BY_ID, IN_CHUNKS)])
def test_a_table_that_still_holds_rows_for_the_node_refuses_the_adoption_and_the_named_way_loads_them(
    make: Make, server: Server, before: str, after: str
) -> None:
    for table in ("events", "events_2"):
        server.execute(f"DROP TABLE IF EXISTS {table}", f"CREATE TABLE {table} (id bigint PRIMARY KEY, made bigint)")
        server.insert(table, (1, 10), (2, 20))
    key, way = NodeKey("p", "events"), f"table: events, incremental: {before}"
    make(way).run("events")
    for table in ("events", "events_2"):
        server.insert(table, (3, 30))
    moved = f"table: events_2, incremental: {after}"
    box = make(moved)
    with pytest.raises(IdentityMismatchError, match=r"not all of .*events is loaded") as stopped:
        plan_adoption(box.project, box.state, key, lambda: box.spark)
    assert "put the former definition back" in str(stopped.value.fix)
    make(way).run("events")
    box = make(moved)
    adoption = plan_adoption(box.project, box.state, key, lambda: box.spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    for table in ("events", "events_2"):
        server.insert(table, (4, 40))
    box.run("events")
    assert sorted(row[0] for row in box.rows("events")) == [1, 2, 3, 4]
