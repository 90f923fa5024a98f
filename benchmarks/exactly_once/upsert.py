"""An upsert: a node with the whole protocol against deltalake's merge, called by hand on the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import write
from benchmarks.exactly_once.lab import READ, Lab, seconds_of
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, timed_row

NODE = f"""
- name: orders
  read: {READ}
  write: {{connection: lake, path: orders, mode: upsert, keys: [id]}}
"""


def upsert(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Of the rows of a round, two thirds replace rows all over the table, and the others are new."""
    import deltalake

    spark, ours = lab.spark, lab.pipeline(NODE)
    lab.say(f"two tables of {sizes.rows:,} rows")
    first = lab.files(write.rows(spark, sizes.rows))
    ours.land(first)
    ours.run(spark, "orders")
    merged = lab.root / "merged"
    _load(first, merged)
    lab.say(f"{sizes.rounds} rounds of {sizes.changed:,} rows, each in turn")
    took: dict[str, list[float]] = {"ours": [], "merge": []}
    for number in range(sizes.warm + sizes.rounds):
        files = changed(lab, sizes, number)
        ours.land(files)
        seconds = {
            "merge": seconds_of(lambda files=files: _merge(files, merged)),
            "ours": ours.seconds(spark, "orders"),
        }
        if number >= sizes.warm:
            for name, value in seconds.items():
                took[name].append(value)
    name = f"upsert of {sizes.changed:,} rows into {sizes.rows:,}, seconds"
    against = f"deltalake {deltalake.__version__} merge of a pyarrow.Table"
    yield timed_row(name, took["ours"], took["merge"], against, 1.1)


def changed(lab: Lab, sizes: Sizes, number: int) -> Path:
    """Files of rows whose keys are spread over the table, and of rows that follow its last."""
    new = sizes.changed // 3
    step = sizes.rows // (sizes.changed - new)
    old = sizes.changed - new
    last = sizes.rows + number * new - old
    ids = lab.spark.range(sizes.changed).selectExpr(f"if(id < {old}, id * {step} + {number % step}, id + {last}) AS id")
    return lab.files(write.rows_of(ids))


def _load(files: Path, table: Path) -> None:
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    write_deltalake(str(table), pq.read_table(files))


def _merge(files: Path, table: Path) -> None:
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    merger = DeltaTable(str(table)).merge(pq.read_table(files), "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
