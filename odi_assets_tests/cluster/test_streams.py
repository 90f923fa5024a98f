"""Stream nodes on a Spark Connect server that asks for a token: their client is killed, the log shows no token, and a
row is late that would be in a classic session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from benchmarks.streaming.kills import make_project, outcome
from odi_assets_tests.cli.shop import odi
from odi_assets_tests.cluster.servers import connect_server, local_environment, until

TOKEN = "a-token-that-nobody-may-read"
OURS = str(Path(__file__).parents[2])

WINDOWS = """\
project: windows
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
system: {{connection: lake, path: system}}
spark: {{remote: "{remote}"}}
pipelines:
- pipeline: p
  nodes:
  - name: visits
    read: {{connection: landing, format: json, path: "*.json", schema: "customer STRING, shop STRING, at TIMESTAMP"}}
    stream:
      inputs: {{df: {{watermark: {{column: at, delay: 1m}}, max_files_per_batch: 1}}}}
      state_partitions: 1
      late_rows: late
    transform: {{function: "queries:visits"}}
    write: {{connection: lake, path: visits, mode: append}}
"""
VISITS = """\
from pyspark.sql.functions import session_window


def visits(df):
    return df.groupBy({keys}session_window("at", "5 minutes")).count()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m odi_assets.spark.connect_worker "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with connect_server(folder, "local[2]", TOKEN, str(python)) as started:
        yield started


def test_a_killed_client_loses_and_repeats_nothing_and_no_token_is_logged(
    tmp_path: Path, folder: Path, address: str
) -> None:
    places = [make_project(tmp_path / name, "rocksdb", 4, f'remote: "{address}"') for name in ("killed", "quiet")]
    killed, quiet = places
    for commits in (1, 3):
        kill_after(killed, commits)
    for place in places:
        ran = odi("run", cwd=place, env=local_environment(PYTHONPATH=OURS))
        assert ran.returncode == 0, ran.stderr
    assert outcome(killed) == outcome(quiet)
    found = outcome(quiet)
    assert (len(found["watermarks"]), len(found["rows"]) > 20) == (5, True)
    log = (folder / "connect.log").read_text(encoding="utf-8", errors="replace")
    # What the worker says is there, and what was said of the token has dots in its place.
    assert "token=…" in log
    assert TOKEN not in log


@pytest.mark.parametrize(("token", "why"), [(";token=another", "Invalid authentication"), ("", "No authentication")])
def test_a_server_that_refuses_a_client_is_named_by_each_node_with_what_to_do(
    tmp_path: Path, address: str, token: str, why: str
) -> None:
    text = WINDOWS.format(remote=f"{address.partition(';')[0]}{token}")
    again = (
        text[text.index("  - name:") :].replace("visits", "again").replace("late_rows: late", "late_rows: late_again")
    )
    (tmp_path / "odibi.yaml").write_text(text + again, encoding="utf-8")
    (tmp_path / "queries.py").write_text("def visits(df):\n    return df\n\n\ndef again(df):\n    return df\n")
    land(tmp_path, 0, ("ann", "10:10"))
    ran = odi("run", cwd=tmp_path, env=local_environment(PYTHONPATH=OURS))
    assert ran.returncode == 1
    assert ran.stderr.count(f"refuses: {why} token") == 2
    assert ran.stderr.count("give the server's token") == 2
    assert "RPC" not in ran.stderr


def kill_after(place: Path, commits: int) -> None:
    """Run the node, and kill the client once its table has so many commits."""
    with (place / "client.log").open("ab") as log:
        command = [sys.executable, "-m", "odi_assets.cli", "run"]
        client = subprocess.Popen(command, cwd=place, env=local_environment(PYTHONPATH=OURS), stdout=log, stderr=log)
        try:

            def committed() -> bool:
                assert client.poll() is None, (place / "client.log").read_text(encoding="utf-8")[-4000:]
                return (place / "lake" / "matched" / "_delta_log" / f"{commits - 1:020}.json").exists()

            until(f"{commits} commits", committed)
        finally:
            # SIGKILL: it cannot tell the server.
            client.kill()
            client.wait(60)


def test_rows_of_open_sessions_are_not_late_and_a_changed_query_is_compared(tmp_path: Path, address: str) -> None:
    (tmp_path / "odibi.yaml").write_text(WINDOWS.format(remote=address), encoding="utf-8")
    (tmp_path / "queries.py").write_text(VISITS.format(keys='"customer", '), encoding="utf-8")
    land(tmp_path, 0, ("ann", "10:10"))
    land(tmp_path, 1, ("ann", "10:10"))
    # The watermark of the batch before is 10:09: eve's session ended at 10:08, fay's lasts until 10:12.
    land(tmp_path, 2, ("eve", "10:03"), ("fay", "10:07"), ("bob", "10:20"))
    environment = local_environment(PYTHONPATH=OURS)
    ran = odi("run", cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stderr
    late = DeltaTable(str(tmp_path / "lake" / "late")).to_pyarrow_table().to_pylist()
    assert [next(filter(None, row["row"].values()))["customer"] for row in late] == ["eve"]

    changed = WINDOWS.format(remote=address).replace("      late_rows: late\n", "")
    (tmp_path / "odibi.yaml").write_text(changed, encoding="utf-8")
    (tmp_path / "queries.py").write_text(VISITS.format(keys='"customer", "shop", '), encoding="utf-8")
    land(tmp_path, 3, ("cem", "10:30"))
    ran = odi("run", cwd=tmp_path, env=environment)
    assert ran.returncode == 1
    assert "operator 0, default: key: customer string, sessionStartTime timestamp in the checkpoint" in ran.stderr
    assert "--full-refresh" in ran.stderr


def land(place: Path, number: int, *visits: tuple[str, str]) -> None:
    (place / "landing").mkdir(exist_ok=True)
    lines = [json.dumps({"customer": who, "shop": "x", "at": f"2024-01-01T{at}:00Z"}) for who, at in visits]
    (place / "landing" / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
