"""``odi dev`` says what it needs before it starts anything; as_shipped/test_dev.py starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odi_assets.cli.dev import command as dev
from odi_assets.orchestration.runs import daemons
from odi_assets.orchestration.runs.daemons import daemons_at
from odi_assets.orchestration.runs.instance import lasting_home
from odi_assets_tests.cli.conftest import Odi


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What this process would become."""
    found: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: found.append(arguments))
    return found


@pytest.mark.usefixtures("shop")
def test_without_its_extra_it_names_the_extra(odi: Odi, monkeypatch: pytest.MonkeyPatch, started: list[Any]) -> None:
    monkeypatch.setattr(dev, "has_ui", lambda: False)
    answer = odi("dev")
    assert (answer.code, answer.out) == (1, "")
    assert "-m pip install 'odi_assets[ui]'" in answer.err
    assert not started


def test_mistakes_of_the_project_file_are_said_before_dagster_starts(shop: Path, odi: Odi, started: list[Any]) -> None:
    (shop / "odibi.yaml").write_text("project: 3\n", encoding="utf-8")
    assert odi("dev").code == 2
    assert not started
    assert not (shop / ".dagster").exists()


@pytest.mark.slow
def test_dagster_gets_the_project_the_environment_and_the_place(
    shop: Path, odi: Odi, started: list[Any], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (shop / "odibi.yaml").read_text(encoding="utf-8")
    (shop / "odibi.yaml").write_text(f"{text}\nenvironments: {{prod: {{}}}}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    named = os.path.relpath(shop / "odibi.yaml")
    answer = odi("dev", "-c", named, "--env", "prod", "-h", "0.0.0.0", "-p", "4000")
    assert answer.code == 0
    assert f"DAGSTER_HOME is {shop / '.dagster'}" in answer.err
    ((_, command, environment),) = started
    assert command[-7:] == ["dev", "-m", "odi_assets.definitions", "--host", "0.0.0.0", "--port", "4000"]
    assert environment["ODI_PROJECT"] == str(shop / "odibi.yaml")
    assert environment["ODI_ENV"] == "prod"
    assert environment["DAGSTER_HOME"] == str(shop / ".dagster")
    assert Path.cwd() == shop


@pytest.mark.slow
def test_a_second_daemon_with_the_same_home_is_not_started(
    shop: Path, odi: Odi, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "SECONDS_TO_END", 0.0)
    home = lasting_home(shop)
    # What a killed `odi dev` leaves behind: a process that looks like a daemon, and does nothing here.
    wait = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", wait, "dagster._daemon", "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "DAGSTER_HOME": str(home)}) as daemon:
        assert daemons_at(home) == [daemon.pid]
        assert daemons_at(shop) == []
        answer = odi("dev")
        assert answer.code == 1
        assert f"a daemon of Dagster is at work in {home} already" in answer.err
        assert f"kill {daemon.pid}" in answer.err
        assert not started
        daemon.kill()
    assert odi("dev").code == 0
    assert started
    # This process has not become Dagster yet, and has the home: one that comes now starts no daemon either.
    late = odi("dev")
    assert late.code == 1
    assert f"another `odi dev` has begun in {home}" in late.err
    assert len(started) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_a_port_that_is_taken_is_named_before_dagster_starts(odi: Odi, started: list[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = odi("dev", "-p", str(port))
    assert answer.code == 1
    assert f"the UI cannot listen on 127.0.0.1:{port}" in answer.err
    assert "another --port" in answer.err
    assert not started


def test_a_typing_mistake_in_dagster_yaml_is_named(shop: Path, odi: Odi, started: list[Any]) -> None:
    (shop / "dagster.yaml").write_text("storge: {}\n", encoding="utf-8")
    answer = odi("dev")
    assert answer.code == 2
    assert "dagster.yaml: " in answer.err
    assert "storge" in answer.err
    assert not started


def test_a_project_with_a_server_of_its_own_starts_no_other(shop: Path, odi: Odi, started: list[Any]) -> None:
    text = (shop / "odibi.yaml").read_text(encoding="utf-8")
    (shop / "odibi.yaml").write_text(f"{text}\nenvironments: {{far: {{spark: {{remote: 'sc://far'}}}}}}\n", "utf-8")
    answer = odi("dev", "--connect", "--env", "far")
    assert answer.code == 2
    assert "all runs share the server that `spark.remote` names" in answer.err
    assert "leave out --connect" in answer.err
    assert not started
