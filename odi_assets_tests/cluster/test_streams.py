"""A stream node on a Spark Connect server that asks for a token: its client is killed, and the log shows no token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.streaming.kills import make_project, outcome
from odi_assets_tests.cli.shop import odi
from odi_assets_tests.cluster.servers import connect_server, local_environment, until

TOKEN = "a-token-that-nobody-may-read"


def test_a_killed_client_loses_and_repeats_nothing_and_no_token_is_logged(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m odi_assets.spark.connect_worker "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with connect_server(tmp_path, "local[2]", TOKEN, str(python)) as address:
        places = [make_project(tmp_path / name, "rocksdb", 4, f'remote: "{address}"') for name in ("killed", "quiet")]
        killed, quiet = places
        for commits in (1, 3):
            kill_after(killed, commits)
        for place in places:
            ran = odi("run", cwd=place, env=local_environment(PYTHONPATH=str(Path(__file__).parents[2])))
            assert ran.returncode == 0, ran.stderr
    assert outcome(killed) == outcome(quiet)
    found = outcome(quiet)
    assert (len(found["watermarks"]), len(found["rows"]) > 20) == (5, True)
    log = (tmp_path / "connect.log").read_text(encoding="utf-8", errors="replace")
    # What the worker says is there, and what was said of the token has dots in its place.
    assert "token=…" in log
    assert TOKEN not in log


def kill_after(place: Path, commits: int) -> None:
    """Run the node, and kill the client once its table has so many commits."""
    with (place / "client.log").open("ab") as log:
        command = [sys.executable, "-m", "odi_assets.cli", "run"]
        client = subprocess.Popen(
            command, cwd=place, env=local_environment(PYTHONPATH=str(Path(__file__).parents[2])), stdout=log, stderr=log
        )
        try:

            def committed() -> bool:
                assert client.poll() is None, (place / "client.log").read_text(encoding="utf-8")[-4000:]
                return (place / "lake" / "matched" / "_delta_log" / f"{commits - 1:020}.json").exists()

            until(f"{commits} commits", committed)
        finally:
            # SIGKILL: it cannot tell the server.
            client.kill()
            client.wait(60)
