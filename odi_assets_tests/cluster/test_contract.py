"""The contract of tables and nodes where executors are other processes than the driver, and where there is no JVM here.

A process has one Spark session at most, so each place gets a pytest of its own, over the tests marked ``contract``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets_tests.cluster.conftest import PLACES
from odi_assets_tests.cluster.servers import local_environment
from odi_assets_tests.conftest import MASTER_VARIABLE, REMOTE_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "master": ("odi_assets_tests/tables",),
    # The executors of Spark Connect's server are those of the same cluster: nodes run on them there.
    "remote": ("odi_assets_tests/tables", "odi_assets_tests/nodes", "odi_assets_tests/checkpoints"),
}


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_the_contract_of_tables_and_nodes_holds(
    place: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    key, address = place
    variable = {"master": MASTER_VARIABLE, "remote": REMOTE_VARIABLE}[key]
    strict = ("-W", "error::pytest.PytestUnhandledThreadExceptionWarning")
    limit = request.config.getoption("--cases")
    cases = () if limit is None else (f"--cases={limit}",)
    options = ("-m", "contract", *cases, *strict, "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'child'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *FOLDERS[key]],
        cwd=ROOT,
        env=local_environment(**{variable: address}),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
