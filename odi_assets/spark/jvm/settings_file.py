"""Settings of Spark in a file: everybody on a machine may read a command line, and settings may be secrets."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from odi_assets.spark.jvm.scripts_home import SCRATCH

SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""PySpark's variable with arguments of ``spark-submit``."""
SETTINGS_OPTION = "--properties-file"
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_ESCAPED = re.compile(r"[\\\s=:#!]")


@contextmanager
def settings_file(conf: Mapping[str, str], folder: Path, before: str = "") -> Iterator[tuple[Path, tuple[int, ...]]]:
    """A file with the settings of ``conf``, and the descriptors that a process has to inherit to read it.

    Settings may be secrets. Where the system can open a descriptor by name (Linux), the file has no other name and goes
    with its last reader; elsewhere it lies in ``folder``.

    Args:
        before: what the file begins with, as Java's properties.
    """
    text = before + "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
    names = Path("/proc/self/fd")
    if names.is_dir():
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(text.encode())
            file.flush()
            yield names / str(file.fileno()), (file.fileno(),)
    else:
        path = folder / "settings.properties"
        path.write_text(text, encoding="utf-8")
        yield path, ()


@contextmanager
def settings_as_argument(conf: Mapping[str, str]) -> Iterator[tuple[int, ...]]:
    """A block in which PySpark's own way to a JVM reads ``conf`` from a file: everybody may read a command line.

    Settings of ``conf`` come before the ones of a file that the user names.

    Yields:
        The descriptors that the JVM has to inherit.
    """
    before = os.environ.get(SUBMIT_ARGUMENTS)
    words = shlex.split("pyspark-shell" if before is None else before)
    user_file, words = _without_settings_file(words)
    text = "" if user_file is None else Path(user_file).read_text(encoding="utf-8", errors="replace") + "\n"
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH) as folder,
        settings_file(conf, Path(folder), text) as (file, handed_on),
    ):
        defaults = [] if user_file is not None or not _has_defaults() else ["--load-spark-defaults"]
        os.environ[SUBMIT_ARGUMENTS] = shlex.join([SETTINGS_OPTION, str(file), *defaults, *words])
        try:
            yield handed_on
        finally:
            os.environ.pop(SUBMIT_ARGUMENTS)
            if before is not None:
                os.environ[SUBMIT_ARGUMENTS] = before


def _without_settings_file(words: list[str]) -> tuple[str | None, list[str]]:
    """The file of settings that arguments name, and the other arguments."""
    file, others = None, []
    rest = iter(words)
    for word in rest:
        option, sign, value = word.partition("=")
        if option == SETTINGS_OPTION:
            file = value if sign else next(rest, None)
        else:
            others.append(word)
    return file, others


def _has_defaults() -> bool:
    """Whether Spark's folder of configuration has settings, which a file of settings would put aside."""
    spec = find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    home = Path(os.environ.get("SPARK_HOME") or installed)
    return Path(os.environ.get("SPARK_CONF_DIR") or home / "conf", "spark-defaults.conf").exists()


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda sign: _ESCAPES.get(sign[0], f"\\{sign[0]}"), text)
