"""Dagster as it is deployed, on PostgreSQL: each service of ``deploy/compose.yaml`` is a process in its own folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from benchmarks.dagster.server import REPOSITORY, Server, await_answer, free_port

DEPLOY = REPOSITORY / "deploy"
MOST_RUNS = 2
_STOP_SECONDS = 30


def command_of(service: str) -> list[str]:
    """What ``deploy/compose.yaml`` starts for a service."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    found: list[str] = services[service]["command"]
    return found


@dataclass
class Deployment:
    """Processes of one instance. ``home`` has the production ``dagster.yaml``.

    Attributes:
        projects: by the name of a code location, its project file.
        database: the variables of Dagster's PostgreSQL.
        most_jvms: the most Javas of its runs that were seen at once.
    """

    folder: Path
    projects: Mapping[str, Path]
    database: Mapping[str, str]
    most_jvms: int = 0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The home of the instance."""
        return self.folder / "home"

    @property
    def services(self) -> list[str]:
        """What runs: the code servers by their locations, ``daemon`` and ``webserver``."""
        return [*self.projects, "daemon", "webserver"]

    @property
    def server(self) -> Server:
        """The UI's API."""
        return Server(f"http://127.0.0.1:{self._port('webserver')}")

    def variables(self, service: str) -> dict[str, str]:
        """The environment of a service."""
        project = self.projects.get(service)
        return {
            **{name: value for name, value in os.environ.items() if name not in ("ODI_ENV", "ODI_PROJECT")},
            **self.database,
            **({"ODI_PROJECT": str(project)} if project is not None else {}),
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }

    def prepare(self) -> None:
        """Make the home, and its tables as the service ``migrate`` does."""
        self.home.mkdir()
        settings = (DEPLOY / "dagster.yaml").read_text(encoding="utf-8")
        settings = re.sub(r"max_concurrent_runs: \d+", f"max_concurrent_runs: {MOST_RUNS}", settings)
        (self.home / "dagster.yaml").write_text(settings, encoding="utf-8")
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": self._port(name), "location_name": name}}
            for name in self.projects
        ]
        (self.home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": servers}), encoding="utf-8")
        subprocess.run(
            self._command("migrate"), check=True, env=self.variables("migrate"), cwd=self.folder, capture_output=True
        )

    def start(self, service: str) -> None:
        """Start a service in the folder of its name, and wait until it answers."""
        place = self.folder / f"at-{service}"
        place.mkdir(exist_ok=True)
        with (self.folder / f"{service}.log").open("ab") as log:
            self._processes[service] = subprocess.Popen(
                self._command(service), cwd=place, env=self.variables(service), stdout=log, stderr=subprocess.STDOUT
            )
        if service == "webserver":
            await_answer(f"{self.server.address}/server_info", self._processes[service], self.folder / "webserver.log")
        elif service in self.projects:
            self._await_code(service)

    def replace(self, service: str) -> None:
        """SIGTERM, and once the process is gone, a new one. Runs that a code server started go on."""
        self.stop(service)
        self.start(service)

    def stop(self, service: str) -> None:
        """SIGTERM, and SIGKILL after the unit's time: a code server waits for its runs, which go on without it."""
        process = self._processes.pop(service)
        process.terminate()
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def strays(self) -> list[str]:
        """What Dagster's processes wrote into the folders that they were started in."""
        return sorted(str(found) for place in self.folder.glob("at-*") for found in place.iterdir())

    def end(self) -> None:
        """End the services and all that they started."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for one in self._own():
            one.kill()

    def watch(self, over: threading.Event) -> None:
        """Count Javas until ``over`` is set."""
        while not over.wait(0.5):
            self.most_jvms = max(self.most_jvms, sum(_is_java(one) for one in self._own()))

    def _own(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get("DAGSTER_HOME") == str(self.home):
                    yield process
            except psutil.Error:
                continue

    def _await_code(self, service: str) -> None:
        asked = [*self._program("dagster"), "api", "grpc-health-check", "-p", str(self._port(service))]
        until = time.monotonic() + 240
        while subprocess.run(asked, capture_output=True, env=self.variables(service), check=False).returncode:
            if self._processes[service].poll() is not None or time.monotonic() > until:
                log = (self.folder / f"{service}.log").read_text(encoding="utf-8")
                raise RuntimeError(f"the code server {service} did not start:\n{log[-4000:]}")

    def _command(self, service: str) -> list[str]:
        program, *arguments = command_of("code" if service in self.projects else service)
        here = {
            "0.0.0.0": "127.0.0.1",
            "3000": str(self._port(service)),
            "4000": str(self._port(service)),
            "/dagster/workspace.yaml": str(self.home / "workspace.yaml"),
        }
        return [*self._program(program), *(here.get(one, one) for one in arguments)]

    def _program(self, name: str) -> list[str]:
        return [str(Path(sys.executable).parent / name)]

    def _port(self, service: str) -> int:
        return self._ports.setdefault(service, free_port())


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.Error:
        return False


@contextmanager
def running_deployment(folder: Path, projects: Mapping[str, Path], database: Mapping[str, str]) -> Iterator[Deployment]:
    """A deployment whose services all run; they end with it, their runs too."""
    deployment = Deployment(folder, projects, database)
    deployment.prepare()
    over = threading.Event()
    watcher = threading.Thread(target=deployment.watch, args=(over,), daemon=True)
    try:
        for service in deployment.services:
            deployment.start(service)
        watcher.start()
        yield deployment
    finally:
        over.set()
        deployment.end()
