"""Dagster as people start it, ``dagster dev``: its daemon, its code server and its UI's API over one project."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LOCATION = "odi_assets.definitions"
START_SECONDS, STOP_SECONDS = 240, 20


@dataclass(frozen=True)
class Server:
    """A running Dagster; ``address`` is that of its UI."""

    address: str

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The answer of the UI's API (GraphQL).

        Raises:
            RuntimeError: it refused, or the answer is an error.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        if answer.get("errors"):
            raise RuntimeError(f"Dagster refused {query}: {answer['errors']}")
        data: dict[str, Any] = answer["data"]
        for name, found in data.items():
            if isinstance(found, dict) and "Error" in found.get("__typename", ""):
                raise RuntimeError(f"Dagster did not {name}: {found}")
        return data

    def backfills(self, status: str) -> int:
        """How many backfills have a status, as Dagster calls it: ``REQUESTED`` as long as they run."""
        found = self.ask(_BACKFILLS, status=status)
        return len(found["partitionBackfillsOrError"]["results"])


_BACKFILLS = (
    "query($status: BulkActionStatus!) { partitionBackfillsOrError(status: $status) "
    "{ __typename ... on PartitionBackfills { results { id } } ... on PythonError { message } } }"
)


@contextmanager
def running_dagster(folder: Path, command: Sequence[str] = ("dagster", "dev", "-m", LOCATION)) -> Iterator[Server]:
    """Dagster over the project file in ``folder``, set up as ``odi dev`` does. All its processes end with it.

    Args:
        command: a program of this environment and its arguments, without host and port.
    """
    shutil.copy(REPOSITORY / "odi_assets" / "orchestration" / "runs" / "dagster.yaml", folder)
    port = str(free_port())
    address = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(folder),
        "ODI_PROJECT": str(folder / "odibi.yaml"),
        # Whoever measures a clone measures that one, and not a package that is installed beside it.
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    with (folder / "dev.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / command[0]), *command[1:], "-h", "127.0.0.1", "-p", port],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            await_answer(f"{address}/server_info", process, folder / "dev.log")
            yield Server(address)
        finally:
            _stop(process)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)
    raise RuntimeError(f"Dagster did not start:\n{log.read_text(encoding='utf-8')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    # The session that was made for it holds its daemon, code server and runs too, and nothing else.
    for sign in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(timeout=STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
