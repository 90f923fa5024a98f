"""``odi run`` as a process of its own: what a terminal would see, Spark's start and end included."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from odi_assets_tests.cli.shop import PROJECT, environment, odi
from odi_assets_tests.nodes.support import HEAD
from odi_assets_tests.streams.execution.test_changed_streams import COUNTED, COUNTING


def test_a_run_prints_nothing_of_spark_or_dagster(shop: Path) -> None:
    done = odi("run", "shop", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    first, second, third, *rest = done.stderr.splitlines()
    assert first == "shop: 2 nodes"
    assert second.startswith("[1/2] shop.orders: SUCCESS, 2 rows, ")
    assert third.startswith("[2/2] shop.spending: SUCCESS, 2 rows, ")
    for word in ("WARN", "ERROR", "INFO", "DEBUG", "log4j", "incubator", "dagster."):
        assert word not in done.stderr
    assert rest[:2] == ["", ""]


def test_a_stream_with_state_of_its_own_prints_nothing_of_sparks_workers(tmp_path: Path) -> None:
    pipelines = textwrap.indent(textwrap.dedent(COUNTED), "  ")
    (tmp_path / "odibi.yaml").write_text(HEAD + pipelines, encoding="utf-8")
    (tmp_path / "counting.py").write_text(COUNTING, encoding="utf-8")
    (tmp_path / "landing" / "events").mkdir(parents=True)
    (tmp_path / "landing" / "events" / "1.json").write_text('{"id": "a"}\n', encoding="utf-8")
    done = odi("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, *rest = done.stderr.splitlines()
    assert first == "p: 1 node"
    assert second.startswith("[1/1] p.counts: SUCCESS, 1 row, ")
    assert rest[:2] == ["", ""]


CLOSED = [">&-", "2>&-", "<&- >&- 2>&-"]


def in_shell(redirection: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "odi_assets.cli", *arguments])
    return subprocess.run(
        ["sh", "-c", f"{command} {redirection}"],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize("redirection", CLOSED)
def test_a_command_whose_streams_are_closed_does_its_work(shop: Path, redirection: str) -> None:
    for arguments in (["--version"], ["ls"], ["plan"], ["config", "check"], ["runs", "list", "--json"]):
        done, usual = in_shell(redirection, *arguments, cwd=shop), odi(*arguments, cwd=shop)
        assert (done.returncode, done.stdout) == (0, usual.stdout if redirection == "2>&-" else "")
        assert done.stderr == (usual.stderr if redirection == ">&-" else "")
    assert in_shell(redirection, "run", "nosuch", cwd=shop).returncode == 2


def test_a_run_whose_streams_are_closed_writes_its_rows(shop: Path) -> None:
    assert in_shell(CLOSED[-1], "run", cwd=shop).returncode == 0
    shown = odi("show", "spending", "--json", cwd=shop)
    assert sorted(row["customer"] for row in json.loads(shown.stdout)) == ["ann", "bob"]
    # Nothing is new now: this run ends without Spark.
    assert in_shell(CLOSED[-1], "run", cwd=shop).returncode == 0
    runs = json.loads(odi("runs", "list", "--json", cwd=shop).stdout)
    assert [run["status"] for run in runs] == ["NO_DATA", "NO_DATA", "SUCCESS", "SUCCESS"]


def test_an_interrupt_stops_it_with_130_and_the_next_run_goes_on(shop: Path) -> None:
    (shop / "slow.py").write_text(
        "import pathlib, time\n\n"
        "def slow(df):\n"
        "    pathlib.Path('began').touch()\n"
        "    while pathlib.Path('began').exists():\n"
        "        time.sleep(0.1)\n"
        "    return df\n",
        encoding="utf-8",
    )
    text = PROJECT.replace("transform: {sql: ", "transform: {function: 'slow:slow'} # ")
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "-m", "odi_assets.cli", "run"],
        cwd=shop,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not (shop / "began").exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert out == ""
    assert "[1/2] shop.orders: SUCCESS" in err
    assert "odi: interrupted" in err
    assert "Traceback" not in err

    (shop / "began").unlink()
    (shop / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    again = odi("run", "--json", cwd=shop)
    assert [result["status"] for result in json.loads(again.stdout)] == ["NO_DATA", "SUCCESS"]
