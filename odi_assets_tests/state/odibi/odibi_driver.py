"""Odibi at work on its own system tables: ``python odibi_driver.py pandas|spark [CONF…]``, in Odibi's interpreter.

Takes one JSON request a line on stdin, ``[name, arguments]``, and answers each with one JSON line. Imports nothing of
this project. What follows the engine are settings of the Spark session, ``name=value``.
"""

import json
import os
import sys

# Odibi logs to stdout: the answers keep it for themselves.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from odibi.catalog import CatalogManager  # noqa: E402
from odibi.config import SystemConfig  # noqa: E402
from odibi.state import CatalogStateBackend, StateManager  # noqa: E402


class Driver:
    def __init__(self, engine, settings):
        self.spark = _session(settings) if engine == "spark" else None
        self.catalog = self.state = None

    def open(self, folder, environment=None):
        """Open the system tables in a folder, as a run of a pipeline does, without making them."""
        config = SystemConfig(connection="lake", environment=environment)
        self.catalog = CatalogManager(self.spark, config, folder, None if self.spark else _pandas_engine())
        self.catalog.project = "shop"
        tables = {name: self.catalog.tables[name] for name in ("meta_runs", "meta_state")}
        backend = CatalogStateBackend(
            meta_runs_path=tables["meta_runs"],
            meta_state_path=tables["meta_state"],
            spark_session=self.spark,
            environment=environment,
        )
        self.state = StateManager(backend=backend)

    def bootstrap(self):
        """Make meta_state and meta_runs, or check them, as each run of a pipeline does first; and nothing else."""
        manager = self.catalog
        partitions = ["pipeline_name", "date"]
        manager._ensure_table("meta_runs", manager._get_schema_meta_runs(), partitions, schema_evolution=True)
        manager._ensure_table("meta_state", manager._get_schema_meta_state())

    def get(self, key):
        return self.state.get_hwm(key)

    def set(self, key, value):
        self.state.set_hwm(key, value)

    def batch(self, updates):
        self.state.set_hwm_batch([{"key": key, "value": value} for key, value in updates.items()])

    def clear(self, key):
        return self.catalog.clear_state_key(key)

    def run(self, run_id, pipeline, node, status="SUCCESS"):
        self.catalog.log_run(run_id, pipeline, node, status, 3, 5, '{"rows": 3}')

    def last(self, pipeline, node):
        return self.state.get_last_run_info(pipeline, node)

    def runs(self):
        """The ids in its run history, in order."""
        frame = self.catalog._read_table(self.catalog.tables["meta_runs"])
        return sorted(frame["run_id"].tolist())

    def rows(self):
        """All rows of meta_state: key, value, environment; in order."""
        frame = self.catalog._read_table(self.catalog.tables["meta_state"])
        frame = frame.astype(object).where(frame.notna(), None)
        return sorted([row.key, row.value, row.environment] for row in frame.itertuples())

    def optimize(self):
        """Its compaction and its vacuum, with the retention that is its default."""
        return self.catalog.optimize(["meta_state", "meta_runs"])

    def sync(self, folder):
        """Copy the run history into another folder, as `sync_to` does after a run; what came of it."""
        from odibi.catalog_sync import CatalogSyncer
        from odibi.config import SyncToConfig
        from odibi.connections.local import LocalConnection

        to = SyncToConfig(connection="copy", path="system", mode="incremental")
        syncer = CatalogSyncer(self.catalog, to, LocalConnection(base_path=folder), self.spark)
        return syncer.sync(["meta_runs"])["meta_runs"]


def _pandas_engine():
    from odibi.engine.pandas_engine import PandasEngine

    return PandasEngine()


def _session(settings):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main():
    driver = Driver(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            result = {"result": getattr(driver, name)(**arguments)}
        except Exception as error:  # noqa: BLE001  it is the answer, and raised again where it was asked
            result = {"error": f"{name}: {type(error).__name__}: {error}"}
        answers.write(json.dumps(result, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
    # Odibi's libraries abort when the interpreter ends in order.
    os._exit(0)
