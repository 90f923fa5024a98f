"""What a change costs: from the bytes of the log to rows of the change log, per CPU second of this process."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.capture import mariadb, postgres
from benchmarks.harness import Options, Row
from odi_assets.sources.cdc import source as captures
from odi_assets.sources.cdc.log import Op
from odi_assets_tests.jars import DEBEZIUM
from odi_assets_tests.sources.cdc.debezium.engine import Debezium, why_unavailable
from odi_assets_tests.sources.sql.servers import PostgresServer

_CHANGES = 500_000
_POSTGRES, _MARIADB = 400_000, 15_000
"""Bars, in changes per CPU second; of MariaDB, what a reader in Python made for replicas reaches."""
_DEBEZIUM = 7
"""How many times as many changes as Debezium's engine per CPU second."""
_COLUMNS = "id int PRIMARY KEY, a text, b text, c numeric(12,2), d "


def rates(options: Options) -> list[Row]:
    """Changes of five columns of PostgreSQL, in transactions of a thousand; the same by Debezium's engine."""
    with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, postgres.started() as server:
        postgres.emptied(server)
        captures.MOST_CHANGES = 2 * _CHANGES
        found = postgres.source(server, Path(folder), ("big",), 1000)
        with postgres.opened(server) as database:
            database.execute(f"CREATE TABLE big ({_COLUMNS} timestamptz)")
            step, _ = found.step(None)
            found.acknowledge(step.after)
            database.execute("CREATE PUBLICATION debezium FOR TABLE big")
            database.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
            options.say(f"writing {_CHANGES:,} rows")
            rows = "SELECT g, 'abc' || g, md5(g::text), g * 1.5, now() FROM generate_series(%s::int, %s::int) g"
            for first in range(1, _CHANGES, 1000):
                database.execute(f"INSERT INTO big {rows}", [first, first + 999])
        ours = _measured(found, step, "in transactions of 1,000, postgres", _POSTGRES)
        return [ours, _beside_debezium(options, server, Path(folder), ours.ours)]


def _beside_debezium(options: Options, server: PostgresServer, folder: Path, ours: float) -> Row:
    """The same changes, by Debezium's engine from a slot of its own, without a text made of them."""
    name = "changes per CPU second, beside Debezium's engine"
    why = "left out" if not options.peers else why_unavailable()
    if why is not None:
        return Row(name, ours, None, f"Debezium: {why}", None, f">= {_DEBEZIUM} x", None)
    options.say("the same by Debezium's engine")
    debezium = Debezium(server, folder / "debezium", ("public.big",), snapshot_mode="no_data")
    peer = _CHANGES / debezium.cpu_seconds(_CHANGES)
    return Row(name, ours, peer, f"Debezium {DEBEZIUM}", ours / peer, f">= {_DEBEZIUM} x", ours >= _DEBEZIUM * peer)


def mariadb_rates(options: Options) -> list[Row]:
    """The same of MariaDB, and changes that are a transaction each."""
    measured = []
    for size in (1000, 1):
        with tempfile.TemporaryDirectory(prefix="odi-capture-") as folder, mariadb.started() as server:
            captures.MOST_CHANGES = 2 * _CHANGES
            with closing(server.connect()) as opened, opened.cursor() as cursor:
                cursor.execute(f"CREATE TABLE big ({_COLUMNS} timestamp(6))")
                found = mariadb.source(server, Path(folder), ("big",), 1000)
                step, _ = found.step(None)
                options.say(f"writing {_CHANGES:,} rows")
                rows = "SELECT seq, CONCAT('abc', seq), MD5(seq), seq * 1.5, NOW(6) FROM seq_{}_to_{}"
                if size > 1:
                    for first in range(1, _CHANGES, size):
                        cursor.execute(f"INSERT INTO big {rows.format(first, first + size - 1)}")
                else:
                    row = rows.partition(" FROM")[0].replace("seq", "number")
                    cursor.execute(f"FOR number IN 1..{_CHANGES} DO INSERT INTO big {row}; END FOR")
            measured.append(_measured(found, step, f"in transactions of {size:,}, mariadb", _MARIADB))
    return measured


def _measured(found: captures.LogSource, step: captures.CaptureStep, name: str, bar: int) -> Row:
    began = time.process_time()
    step, _ = found.step(step.after)
    spent = time.process_time() - began
    # A server describes a table again whenever it was analyzed.
    parts = [step.rows] if isinstance(step.rows, pa.Table) else step.rows
    changes = sum(pc.sum(pc.not_equal(part["op"], Op.SHAPE.value)).as_py() for part in parts)
    if changes != _CHANGES:
        raise RuntimeError(f"{changes:,} of {_CHANGES:,} changes are there")
    rate = changes / spent
    return Row(f"changes per CPU second, to rows of the log, {name}", rate, None, "", None, f">= {bar:,}", rate >= bar)
