"""Names of settings and options that tell a secret."""

from __future__ import annotations

import re

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
