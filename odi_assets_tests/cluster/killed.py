"""One round of a sweep: ``odi run`` on what the round before left, then a new file and a run that meets its end.

Started in the project's folder as ``python -m odi_assets_tests.cluster.killed ROUND POINT``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from deltalake import DeltaTable

from odi_assets.cli import main as odi
from odi_assets.nodes.project import Project
from odi_assets.spark.session import open_session
from odi_assets_tests.cli.shop import deliver

HELD = "while executors write"
"""No point of the driver's: a task waits in mid-write while another is done; who started us does the killing."""

POINTS: dict[str, tuple[str, bool]] = {
    "after staging": ("odi_assets.tables.modes.base.Write.stage", True),
    "after the commit": ("odi_assets.tables.embedded.writer.commit", True),
    "after the advance": ("odi_assets.nodes.execution.materialize.advance", True),
}
"""Name → function, and whether it has done its work when the end comes: those that leave something behind."""

PROJECT = """\
project: sweep
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
spark:
pipelines:
  - pipeline: sweep
    nodes:
      - name: orders
        read:
          connection: landing
          format: csv
          path: "*.csv"
          options: {header: "true"}
          schema: id INT, customer STRING, amount INT
          incremental: {mode: files}
        transform: {function: "held:hold"}
        write: {connection: lake, path: orders, mode: append}
      - name: latest
        inputs: {orders: {node: orders, incremental: version}}
        transform: {sql: "SELECT customer, id, amount FROM orders"}
        write: {connection: lake, path: latest, mode: upsert, keys: [customer]}
"""

HOLD = """\
import pathlib


def hold(df):
    folder = pathlib.Path(__file__).parent
    try:
        number = (folder / "hold").read_text()
    except FileNotFoundError:
        return df
    began, go = str(folder / f"began-{number}"), str(folder / f"go-{number}")

    # A function within a function goes to the executors by value: they cannot import what lies beside the project.
    def rows(batches):
        import pathlib, time

        for batch in batches:
            if batch.column("id")[0].as_py() % 10:
                yield batch
                continue
            yield batch.slice(0, 1)
            pathlib.Path(began).touch()
            while not pathlib.Path(go).exists():
                time.sleep(0.05)
            yield batch.slice(1)

    return df.mapInArrow(rows, df.schema)
"""


def orders(number: int) -> list[tuple[int, str, int]]:
    """The rows that arrive in a round: customers come again in the next."""
    return [(number * 10 + n, f"customer {(number + n) % 5}", number) for n in range(4)]


def stored(table: str) -> list[list[Any]]:
    """The rows of a table, by another reader than Spark."""
    found = DeltaTable(f"lake/{table}").to_pyarrow_table().select(["id", "customer", "amount"]).to_pylist()
    return sorted([list(row.values()) for row in found])


def _end_at(function: str, done: bool) -> None:
    holder, _, name = function.rpartition(".")
    owner = resolve_name(holder)
    real: Callable[..., Any] = getattr(owner, name)

    def ending(*args: Any, **kwargs: Any) -> Any:
        if done:
            real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, ending)


def main(number: int, point: str) -> int:
    """Run, tell what the tables hold, then run towards ``point``."""
    # One session for both runs: they use the active one.
    session = open_session(Project.load("odibi.yaml").config.spark)
    code = odi(["run"])
    if code == 0:
        Path(f"recovered-{number}.json").write_text(json.dumps({name: stored(name) for name in ("orders", "latest")}))
        for half in (0, 2):
            lines = [",".join(map(str, row)) for row in orders(number)[half : half + 2]]
            deliver(Path(), f"orders-{number}-{half}.csv", lines)
        if point == HELD:
            Path("hold").write_text(str(number))
        elif point in POINTS:
            _end_at(*POINTS[point])
        code = odi(["run"])
    session.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
