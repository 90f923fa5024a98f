"""What all commands have in common: streams, exit codes, start-up, terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from odi_assets.cli.app import group
from odi_assets.nodes.project import Project
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import environment
from odi_assets_tests.cli.shop import odi as odi_process

HEAVY = ("pyspark", "dagster", "pandas")
LIGHT_COMMANDS = [
    ["--help"],
    ["run", "--help"],
    ["plan"],
    ["plan", "--json"],
    ["metrics"],
    ["state", "list"],
    ["state", "get", "shop.orders"],
    ["state", "set", "shop.orders", "1"],
    ["state", "export"],
    ["state", "migrate", "--from", "lake:other"],
    ["catalog", "state", "odibi.yaml"],
    ["runs", "list"],
    ["runs", "show", "1234"],
    ["store", "list"],
    ["store", "check", "shop.orders"],
    ["config", "check"],
    ["config", "schema"],
]


@pytest.mark.parametrize("arguments", LIGHT_COMMANDS, ids=" ".join)
def test_commands_that_need_no_spark_import_none(shop: Path, arguments: list[str]) -> None:
    assert imported(arguments, HEAVY, shop) == ""


def imported(arguments: list[str], unwanted: tuple[str, ...], folder: Path) -> str:
    """Which of ``unwanted`` a process of ``odi`` loads."""
    script = (
        "import sys\n"
        "from odi_assets.cli import main\n"
        f"main({arguments!r})\n"
        f"found = sorted({{name.split('.')[0] for name in sys.modules}} & set({unwanted!r}))\n"
        "sys.exit(f'imported {found}' if found else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_nothing_but_the_words_it_prints(tmp_path: Path, arguments: list[str]) -> None:
    assert imported(arguments, (*HEAVY, "deltalake", "pyarrow", "sqlglot", "yaml"), tmp_path) == ""


def test_the_installed_command_and_the_module_are_the_same(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("odi")
    done = subprocess.run([str(command), "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == odi_process("--version", cwd=tmp_path).stdout
    assert done.stdout.startswith("odi_assets ")


@pytest.mark.usefixtures("shop")
def test_a_mistyped_command_or_option_is_bad_usage_with_a_suggestion(odi: Odi) -> None:
    for arguments, meant in ([["pln"], "'plan'"], [["state", "gte"], "'get'"], [["plan", "--full-refrsh"], "--help"]):
        answer = odi(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("odi: ")
        assert meant in answer.err


def test_only_the_current_folder_is_looked_in_for_a_project(shop: Path, odi: Odi) -> None:
    below = shop / "below"
    below.mkdir()
    os.chdir(below)
    answer = odi("plan")
    assert (answer.code, answer.out) == (2, "")
    assert f"there is no odibi.yaml in {below}, and no other folder is looked in" in answer.err
    assert "-c FILE" in answer.err


def test_the_environment_names_a_project_and_the_option_goes_before_it(
    shop: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODI_PROJECT", str(shop / "odibi.yaml"))
    monkeypatch.chdir("/")
    assert odi("plan").code == 0
    assert odi("plan", "-c", str(shop / "other.yaml")).code == 2


@pytest.mark.usefixtures("shop")
def test_an_error_shows_its_stack_only_when_debugging(odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in odi("plan", "nowhere").err
    assert "Traceback" in odi("--debug", "plan", "nowhere").err
    assert "Traceback" in odi("plan", "nowhere", "--debug").err
    assert "Traceback" not in odi("plan", "nowhere").err
    monkeypatch.setenv("ODI_DEBUG", "1")
    assert "Traceback" in odi("plan", "nowhere").err


@pytest.mark.usefixtures("shop")
def test_an_error_nobody_expected_is_called_a_bug(odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Project) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Project, "open_state", broken)
    answer = odi("state", "list")
    assert (answer.code, answer.out) == (1, "")
    assert "odi: RuntimeError: out of order" in answer.err
    assert "bug in odi_assets" in answer.err
    assert "Traceback" not in answer.err
    assert "Traceback" in odi("--debug", "state", "list").err


def test_a_reader_that_goes_away_ends_the_command_without_a_word(shop: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "odi_assets.cli", "config", "schema"],
        cwd=shop,
        env=environment(),
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert done.stderr == ""
    assert done.returncode == 141


def on_terminal(*arguments: str, cwd: Path, columns: int, **env: str) -> str:
    """What ``odi`` prints on a terminal of ``columns`` columns."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    running = subprocess.Popen(
        [sys.executable, "-m", "odi_assets.cli", *arguments],
        cwd=cwd,
        env=environment(TERM="xterm-256color", **env),
        stdin=side,
        stdout=side,
        stderr=subprocess.DEVNULL,
    )
    os.close(side)
    printed = b""
    try:
        while chunk := os.read(terminal, 4096):
            printed += chunk
    except OSError:
        # Linux reports the end of a terminal as an error.
        running.wait()
    os.close(terminal)
    return printed.decode()


@pytest.fixture
def long_key(shop: Path) -> str:
    key = "shop." + "a_rather_long_name_" * 3
    Project.load(shop / "odibi.yaml").open_state().reset_hwm(key, "2013-01-31/" * 12)
    return key


@pytest.mark.usefixtures("long_key")
def test_tables_fit_a_terminal_and_lose_nothing(shop: Path) -> None:
    shown = on_terminal("state", "list", cwd=shop, columns=100, NO_COLOR="1")
    lines = shown.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 100
    # Cells go on in the next line; together they are whole.
    column = slice(lines[0].index("HWM"), lines[0].index("type"))
    assert "".join(line[column].strip() for line in lines[2:]) == "2013-01-31/" * 12


def test_tables_in_a_pipe_have_a_line_per_row(shop: Path, long_key: str) -> None:
    piped = odi_process("state", "list", cwd=shop).stdout
    assert len(piped.splitlines()) == 2
    assert "2013-01-31/" * 12 in piped
    assert long_key in piped


@pytest.mark.usefixtures("long_key")
def test_escape_codes_are_for_terminals_that_want_colour(shop: Path) -> None:
    assert "\x1b" in on_terminal("state", "list", cwd=shop, columns=120)
    assert "\x1b" not in on_terminal("state", "list", cwd=shop, columns=120, NO_COLOR="1")
    piped = odi_process("state", "list", cwd=shop)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "\x1b" not in odi_process("--help", cwd=shop).stdout


def test_the_lists_of_commands_say_what_each_command_says_of_itself() -> None:
    odi_ = group()
    for name in odi_.members:
        loaded = odi_.loaded(name)
        assert odi_.commands[name].help == loaded.help.partition("\n\n")[0], name
        for member in getattr(loaded, "members", {}):
            said = loaded.loaded(member).help.partition("\n\n")[0]
            assert loaded.commands[member].help == " ".join(said.split()), f"{name} {member}"


def test_what_py4j_logs_as_the_root_logger_is_not_shown() -> None:
    script = (
        "import logging\n"
        "from odi_assets.cli.run.command import quiet_libraries\n"
        "quiet_libraries()\n"
        "exec(compile('logging.error(\"of py4j\")', '/any/py4j/java_gateway.py', 'exec'))\n"
        "logging.error('ours')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "ERROR:root:ours\n"
