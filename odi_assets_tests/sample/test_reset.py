"""The sample goes back to its start, whatever happened in between."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.config.loader import load_project_file
from odi_assets.errors import ConfigError, SourceError
from odi_assets.sample import landing
from odi_assets.sample import landing_files as zone
from odi_assets.sample.landing import arrive, hold, reset
from odi_assets.state.backend import StateBackend
from odi_assets.state.factory import create_state_backend
from odi_assets_tests.sample.conftest import held, landed

NODES = ["raw_flights", "raw_weather", "airlines", "airports", "planes", "flights", "flights_enriched", "delays"]


def state_of(project: Path) -> StateBackend:
    return create_state_backend(load_project_file(project / "odibi.yaml").config, project)


def run_leaves_behind(project: Path) -> None:
    """What a run of the pipeline writes, without Spark: a table and an HWM per node."""
    for node in NODES:
        write_deltalake(str(project / "data" / "lake" / node), pa.table({"x": [1]}))
        state_of(project).set_hwm(f"flights.{node}", {"version": 0})
    write_deltalake(str(project / "data" / "lake" / "mine"), pa.table({"x": [1]}))
    state_of(project).set_hwm("other.node", 7)


@pytest.fixture
def tracked(project: Path) -> Path:
    """The project in a git repository that has its landing zone."""
    (project / ".gitignore").write_text("data/lake/\n")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-qm", "January"],
    ):
        subprocess.run(["git", *command], cwd=project, check=True)
    return project


def git_status(project: Path) -> str:
    done = subprocess.run(["git", "status", "--porcelain"], cwd=project, check=True, capture_output=True, text=True)
    return done.stdout


def test_reset_brings_held_days_back_and_git_sees_no_change(tracked: Path) -> None:
    hold(tracked, 15)
    assert git_status(tracked) != ""
    result = reset(tracked / "odibi.yaml")
    assert git_status(tracked) == ""
    assert len(result.landed) == 31
    assert result.held == ()
    assert held(tracked) == {}


def test_reset_removes_the_days_after_january_and_nothing_else(project: Path) -> None:
    before = landed(project)
    flights, weather = project / "data/landing/flights", project / "data/landing/weather"
    (flights / "2013-02-01.csv").write_text("landed\n")
    (weather / "2013-02-01.jsonl").write_text("{}\n")
    (flights / "2013-12-31.csv").write_text("landed\n")
    (flights / "2014-01-01.csv").write_text("not the sample's\n")
    (project / "data/landing/notes.txt").write_text("mine\n")
    result = reset(project / "odibi.yaml")
    assert result.removed == (dt.date(2013, 2, 1), dt.date(2013, 12, 31))
    assert set(landed(project)) - set(before) == {"flights/2014-01-01.csv", "notes.txt"}


def test_reset_to_some_days_holds_the_others_back(project: Path) -> None:
    before = landed(project)
    result = reset(project / "odibi.yaml", days=15)
    assert result.landed == tuple(dt.date(2013, 1, day) for day in range(1, 16))
    assert len(result.held) == 16
    assert landed(project) | held(project) == before
    assert "the landing zone holds 15 days, 2013-01-01 to 2013-01-15" in result.summary
    assert "16 days wait for `odi sample arrive`" in result.summary
    assert len(reset(project / "odibi.yaml", days=20).held) == 11
    assert landed(project) | held(project) == before


@pytest.mark.slow
def test_reset_drops_the_tables_and_marks_of_the_pipeline_only(project: Path) -> None:
    run_leaves_behind(project)
    result = reset(project / "odibi.yaml")
    assert sorted(key.node for key in result.dropped.tables) == sorted(NODES)
    assert sorted(result.dropped.keys) == sorted(f"flights.{node}" for node in NODES)
    assert result.summary.endswith("8 tables dropped, 8 high-water marks deleted")
    assert [node for node in NODES if (project / "data/lake" / node).exists()] == []
    assert [entry.key for entry in state_of(project).list_hwms()] == ["other.node"]
    assert (project / "data/lake/mine/_delta_log").is_dir()


def test_run_history_survives_a_reset(project: Path) -> None:
    state_of(project).save_pipeline_run("flights", {"run_id": "r1", "status": "SUCCESS"})
    before = state_of(project).list_runs()
    reset(project / "odibi.yaml")
    assert state_of(project).list_runs() == before


@pytest.mark.slow
def test_a_second_reset_finds_nothing_to_drop(project: Path) -> None:
    run_leaves_behind(project)
    reset(project / "odibi.yaml")
    again = reset(project / "odibi.yaml")
    assert (again.dropped.tables, again.dropped.keys, again.removed) == ((), (), ())
    assert again.summary == "the landing zone holds 31 days, 2013-01-01 to 2013-01-31"


class Killed(BaseException):
    """The process ends here: nothing of ours catches it."""


STEPS = ("stage", "reveal", "remove", "move")


def killed_after(monkeypatch: pytest.MonkeyPatch, step: str, calls: int) -> None:
    """Let the process die in the ``calls``-th call of a step of the landing zone, after the step's work is done."""
    left = iter(range(calls - 1, -1, -1))
    work = getattr(zone, step)

    def dying(*arguments: Path) -> object:
        result = work(*arguments)
        if next(left, 0) == 0:
            raise Killed
        return result

    for module in (zone, landing):
        if hasattr(module, step):
            monkeypatch.setattr(module, step, dying)


def interruptions() -> Iterator[tuple[str, str, int]]:
    for command, steps in (("hold", STEPS), ("arrive", STEPS[:3]), ("reset", STEPS)):
        yield from ((command, step, calls) for step in steps for calls in (1, 2, 20))


@pytest.mark.parametrize(("command", "step", "calls"), list(interruptions()))
def test_after_an_interruption_at_any_step_reset_brings_january_back_whole(
    tracked: Path, monkeypatch: pytest.MonkeyPatch, command: str, step: str, calls: int
) -> None:
    before = landed(tracked)
    if command != "hold":
        hold(tracked, 15)
    commands = {
        "hold": lambda: hold(tracked, 15),
        "arrive": lambda: arrive(tracked, 16),
        "reset": lambda: reset(tracked / "odibi.yaml"),
    }
    with monkeypatch.context() as patch:
        killed_after(patch, step, calls)
        with pytest.raises(Killed):
            commands[command]()

    finished = {name for name in landed(tracked) if not name.endswith(".part")}
    assert all(landed(tracked)[name] == before[name] for name in finished)
    reset(tracked / "odibi.yaml")
    assert landed(tracked) == before
    assert held(tracked) == {}
    assert git_status(tracked) == ""


def test_arriving_goes_on_where_it_was_interrupted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = landed(project)
    hold(project, 15)
    with monkeypatch.context() as patch:
        killed_after(patch, "reveal", 3)
        with pytest.raises(Killed):
            arrive(project, 16)
    # The second day's flights are there and its weather is not: it counts as a day that has still to land.
    assert arrive(project, 15).days == tuple(dt.date(2013, 1, day) for day in range(17, 32))
    assert landed(project) == before
    assert held(project) == {}


@pytest.mark.slow
def test_a_reset_that_was_interrupted_before_the_marks_were_deleted_is_finished_by_the_next(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_leaves_behind(project)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("odi_assets.sample.tables.create_state_backend", die)
        with pytest.raises(Killed):
            reset(project / "odibi.yaml")
    assert len(reset(project / "odibi.yaml").dropped.keys) == len(NODES)
    assert list((project / "data/lake").glob(".dropped/*")) == []


def test_a_lost_day_is_named_with_the_way_to_get_it_back(project: Path) -> None:
    (project / "data/landing/flights/2013-01-07.csv").unlink()
    with pytest.raises(SourceError, match=r"flights/2013-01-07\.csv(.|\n)*git checkout -- data/landing"):
        reset(project / "odibi.yaml")


def test_a_project_file_that_is_not_the_samples_is_refused_before_anything_is_touched(project: Path) -> None:
    run_leaves_behind(project)
    text = (project / "odibi.yaml").read_text().replace("pipeline: flights\n", "pipeline: orders\n")
    (project / "odibi.yaml").write_text(text)
    with pytest.raises(ConfigError, match="no pipeline `flights`"):
        reset(project / "odibi.yaml", days=1)
    assert (project / "data/lake/flights/_delta_log").is_dir()
    assert held(project) == {}


def test_tables_that_are_not_on_this_disk_are_refused(project: Path) -> None:
    text = (project / "odibi.yaml").read_text()
    cloud = "lake: {type: s3, bucket: b, base_path: x}\n  system_lake: {type: local, base_path: data/lake}\n"
    at = text.index("lake:  ")
    end = text.index("\n# The system tables")
    text = (text[:at] + cloud + text[end:]).replace(
        "connection: lake\n  path: system", "connection: system_lake\n  path: system"
    )
    (project / "odibi.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"s3://b/x"):
        reset(project / "odibi.yaml")
