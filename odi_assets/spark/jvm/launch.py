"""The command line of the JVM behind a classic session, and its start without Spark's own launcher and shell scripts.

Spark's launcher, a JVM of its own, works the command line out. It is asked once for each Java and PySpark; its answer
is kept beside the class-data archive. Where an answer would depend on more than that (a project's Java options, a
configuration folder of Spark's), the launcher is asked each time, or PySpark's own way is gone.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from odi_assets.spark.jvm.archive import (
    JVM_VARIABLES,
    Archive,
    cache_folder,
    find_archive,
    is_ours,
    read_facts,
    was_mapped,
)
from odi_assets.spark.jvm.java import VECTOR_MODULE, Java
from odi_assets.spark.jvm.scripts_home import SCRATCH, home_for_scripts
from odi_assets.spark.jvm.settings_file import SETTINGS_OPTION, SUBMIT_ARGUMENTS, settings_file

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OF_THE_LAUNCHER = (
    "spark.driver.memory",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
)
"""The settings that Spark's launcher itself looks at; all others are the business of ``SparkSubmit``."""
_LAUNCHER_VARIABLES = ("SPARK_", "HADOOP_CONF_DIR", "YARN_CONF_DIR", SUBMIT_ARGUMENTS)
_OWN_ARCHIVE = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive", "-XX:AOT")
_COLLECTOR = re.compile(r"['\"]?-XX:[+-]Use\w+GC\b")
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:-UsePerfData")
"""For a JVM of seconds: its optimizing compiler would cost more than it earns.

Without that compiler a JVM has room for 48 MB of compiled code. Spark fills them in ten minutes of different plans, and
the JVM then throws code out and compiles it again and again: 240 MB is what it has with the compiler.
"""
_POLL_SECONDS = 0.005
_GATEWAY, _ARCHIVE_LOG = "gateway", "archive.log"
_PLAIN_PATH = re.compile(r"[\w/.+~-]+", re.ASCII)
"""Paths that the JVM takes as they are for a log; in others, ``%p`` becomes its process id, and quotes end the path."""
_OLD_SECONDS = 86400
_SET_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of Linux's ``prctl``."""


class DirectStartUnavailable(Exception):
    """Why the JVM has to be started in PySpark's own way."""


@dataclass(frozen=True)
class LaunchCommand:
    """The command line of a JVM, in its parts.

    Attributes:
        class_path: what ``-cp`` says.
        options: what comes between it and the main class.
        arguments: what comes after the main class, ``SparkSubmit``.
        settings: of Spark. They reach it in a file: everybody on the machine may read a command line.
    """

    java: Java
    class_path: str
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def line(self, *more: str, settings_file: Path | None = None) -> list[str]:
        """The command line. Options of ``more`` come before the project's, and so win.

        Args:
            settings_file: where :attr:`settings` are; without one, Spark gets none.
        """
        begin = [str(self.java.executable), "-cp", self.class_path, *more, *self.options, _SUBMIT]
        return [*begin, *([] if settings_file is None else [SETTINGS_OPTION, str(settings_file)]), *self.arguments]


def spark_home() -> Path:
    """The folder of the installed pyspark, where a JVM can be started from it.

    Raises:
        DirectStartUnavailable: the environment names another Spark, or a folder of configuration.
    """
    if os.name != "posix":
        raise DirectStartUnavailable("this is Windows")
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DirectStartUnavailable("there is no installed pyspark here")
    home = Path(spec.origin).parent
    named = os.environ.get("SPARK_HOME")
    if named and Path(named).resolve() != home.resolve():
        raise DirectStartUnavailable(f"SPARK_HOME names another Spark: {named}")
    if os.environ.get("SPARK_CONF_DIR") or (home / "conf").exists():
        raise DirectStartUnavailable("Spark has a folder of configuration (SPARK_CONF_DIR)")
    return home


def launch_command(java: Java, conf: Mapping[str, str]) -> LaunchCommand:
    """The command line that Spark's launcher gives for ``conf``.

    Raises:
        DirectStartUnavailable: the JVM has to be started in PySpark's own way.
    """
    home = spark_home()
    arguments = tuple(shlex.split(os.environ.get(SUBMIT_ARGUMENTS, "pyspark-shell")))
    if any(word.partition("=")[0] == SETTINGS_OPTION for word in arguments):
        raise DirectStartUnavailable(f"{SUBMIT_ARGUMENTS} names a file of settings")
    asked = {key: conf[key] for key in _OF_THE_LAUNCHER if key in conf}
    answer = _kept_answer(java, home, asked, arguments)
    if not java.has_vector:
        answer = [part for part in answer if part != f"--add-modules={VECTOR_MODULE}"]
    class_path, options = answer[answer.index("-cp") + 1], answer[answer.index("-cp") + 2 : answer.index(_SUBMIT)]
    return LaunchCommand(java, class_path, tuple(options), arguments, dict(conf))


def _kept_answer(java: Java, home: Path, asked: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """The launcher's answer, from the cache if it was asked before. What may be a secret is not kept."""
    variables = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith(_LAUNCHER_VARIABLES) and value
    )
    cache = cache_folder()
    # Options are free text, and may hold passwords.
    is_plain = not any(word in "".join([*asked, *dict(variables)]) for word in ("Options", "OPTS", "ARGS"))
    if cache.path is None or cache.reason is not None or not is_plain:
        return _launchers_answer(java, home, asked, arguments)
    facts = [str(java.executable), java.build, str(home), version("pyspark"), sorted(asked.items()), variables]
    file = cache.path / f"launch-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}.json"
    kept = _read_kept(file)
    if kept is not None:
        return kept
    answer = _launchers_answer(java, home, asked, arguments)
    _write_aside(file, json.dumps({"answer": answer, "sum": _sum_of(answer)}))
    return answer


def _read_kept(file: Path) -> list[str] | None:
    """An answer of the launcher; None if it was not asked before, or the file is not as we wrote it."""
    try:
        kept = read_facts(file)
        answer: list[str] = kept["answer"]
        return answer if is_ours(file) and kept["sum"] == _sum_of(answer) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sum_of(answer: list[str]) -> str:
    return hashlib.sha256(json.dumps(answer).encode()).hexdigest()


def _launchers_answer(java: Java, home: Path, asked: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    jars = home / "jars"
    launcher = next(iter(sorted(jars.glob("spark-launcher_*.jar"))), None)
    if launcher is None:
        raise DirectStartUnavailable(f"there is no JAR of Spark's launcher in {jars}")
    scala = launcher.name.removeprefix("spark-launcher_").partition("-")[0]
    settings = [part for key, value in asked.items() for part in ("--conf", f"{key}={value}")]
    command = [str(java.executable), "-Xmx128m", *_short_lived(()), "-cp", str(launcher)]
    done = subprocess.run(
        [*command, "org.apache.spark.launcher.Main", _SUBMIT, *settings, *arguments],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala, "JAVA_HOME": str(java.home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    answer = [part for part in done.stdout.decode("utf-8", "replace").split("\0") if part.strip()]
    if done.returncode or _SUBMIT not in answer or "-cp" not in answer:
        raise DirectStartUnavailable(f"Spark's launcher gave no command line (exit code {done.returncode})")
    # It may begin with `env LD_LIBRARY_PATH=…`, where the project names a library path.
    if answer[0] == "env":
        raise DirectStartUnavailable("the project sets a library path")
    return answer


def _write_aside(file: Path, text: str) -> None:
    """Write a file of the cache under another name first. A cache that cannot be written is none."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".", delete=False, encoding="utf-8") as aside:
            aside.write(text)
        Path(aside.name).replace(file)
    except OSError:
        return


@dataclass
class JvmProcess:
    """A JVM that is starting, or has started.

    Attributes:
        archive: the class-data archive that it was started with.
        archive_refused: whether the JVM took none of the archive's classes; known once it is connected.
        log: where it says so; None where its folder has a name that the JVM would not take as it is.
    """

    process: subprocess.Popen[bytes]
    archive: Archive
    archive_refused: bool = False
    log: Path | None = None
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def connection(self) -> tuple[int, str] | None:
        """Wait for the gateway; its port and its secret. None if the JVM ended before."""
        assert self._scratch is not None
        scratch = Path(self._scratch.name)
        file = scratch / _GATEWAY
        while not file.exists():
            if self.process.poll() is not None:
                self._scratch.cleanup()
                return None
            time.sleep(_POLL_SECONDS)
        with file.open("rb") as stream:
            port, size = struct.unpack("!ii", stream.read(8))
            secret = stream.read(size).decode("utf-8")
        self.archive_refused = self.archive.is_usable and self.log is not None and not was_mapped(self.log)
        self._scratch.cleanup()
        return port, secret

    @property
    def crashed(self) -> bool:
        """Whether a signal ended it, as a damaged archive may."""
        return (self.process.poll() or 0) < 0


def launch(command: LaunchCommand, archive: Archive, stderr: int | IO[bytes], *more: str) -> JvmProcess:
    """Start a JVM and return at once. It ends when its stdin closes, so with this process.

    Args:
        more: options that come before the project's.
    """
    remove_old_scratch()
    scratch = tempfile.TemporaryDirectory(prefix=SCRATCH)
    folder, home = Path(scratch.name), spark_home()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_ENV_LOADED": "1",
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _GATEWAY),
        "JAVA_HOME": str(home_for_scripts(command.java)),
    }
    log = folder / _ARCHIVE_LOG if _PLAIN_PATH.fullmatch(scratch.name) else None
    with settings_file(command.settings, folder) as (settings, handed_on):
        process = subprocess.Popen(
            command.line(*archive.options(log), *more, settings_file=settings),
            stdin=subprocess.PIPE,
            # Where both are one, what this process writes to can be closed while the JVM ends.
            stdout=stderr if _one_output() else None,
            stderr=stderr,
            env=environment,
            pass_fds=handed_on,
            preexec_fn=_begin_child(),
        )
    return JvmProcess(process, archive, log=log, _scratch=scratch)


def remove_old_scratch() -> None:
    """Remove the folders of JVMs whose process was killed before it could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with suppress(OSError):
            status = folder.stat(follow_symlinks=False)
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _OLD_SECONDS:
                shutil.rmtree(folder)


def options_of_size(command: LaunchCommand, *, is_small: bool) -> list[str]:
    """Options for a JVM that is to read little, unless the project has chosen its own."""
    if not is_small:
        return []
    return _short_lived(command.options)


def _short_lived(options: Iterable[str]) -> list[str]:
    return [*_SHORT_LIVED, *([] if chooses_collector(options) else ["-XX:+UseSerialGC"])]


def chooses_collector(options: Iterable[str]) -> bool:
    """Whether a JVM with ``options`` is given a garbage collector, by them or by the environment. It takes only one."""
    of_environment = (option for name in JVM_VARIABLES for option in os.environ.get(name, "").split())
    return any(_COLLECTOR.match(option) for option in (*options, *of_environment))


def archive_of(command: LaunchCommand) -> Archive:
    """The archive for a JVM, unless the project has one of its own."""
    own = next((option for option in command.options if any(word in option for word in _OWN_ARCHIVE)), None)
    if own is not None:
        return Archive(reason=f"the project sets {own.partition('=')[0]}")
    return find_archive(command.java, command.class_path, command.options)


def _one_output() -> bool:
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:
        # One of them is closed.
        return False


def _begin_child() -> Callable[[], None]:
    """What a JVM's process does first. Ctrl-C is for this process, which ends the JVM.

    A JVM reads its stdin only once it runs. On Linux the system ends it when the thread that started it has gone, so
    this is asked for in the main thread only.
    """
    is_main = threading.current_thread() is threading.main_thread()
    control = ctypes.CDLL(None).prctl if is_main and sys.platform == "linux" else None
    parent = os.getpid()

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if control is not None:
            control(_SET_DEATH_SIGNAL, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return begin
