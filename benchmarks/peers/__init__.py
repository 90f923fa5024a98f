"""Peers in environments of their own, made once and used again."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent
CACHE = FOLDER.parent.parent / ".benchmarks"


class PeerUnavailable(Exception):
    """A peer's environment cannot be made here; says what stood in the way."""


class PeerCrashed(Exception):
    """A peer ended, or failed, while it was measured; says which and how."""


class PeerEnvironment:
    """The virtual environment ``.benchmarks/<name>-<hash>`` with exactly what ``peers/<name>.txt`` pins."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pins = FOLDER / f"{name}.txt"
        text = self._pins.read_text()
        made_of = hashlib.sha256(f"{text}{sys.version}".encode()).hexdigest()[:12]
        self._folder = CACHE / f"{name}-{made_of}"
        found = re.search(rf"^{re.escape(name)}==(\S+)$", text, re.MULTILINE)
        if found is None:
            raise PeerUnavailable(f"{self._pins} does not pin {name} itself")
        self.title = f"{name} {found[1]}"

    def program(self, name: str) -> Path:
        """A program of the environment: ``python``, or a script that one of its packages brings."""
        return self._folder / "bin" / name

    def make(self, say: Callable[[str], None]) -> None:
        """Install the pins, unless that was done before.

        Raises:
            PeerUnavailable: they cannot be installed.
        """
        done = self._folder / "installed"
        if done.exists():
            return
        say(f"installing {self.title} into {self._folder}, once")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._call(sys.executable, "-m", "venv", str(self._folder))
        self._call(
            str(self.program("python")),
            *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "-r", str(self._pins)),
        )
        done.touch()

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()[-8:]
            raise PeerUnavailable(
                f"{self.title} could not be installed:\n  " + "\n  ".join([" ".join(command), *words]) + "\n"
                "→ can pip reach its registry from here? `--without-peers` measures ours alone, without a verdict "
                "on what a peer decides"
            )
