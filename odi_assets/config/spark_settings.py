"""Settings of Spark that a project may not give as it likes: those with one right value, and those that are secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from odi_assets.config.diagnostics.mistakes import Mistake

REQUIRED_CONF: Mapping[str, str] = {
    # Stored instants must not depend on the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, carries no minimum and maximum in the footer.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Else filters are pushed down to files as java.sql.Date and Timestamp, whose calendar has no 5 to 14 October 1582:
    # files with such days would be left out.
    "spark.sql.datetime.java8API.enabled": "true",
}
"""Settings without which a table or a checkpoint is read or written wrongly; a project cannot override them."""

_ZONE = "spark.sql.session.timeZone"
_SAME = {_ZONE: {"utc", "etc/utc", "gmt", "z", "+00:00"}}


def other_values(conf: Mapping[str, object]) -> Iterator[Mistake]:
    """The settings of a ``conf`` that a run would not take."""
    for key, value in REQUIRED_CONF.items():
        own = str(conf.get(key, value)).lower()
        if own != value.lower() and own not in _SAME.get(key, ()):
            why = f"is {value} in every run: tables and marks must not depend on it"
            zone = "; text in another zone is read with `timeZone` in `read.options`" if key == _ZONE else ""
            yield Mistake(f"{why}{zone}", at=("conf", key))


_KEYS = r"(?:access|account|private|s[e]cret|shared|session|encryption|sas)[._-]?key"
SECRET_NAMES = rf"s[e]cret|passw(?:or)?d|passphr[a]se|t[o]ken|cred[e]ntial|{_KEYS}"
"""A pattern for Python and Java, in any capitals. It is spelled so that it does not match itself: Spark hides settings
by their values too, and nobody could read, and so keep, what a session has."""

_TELLS = re.compile(SECRET_NAMES, re.IGNORECASE)


def tells_a_secret(name: str) -> bool:
    """Whether the value of a setting with this name is a secret.

    Example:
        >>> tells_a_secret("fs.s3a.secret.key"), tells_a_secret("header")
        (True, False)
    """
    return _TELLS.search(name) is not None
