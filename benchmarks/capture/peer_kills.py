"""Captures of one table, killed at any moment under writers: ours, and dlt's verified source `pg_replication`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from deltalake import DeltaTable

from benchmarks.capture import postgres
from benchmarks.harness import Options, Row
from benchmarks.peers import FOLDER, PeerEnvironment, PeerUnavailable
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, PostgresServer

_KILLS = 20
_TABLE = "accounts"
_SOURCES = "ODI_PEER_VERIFIED_SOURCES"
"""Names the folder `sources` of a checkout of dlt-hub/verified-sources."""
Texts = tuple[str | None, ...]
Rows = Counter[Texts]


def peer_kills(options: Options) -> list[Row]:
    """Rows that differ from the database once a capture was killed again and again, beside a peer's; and once the same
    runs were left alone."""
    contenders: dict[str, Callable[[PostgresServer, Path], Contender]] = {"ours": _ours}
    if options.peers:
        sources = os.environ.get(_SOURCES)
        if not sources or not (Path(sources) / "pg_replication").is_dir():
            raise PeerUnavailable(
                f"{_SOURCES} has to name the folder `sources` of a checkout of dlt-hub/verified-sources; "
                "`--without-peers` measures ours alone"
            )
        environment = PeerEnvironment("dlt")
        environment.make(options.say)
        script = [str(environment.program("python")), str(FOLDER / "dlt_replication.py"), sources]
        contenders[f"{environment.title}, pg_replication into DuckDB"] = lambda server, folder: _dlt(
            server, folder, script
        )
    rows = []
    for kills in (_KILLS, 0):
        ours, *peers = [_after_runs(options, title, contender, kills) for title, contender in contenders.items()]
        name = f"rows lost, repeated or different after {_KILLS} runs under writers, {kills} of them killed"
        peer = peers[0] if peers else None
        rows.append(Row(name, ours, peer, ", ".join([*contenders][1:]), None, "0", ours == 0))
    return rows


Contender = tuple[Sequence[str], Callable[[], Rows]]
"""The command of one run, and the rows that it has made."""


def _ours(server: PostgresServer, folder: Path) -> Contender:
    connection = server.connection.rstrip().removesuffix("}") + ", log: {slot: odi_benchmark, create: true}}"
    (folder / "odibi.yaml").write_text(
        f"project: bank\nconnections:\n{connection}\n  lake: {{type: local, base_path: lake}}\n"
        "system: {connection: lake, path: system}\npipelines:\n- pipeline: p\n  nodes:\n  - name: changes\n"
        f"    read: {{connection: db, format: cdc, tables: [public.{_TABLE}], snapshot: {{rows: 400}}}}\n"
        f"    write: {{connection: lake, path: changes}}\n  - name: {_TABLE}\n"
        f"    apply: {{changes: changes, table: public.{_TABLE}}}\n    write: {{connection: lake, path: {_TABLE}}}\n",
        encoding="utf-8",
    )

    def rows() -> Rows:
        listed = DeltaTable(str(folder / "lake" / _TABLE)).to_pyarrow_table().select(["id", "balance", "note"])
        return Counter(_texts(list(row.values())) for row in listed.to_pylist())

    return [str(Path(sys.executable).with_name("odi")), "run", "p"], rows


def _dlt(server: PostgresServer, folder: Path, script: Sequence[str]) -> Contender:
    address = f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{DATABASE}"
    place = [address, str(folder)]

    def rows() -> Rows:
        said = subprocess.run([*script, *place, "rows"], check=True, capture_output=True, text=True, cwd=folder)
        return Counter(_texts(row) for row in json.loads(said.stdout.splitlines()[-1]))

    return [*script, *place, "run"], rows


def _texts(values: Sequence[object]) -> Texts:
    return tuple(None if value is None else str(value) for value in values)


def _after_runs(
    options: Options, title: str, contender: Callable[[PostgresServer, Path], Contender], kills: int
) -> int:
    """How many rows differ from the database's after some runs, the first of which are killed, and one that ends."""
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="odi-kills-") as name, postgres.started() as server:
        folder = Path(name)
        postgres.emptied(server)
        command, rows = contender(server, folder)
        options.say(f"{title}: {_KILLS} runs, {kills} of them killed")
        began = time.monotonic()
        _run(command, folder, None)
        longest = time.monotonic() - began
        with postgres.written(server, options.seed):
            for number in range(_KILLS):
                time.sleep(0.5)
                _run(command, folder, longest * chance.uniform(0.3, 1.0) if number < kills else None)
        _run(command, folder, None)
        wanted = Counter(tuple(row) for row in postgres.held(server, _TABLE).values())
        held = rows()
        wrong = (held - wanted).total() + (wanted - held).total()
        options.say(f"{title}: {wrong} rows differ, of {wanted.total()}")
        return wrong


def _run(command: Sequence[str], folder: Path, seconds: float | None) -> None:
    """One run; with ``seconds``, it is killed unless it ends before."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return
    if process.returncode and seconds is None:
        raise RuntimeError(f"{' '.join(command)} failed: {said[-2000:]}")
