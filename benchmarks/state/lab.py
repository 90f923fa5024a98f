"""Who is measured: drivers of ours and of Odibi, each in a process of its own interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Row
from benchmarks.peers import FOLDER, PeerCrashed, PeerEnvironment

# Compiled code is kept from one process to the next, as it is wherever a package is installed.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Driver:
    """One process of ``peers/state_driver.py``."""

    def __init__(self, who: Contender, folder: Path, log: Path) -> None:
        self._who = who
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [str(who.python), str(FOLDER / "state_driver.py"), who.library],
                cwd=folder,
                env=_ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def ask(self, name: str, **arguments: Any) -> Any:
        """What the driver answers.

        Raises:
            RuntimeError: ours failed.
            PeerCrashed: the peer did.
        """
        self.send(name, **arguments)
        return self.answer()

    def send(self, name: str, **arguments: Any) -> None:
        """Begin, without waiting for the answer; raises like :meth:`ask`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([name, arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._who.failed(f"ended with exit code {self._process.wait()}") from error

    def answer(self) -> Any:
        """The answer to what was sent; raises like :meth:`ask`."""
        line = self.line()
        if line is None:
            raise self._who.failed(f"ended with exit code {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise self._who.failed(reply["error"])
        return reply["result"]

    def line(self) -> str | None:
        """The next whole line that the driver wrote; None at its end, where a torn line does not count."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return line if line.endswith("\n") else None

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # What a process that died was still to read cannot be sent.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@dataclass(frozen=True)
class Contender:
    """A library whose state is measured.

    Attributes:
        title: as the rows name it.
        library: the package that is imported.
        python: its interpreter.
        project: its project file, for the shell.
    """

    title: str
    library: str
    python: Path
    project: Path

    def failed(self, how: str) -> Exception:
        """What to raise where it ended or failed: a peer may, and the rows tell."""
        return (RuntimeError if self.library == "odi_assets" else PeerCrashed)(f"{self.title} crashed: {how}")

    def show_state(self, project: Path) -> str:
        """What the shell's command that shows the state prints; a whole process.

        Raises:
            RuntimeError: ours failed.
            PeerCrashed: the peer did.
        """
        command = [str(self.python), "-m", "odi_assets.cli", "state", "get", "key0"]
        if self.library == "odibi":
            command = [str(self.python.with_name("odibi")), "catalog", "state", "odibi.yaml"]
        done = subprocess.run(command, cwd=project, env=_ENVIRONMENT, check=False, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise self.failed(f"{Path(command[0]).name} ended with exit code {done.returncode}: {last}")
        return done.stdout


class Lab:
    """A folder of projects, and the drivers at work in it; leaving it ends them.

    Attributes:
        odibi: the peer; None if peers are left out.
    """

    def __init__(self, options: Options, root: Path, leaving: ExitStack) -> None:
        self.say = options.say
        self.ours = Contender("ours", "odi_assets", Path(sys.executable), FOLDER / "ours.yaml")
        self.odibi: Contender | None = None
        self._root = root
        self._leaving = leaving
        self._projects = 0
        if options.peers:
            environment = PeerEnvironment("odibi")
            environment.make(options.say)
            python = environment.program("python")
            self.odibi = Contender(environment.title, "odibi", python, FOLDER / "odibi.yaml")

    @property
    def against(self) -> str:
        """How rows name the peer."""
        return self.odibi.title if self.odibi else "odibi, left out"

    @property
    def contenders(self) -> list[Contender]:
        return [self.ours, self.odibi] if self.odibi else [self.ours]

    def project(self, contender: Contender) -> Path:
        """A new project's folder; Odibi's own command has made its tables, as its first run would."""
        self._projects += 1
        folder = self._root / f"{contender.library}{self._projects}"
        folder.mkdir()
        shutil.copy(contender.project, folder / "odibi.yaml")
        if contender is self.odibi:
            contender.show_state(folder)
        return folder

    def driver(self, contender: Contender, project: Path, kind: str = "catalog") -> Driver:
        """A driver that has opened the project's state of a kind: ``catalog`` (Delta tables) or ``local`` (JSON)."""
        return self.drivers(contender, project, 1, kind)[0]

    def drivers(self, contender: Contender, project: Path, count: int, kind: str = "catalog") -> list[Driver]:
        """Several of them, started at once."""
        started = [Driver(contender, project, self._root / "log") for _ in range(count)]
        for driver in started:
            self._leaving.callback(driver.close)
            driver.send("open", kind=kind, folder=str(project / "lake" / "system"))
        for driver in started:
            driver.answer()
        return started


@contextmanager
def lab(options: Options) -> Iterator[Lab]:
    """A lab in a folder that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="odi-benchmark-", ignore_cleanup_errors=True) as root, ExitStack() as stack:
        yield Lab(options, Path(root), stack)


def counted(name: str, ours: int, peer: int | None, against: str, bar: str, holds: bool) -> Row:
    """A row of a count, which says nothing of a ratio."""
    return Row(name, ours, peer, against, None, bar, holds)
