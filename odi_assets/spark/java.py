"""Finds the Java that Spark will start. If there is none, or it is too old or too new, one message says what to
do.

``python -m odi_assets.spark.java`` checks and exits 0 or 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from odi_assets.errors import JavaError

MINIMUM_JAVA, MAXIMUM_JAVA = 17, 25
"""Spark 4.2 was run on Java 17, 21 and 25. On Java 26 it does not start: it asks for a class that the JDK has no more
(`NoClassDefFoundError: … org.apache.spark.unsafe.array.ByteArrayMethods`)."""
_NEEDED = f"Spark needs Java {MINIMUM_JAVA} to {MAXIMUM_JAVA}"

_GET_JAVA = (
    f"install Java {MINIMUM_JAVA} to {MAXIMUM_JAVA} and run the command again:\n"
    "      Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless\n"
    "      macOS            brew install openjdk@17\n"
    "      conda            conda install -c conda-forge openjdk=17\n"
    "    If it is installed already, point JAVA_HOME at it."
)


def major_version(version: str) -> int:
    """17 for ``17.0.15``; 8 for ``1.8.0_402``, as Java counted before 9."""
    parts = re.split(r"[._+-]", version)
    return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])


def require_java() -> str:
    """The version of the Java that Spark will start, as ``java -version`` reports it: ``17.0.15``, ``1.8.0_402``.

    It is ``$JAVA_HOME/bin/java`` if JAVA_HOME is set, else that on PATH.

    Raises:
        JavaError: none was found, it cannot be run or tells no version, or it is older than :data:`MINIMUM_JAVA`, or
            newer than :data:`MAXIMUM_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on PATH"
        raise JavaError(f"{_NEEDED}, and none was found: {where}.", fix=_GET_JAVA)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} cannot be run: {error}", fix=_GET_JAVA, java=java) from error
    # The JVM prints its version on stderr; options picked up from the environment may come first.
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if not match:
        raise JavaError(f"{java} does not say which version it is (exit code {done.returncode}).", fix=_GET_JAVA)
    version = match[1]
    if not MINIMUM_JAVA <= major_version(version) <= MAXIMUM_JAVA:
        raise JavaError(f"{_NEEDED}; {java} is Java {version}.", fix=_GET_JAVA, version=version)
    return version


def main() -> int:
    """Check, and print the message of :class:`JavaError` on stderr if it fails."""
    try:
        require_java()
    except JavaError as error:
        print(f"odi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
