"""What Spark hides in plans, events, its UI and its logs: the values of options and settings whose names tell a secret.

Spark's own patterns leave out keys of accounts and private keys, and the options in what a Spark Connect server logs.
The patterns of the project and of the machine's ``spark-defaults.conf`` stay: ours are added to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.config.spark_settings import SECRET_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = "spark.redaction.regex"
"""Of settings and options, by their names or values. It belongs to the JVM: it is set where one is started."""
OPTIONS, TEXTS = "spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex"
"""Of options in plans, and of pieces of texts; both belong to a session."""

_SPARKS = "(?i:secret|password|token|access[.]?key)"
"""What Spark hides of settings where nobody says otherwise."""
_OURS = {
    SETTINGS: rf"(?i:{SECRET_NAMES})",
    OPTIONS: rf"(?i:{SECRET_NAMES}|url)",
    # Spark Connect logs plans as protobuf writes them, an entry of a map in two lines. A stream's plan has the options
    # as Scala writes a map: a value ends where another option begins, or the line: it may hold any character.
    TEXTS: rf'(?i:key:\s*"[^"\n]*(?:{SECRET_NAMES}|url)[^"\n]*"\s*value:\s*"(?:[^"\\]++|\\.)*+"?'
    rf"|(?<=[(, ])[\w.-]*(?:{SECRET_NAMES})[\w.-]* -> (?:(?!, [\w.-]+ -> )[^\n])*+(?:\n[\w+/=-]+(?=\n|$))*)",
}


def settings_pattern(conf: Mapping[str, str]) -> dict[str, str]:
    """What a JVM is started with, beside ``conf``, so that its settings are hidden."""
    own = conf.get(SETTINGS) or _of_the_machine(SETTINGS) or _SPARKS
    return {SETTINGS: _joined(own, _OURS[SETTINGS])}


def hide_secrets(spark: SparkSession) -> None:
    """Have the session hide secrets, in addition to what it hides already."""
    for name in (OPTIONS, TEXTS):
        own = spark.conf.get(name, None)
        pattern = _joined(own, _OURS[name])
        if own != pattern:
            spark.conf.set(name, pattern)


def _joined(own: str | None, ours: str) -> str:
    if not own:
        return ours
    return own if ours in own else f"(?:{own})|{ours}"


def _of_the_machine(name: str) -> str | None:
    """A setting in the file that Spark reads when it starts; what a session sets goes before it."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    file = Path(folder or "") / "spark-defaults.conf"
    if folder is None or not file.is_file():
        return None
    lines = (re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines())
    return next((parts[1] for parts in lines if len(parts) == 2 and parts[0] == name), None)
