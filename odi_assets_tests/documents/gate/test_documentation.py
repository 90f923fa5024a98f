"""The examples of docs/cursors.md go as they are printed there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from odi_assets.cli import main

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "cursors.md").read_text(encoding="utf-8")


def test_its_session_goes_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("ODI_PROJECT", "ODI_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r"`(\w+\.json)`:\n\n```json\n(.*?)```", DOCUMENT, flags=re.DOTALL):
        Path(name).write_text(text, encoding="utf-8")
    commands = 0
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, flags=re.DOTALL):
        for command, printed in re.findall(r"^\$ odi (.*)\n((?:[^$].*\n|\n)*)", block, flags=re.MULTILINE):
            capfd.readouterr()
            main(shlex.split(command))
            shown = capfd.readouterr()
            assert "\n".join(line.rstrip() for line in (shown.out + shown.err).splitlines()) == printed.rstrip(), (
                command
            )
            commands += 1
    assert commands == 6


@pytest.mark.parametrize(
    "command", ["check", "show", "diff", "fingerprint", "convert", "import", "export", "set", "reset"]
)
def test_every_command_is_there(command: str) -> None:
    assert f"| `odi cursors {command} " in DOCUMENT
    assert main(["cursors", command, "--help"]) == 0
