"""Planning over a source of many files, in a process that has no Spark."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import write
from benchmarks.exactly_once.lab import Lab, Pipeline
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, in_child

LIMIT = 1.0
FOLLOWERS = {
    "by_version": "inputs: {orders: {node: orders, incremental: {mode: version}}}\n  WRITE, mode: append}",
    "by_cursor": "inputs: {orders: {node: orders, incremental: {mode: stateful, column: id}}}\n  WRITE, mode: append}",
    "by_day": "inputs: {orders: {node: orders, incremental: {mode: version}}}\n"
    "  partition: {column: day, every: day, start: 2013-01-01}\n  WRITE, mode: partition_overwrite}",
}
NODES = """
- name: orders
  read: {connection: landing, format: parquet, path: orders}
  write: {connection: lake, path: orders}
""" + "".join(
    f"- name: {name}\n  {text.replace('WRITE', f'write: {{connection: lake, path: {name}')}\n"
    for name, text in FOLLOWERS.items()
)
_IN_ONE_COMMIT = 100
_ROWS = 10


def planning(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Nodes that follow a Delta table by its versions and by a cursor, and one that replaces partitions."""
    pipeline = lab.pipeline(NODES)
    lab.say(f"a source of {sizes.files:,} files")
    source = _Source(lab, pipeline)
    source.grow(sizes.files - sizes.new_files)
    for node in FOLLOWERS:
        pipeline.run(lab.spark, node)
    source.grow(sizes.new_files)
    lab.say(f"{sizes.quick_rounds} plans of each node")
    found = in_child("benchmarks.exactly_once.process", "planning", str(pipeline.root), str(sizes.quick_rounds))
    for node in FOLLOWERS:
        seconds = found["seconds"][node]
        name = f"planning `{node}` over {sizes.files:,} files, seconds"
        holds = seconds <= LIMIT and not found["spark"]
        yield Row(name, seconds, None, "no Spark in the process", None, f"<= {LIMIT:g} s, no Spark job", holds)


class _Source:
    """The table of ``orders``, grown by hand: small files with their statistics, a hundred in a commit."""

    def __init__(self, lab: Lab, pipeline: Pipeline) -> None:
        from odi_assets.tables.schema import delta_schema

        rows = write.rows(lab.spark, _ROWS)
        self._rows = rows.toArrow()
        self._schema_json = delta_schema(rows, pipeline.target("orders").uri)
        self._table = pipeline.target("orders")
        self._files = 0

    def grow(self, files: int) -> None:
        """Add so many files."""
        while files:
            number = min(files, _IN_ONE_COMMIT)
            self._commit(number)
            files -= number

    def _commit(self, files: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from odi_assets.delta.commit import FileChanges, Stamp, commit
        from odi_assets.delta.files.footers import written_files
        from odi_assets.delta.table import TableHandle

        first, self._files = self._files, self._files + files
        folder = f"odi_write={first}"
        (self._table.local_path / folder).mkdir(parents=True)
        for number in range(first, first + files):
            ids = pc.add(self._rows["id"], number * _ROWS)
            rows = self._rows.set_column(0, self._rows.schema.field("id"), ids)
            day = pa.array([1356998400 // 86400 + number // _IN_ONE_COMMIT] * _ROWS, pa.int32()).cast(pa.date32())
            rows = rows.set_column(rows.column_names.index("day"), rows.schema.field("day"), day)
            pq.write_table(rows, self._table.local_path / folder / f"{number}.parquet")
        handle = TableHandle.open(self._table)
        added = written_files(self._table, folder)
        stamp = Stamp("orders", handle.transaction_number("orders") + 1)
        commit(handle, self._schema_json, (), FileChanges("rows", added), stamp)
