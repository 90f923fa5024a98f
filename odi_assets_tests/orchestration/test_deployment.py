"""Dagster's storage in PostgreSQL, and what ``odi doctor --deployment`` finds of a deployment that is not right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat

from benchmarks.dagster.deployed import running_deployment
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.deployment.examine import examine_deployment
from odi_assets.orchestration.deployment.look import Look, LookOutcome
from odi_assets.orchestration.runs.instance import open_instance
from odi_assets_tests.sources.sql.servers import PASSWORD, USER, PostgresServer, postgres, postgres_program

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if postgres_program("initdb") is None:
        pytest.skip("no PostgreSQL is installed")
    pytest.importorskip("dagster_postgres", reason="the extra `postgres-storage` is not installed")
    with tempfile.TemporaryDirectory(prefix="dagster-") as folder, postgres(Path(folder)) as started:
        yield started


@pytest.fixture
def database(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new, empty database, which the variables of the production dagster.yaml name."""
    name = f"dagster_{os.urandom(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    place = {"HOST": "127.0.0.1", "PORT": str(server.port), "USER": USER, "PASSWORD": PASSWORD, "DB": name}
    for variable, value in place.items():
        monkeypatch.setenv(f"DAGSTER_POSTGRES_{variable}", value)
    return name


@pytest.fixture
def home(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the production dagster.yaml."""
    del database
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


def _wrong(project: Project) -> dict[str, Look]:
    return {look.part: look for look in examine_deployment(project) if look.outcome is LookOutcome.WRONG}


def _beat(instance: dg.DagsterInstance) -> None:
    """What a daemon notes while it lives."""
    for name in instance.get_required_daemon_types():
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), name, "a daemon", []))


@pytest.mark.usefixtures("home")
def test_a_run_is_recorded_in_postgresql_with_the_versions_of_constraints_txt(project: Project) -> None:
    """`NOTIFY run_events, $1` was a syntax error: SQLAlchemy 2.1 gives `postgresql://` to psycopg 3."""

    @dg.asset
    def one() -> int:
        return 1

    with open_instance(project.root) as instance:
        assert dg.materialize([one], instance=instance).success
        assert instance.get_runs_count() == 1


@pytest.mark.usefixtures("home")
def test_a_new_database_has_no_schema_and_the_command_that_makes_it_is_named(project: Project) -> None:
    wrong = _wrong(project)
    assert "has no tables, for runs, events, schedules" in wrong["storage"].found
    assert PASSWORD not in wrong["storage"].found
    assert "dagster instance migrate" in wrong["storage"].remedy
    assert "has no tables" in _wrong(project)["storage"].found
    dagster = Path(sys.executable).parent / "dagster"
    subprocess.run([str(dagster), "instance", "migrate"], check=True, capture_output=True, timeout=300)
    wrong = _wrong(project)
    assert list(wrong) == ["daemon"]
    assert "SENSOR (never)" in wrong["daemon"].found


@pytest.mark.usefixtures("home")
def test_nothing_is_wrong_with_the_production_settings_while_the_daemon_lives(project: Project) -> None:
    with open_instance(project.root) as instance:
        _beat(instance)
        assert _wrong(project) == {}
        looks = list(examine_deployment(project))
        assert {"servers", "versions"} <= {look.part for look in looks if look.outcome is LookOutcome.NOT_LOOKED_AT}
        instance.event_log_storage.set_concurrency_slots("shop__sales", 3)
        wrong = _wrong(project)["pools"]
        assert "shop__sales has the limit 3" in wrong.found
        assert wrong.remedy == "dagster instance concurrency set shop__sales 1"


def test_limits_that_let_two_runs_of_a_node_compute_at_once_are_named(project: Project, home: Path) -> None:
    settings = (home / "dagster.yaml").read_text(encoding="utf-8")
    storage = settings[settings.index("storage:") : settings.index("\n\n", settings.index("storage:"))]
    (home / "dagster.yaml").write_text(storage, encoding="utf-8")
    with open_instance(project.root) as instance:
        _beat(instance)
    wrong = _wrong(project)
    assert "granularity is op" in wrong["pools"].found
    assert "not monitored" in wrong["run queue"].found


def test_a_database_that_does_not_answer_is_named_without_its_password(
    project: Project, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del home
    monkeypatch.setenv("DAGSTER_POSTGRES_PORT", "1")
    wrong = _wrong(project)["storage"]
    assert "does not answer" in wrong.found
    assert "port 1 failed" in wrong.found
    assert PASSWORD not in wrong.found


def test_a_driver_with_which_no_run_can_be_launched_is_named(
    project: Project, home: Path, server: PostgresServer, database: str
) -> None:
    """As it is with SQLAlchemy 2.1 and an address that names no driver."""
    with open_instance(project.root):
        pass
    address = f"postgresql+psycopg://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{database}"
    (home / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{address}'}}}}\n", encoding="utf-8")
    wrong = _wrong(project)["storage"]
    assert "psycopg 3" in wrong.found
    assert "postgres-storage" in wrong.remedy


def test_without_a_home_each_process_would_keep_runs_of_its_own(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    wrong = _wrong(project)["instance"]
    assert "DAGSTER_HOME is not set" in wrong.found


def test_a_relative_folder_of_the_home_is_named_with_its_line(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("storage: {sqlite: {base_dir: runs}}\n", encoding="utf-8")
    wrong = _wrong(project)["instance"]
    assert "dagster.yaml:1: `base_dir: runs` is relative" in wrong.found
    assert str(tmp_path / "runs") in wrong.remedy


def test_a_folder_that_nobody_may_write_to_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    lake = project.root / "lake"
    lake.write_text("a file in the place of the folder", encoding="utf-8")
    wrong = _wrong(project)["folders"]
    assert str(lake) in wrong.found


@pytest.mark.usefixtures("home")
def test_the_shell_prints_each_look_and_ends_with_1_where_something_is_wrong(project: Project) -> None:
    command = [sys.executable, "-m", "odi_assets.cli", "-c", str(project.path), "doctor", "--deployment"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert ended.returncode == 1, ended.stderr
    looks = json.loads(ended.stdout)
    assert {look["outcome"] for look in looks} == {"ok", "wrong", "not looked at"}
    assert "Not looked at: clock: there is no storage to ask." in ended.stderr


def test_webserver_daemon_and_two_code_servers_from_four_folders_are_one_instance(
    project: Project, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The services of deploy/compose.yaml, and again after SIGTERM to each in turn."""
    del database
    variables = {name: value for name, value in os.environ.items() if name.startswith("DAGSTER_POSTGRES_")}
    folder = tmp_path / "deployment"
    folder.mkdir()
    with running_deployment(folder, {"one": project.path, "two": project.path}, variables) as deployment:
        monkeypatch.setenv("DAGSTER_HOME", str(deployment.home))
        with open_instance(project.root) as instance:
            run = instance.create_run_for_job(build_definitions(project).resolve_job_def("shop"))
            assert _settled(project, deployment.server.address) == []
            for service in deployment.services:
                deployment.replace(service)
            assert _settled(project, deployment.server.address) == []
            assert instance.get_runs_count() == 1
            assert instance.has_run(run.run_id)
        looks = list(examine_deployment(project, deployment.server.address))
        seen = [look.found for look in looks if look.part == "servers"]
        assert any(found.startswith("code location two has ") for found in seen)
        assert f"the webserver at {deployment.server.address} has this instance" in seen
        assert deployment.strays() == []


def _settled(project: Project, address: str) -> list[str]:
    """What is wrong once the daemon had the time for its first heartbeats."""
    until = time.monotonic() + 120
    while True:
        wrong = [look.found for look in examine_deployment(project, address) if look.outcome is LookOutcome.WRONG]
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(1)
