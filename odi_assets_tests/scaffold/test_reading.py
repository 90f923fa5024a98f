"""How tables are read: by what says that a row changed, or whole."""

from __future__ import annotations

from typing import Any

import pytest

from odi_assets.scaffold.catalog import CatalogTable, TableColumn
from odi_assets.scaffold.reading import TableReading, reading_of

ID = TableColumn("id", "bigint", nullable=False, grows=True)


def choice(*columns: TableColumn, appended: bool = False, **more: Any) -> TableReading:
    types = {one.name: one.declared if one.declared.startswith("time") else "long" for one in columns}
    table = CatalogTable("public", "t", columns=(ID, *columns), **{"key": ("id",), "is_primary": True, **more})
    return reading_of(table, {"id": "long", **types}, appended=appended, unusable=frozenset())


def time(name: str, *, nullable: bool = False, kind: str = "timestamp", **more: Any) -> TableColumn:
    return TableColumn(name, kind, nullable, **more)


@pytest.mark.parametrize("name", ["updated_at", "UpdatedAt", "last_modified", "LAST_UPDATE_DATE", "modified", "mtime"])
def test_a_time_of_change_is_a_cursor_and_rows_are_replaced(name: str) -> None:
    chosen = choice(time(name))
    assert chosen.read == {"incremental": {"mode": "cursors", "columns": (name,), "watermark_lag": "10m"}}
    assert chosen.write == {"mode": "upsert", "keys": ("id",)}


def test_a_column_that_the_database_moves_is_one_whatever_its_name() -> None:
    assert choice(time("ts", moves=True)).read["incremental"]["columns"] == ("ts",)


def test_a_time_without_a_zone_looks_back_over_the_hour_that_a_clock_is_put_back() -> None:
    assert choice(time("updated_at", kind="timestamp_ntz")).read["incremental"]["watermark_lag"] == "2h"


def test_a_row_that_was_never_changed_counts_by_its_time_of_birth() -> None:
    chosen = choice(time("updated_at", nullable=True), time("created_at"))
    assert chosen.read["incremental"]["columns"] == ("updated_at", "created_at")


@pytest.mark.parametrize(
    "columns",
    [
        (),
        (time("created_at"),),
        (time("updates_until"), time("date_of_birth"), time("at")),
        (time("updated_at", nullable=True),),
        (time("updated_at", nullable=True), time("created_at", nullable=True)),
        (time("updated_at", nullable=True), time("created_at", kind="timestamp_ntz")),
    ],
)
def test_where_nothing_says_when_a_row_changed_a_table_is_read_whole(columns: tuple[TableColumn, ...]) -> None:
    chosen = choice(*columns)
    assert (chosen.read, chosen.write) == ({}, {"mode": "overwrite"})
    assert "alone is safe" in chosen.why[0]


def test_a_growing_number_is_a_cursor_where_rows_never_change() -> None:
    chosen = choice(time("created_at"), appended=True)
    assert chosen.read["incremental"] == {"mode": "cursors", "columns": ("id",), "watermark_lag": 10_000}
    assert chosen.write == {"mode": "upsert", "keys": ("id",)}


def test_without_a_key_a_table_is_read_whole_whatever_it_has() -> None:
    assert choice(time("updated_at"), key=(), is_primary=False).write == {"mode": "overwrite"}


def test_a_unique_index_is_a_key_that_the_snapshot_is_cut_by() -> None:
    chosen = choice(time("updated_at"), is_primary=False)
    assert chosen.read["incremental"]["snapshot"] == {"by": ("id",)}


def test_a_large_table_is_read_in_parts() -> None:
    assert choice(rows=5_000_000).read == {"partition_column": "id", "pieces": 4}
