"""Runs in dlt's environment: one run of its verified source `pg_replication` into DuckDB, or the rows that it holds.

``python dlt_replication.py SOURCES ADDRESS FOLDER run|rows``: SOURCES is the folder of the verified sources.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TABLE, SLOT, DATASET = "accounts", "dlt_benchmark", "captured"


def run(address: str, pipeline: Any) -> None:
    """Load the snapshot, if there was none, and what the slot holds: as the source's own examples do it."""
    from pg_replication import replication_resource
    from pg_replication.helpers import init_replication

    begun = Path(pipeline.pipelines_dir) / "begun"
    if not begun.exists():
        snapshot = init_replication(
            SLOT, SLOT, schema_name="public", table_names=TABLE, credentials=address, persist_snapshots=True
        )
        pipeline.run(snapshot)
        begun.touch()
    pipeline.run(replication_resource(SLOT, SLOT, credentials=address))


def main() -> None:
    """What the module says."""
    sources, address, folder, what = sys.argv[1:]
    sys.path.insert(0, sources)
    import dlt

    pipeline = dlt.pipeline(
        "bank", destination=dlt.destinations.duckdb(f"{folder}/bank.duckdb"), dataset_name=DATASET, pipelines_dir=folder
    )
    if what == "run":
        run(address, pipeline)
        return
    with pipeline.sql_client() as client:
        rows = client.execute_sql(f"SELECT id, balance, note FROM {TABLE}")
    print(json.dumps([[None if value is None else str(value) for value in row] for row in rows]))


if __name__ == "__main__":
    main()
