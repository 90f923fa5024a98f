"""How the rows of a source are read, as far as a mark depends on it.

A mark of a cursor column says that the rows up to a value are loaded. That holds as long as a row has the same cursor
as before; and where rows that were read are read again and compared, as long as a row looks the same as before. What
decides this is kept beside the mark, in words of the project file, so that an edit is noticed and named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

Reading = Mapping[str, Any]
"""Parts by name; of two readings, those are compared that both have.

``date_format``: how the text of the cursor is understood. ``ties``: whether the rows at the mark are remembered.
``cursor``: settings that the cursor's values depend on. ``rows``: settings that any value depends on; there where rows
are compared that were read before. ``left_out``: the increment's settings that say which rows, or files, are never
read; they are not compared, but an adoption asks what the former definition would still read.
"""

Settings = Mapping[str, str | None]
"""By name, as the project file has it; None where it is not set."""

LEFT_OUT = ("on_null", "on_change")
"""The settings of ``left_out``."""

WHOLE_NUMBER = "a whole number"
_WHOLE_NUMBERS = frozenset({"TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"})
_OF_TYPES: Mapping[str, frozenset[str]] = {
    "dateformat": frozenset({"DATE"}),
    "timestampformat": frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"}),
    "timestampntzformat": frozenset({"TIMESTAMP_NTZ", "TIMESTAMP WITHOUT TIME ZONE"}),
    "timezone": frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"}),
    "emptyvalue": frozenset({"STRING"}),
}
"""Options by which values of some types alone are read."""

_OF_NO_VALUE = frozenset(
    {"mergeschema", "columnnameofcorruptrecord", "samplingratio", "maxcolumns", "maxcharspercolumn"}
    | {"fetchsize", "querytimeout", "numpartitions", "batchsize", "pushdownpredicate", "pushdownaggregate"}
)
"""Options that change no value: whether a row is read, or how fast."""

_SHOWN = frozenset(
    {"header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "nullvalue", "emptyvalue", "nanvalue"}
    | {"multiline", "dateformat", "timestampformat", "timestampntzformat", "timezone", "locale", "linesep", "mode"}
)
"""Options whose values are no secrets. Of others, a digest is kept."""

_SECRET = re.compile("pass|secret|token|key|credential|user|sas|cert")
"""Names of options of which nothing is kept: values do not depend on who asks, and a digest of a password can be
guessed."""

_SAME_AS_UNSET = {
    **{"sep": ",", "encoding": "utf-8", "header": "false", "multiline": "false", "quote": '"', "nullvalue": ""},
    **{"ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false", "inferschema": "false"},
    **{"timezone": "utc", "mode": "failfast"},
}
"""Values of options, in small letters, that mean the same as leaving the option out."""

_OTHER_NAMES = {"delimiter": "sep", "charset": "encoding"}


def options_of(options: Mapping[str, str], kind: str | None = None) -> dict[str, str | None]:
    """The reader options that values depend on: of the type ``kind`` of Spark's DDL, or any if that is None."""
    settings: dict[str, str | None] = {}
    for name, value in sorted(options.items()):
        lower = _OTHER_NAMES.get(name.lower(), name.lower())
        if value.lower() == _SAME_AS_UNSET.get(lower) or _SECRET.search(lower):
            continue
        types = _OF_TYPES.get(lower)
        if lower in _OF_NO_VALUE or (types is not None and kind is not None and kind.partition("(")[0] not in types):
            continue
        value = value.lower() if value.lower() in ("true", "false") else value
        shown = value if lower in _SHOWN else digest_of(value)
        settings[f"read.options.{lower}"] = shown
    return settings


def digest_of(value: str) -> str:
    """What is kept of the value of an option that may be a secret."""
    return f"#{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def type_of(name: str, types: Mapping[str, str]) -> str | None:
    """The type of a column in Spark's DDL, whole numbers as one; None if it is not named."""
    named_type = next((kind for column, kind in types.items() if column.casefold() == name.casefold()), None)
    return WHOLE_NUMBER if named_type in _WHOLE_NUMBERS else named_type


def same_cursor(then: Reading | None, now: Reading | None) -> bool:
    """Whether text of the cursor is understood in the same way."""
    if then is None or now is None:
        return True
    return bool(then.get("date_format") == now.get("date_format"))


def changes(then: Reading | None, now: Reading | None) -> list[str]:
    """What changed between two readings, each in words; nothing where one of them is not known."""
    return [] if then is None or now is None else list(_changes(then, now))


def _changes(then: Reading, now: Reading) -> Iterator[str]:
    if not same_cursor(then, now):
        before, after = then.get("date_format"), now.get("date_format")
        yield f"`incremental.date_format` {_was(before)} and {_is(after)} now"
    if now.get("ties") and not then.get("ties", True):
        yield (
            "rows tied with the HWM are to be read (`boundary: closed` without `write.keys`), and which of them are "
            "loaded was not kept"
        )
    named: set[str] = set()
    for part in ("cursor", "rows"):
        if part in then and part in now:
            differing = {*then[part].items()} ^ {*now[part].items()}
            names = {name for name, _ in differing if not _is_new_type(name, then[part], now[part])} - named
            named |= names
            yield from (_changed(name, then[part].get(name), now[part].get(name)) for name in sorted(names))


def _is_new_type(name: str, then: Settings, now: Settings) -> bool:
    """Whether a type is named that was left to the files before, or the other way round: they may say the same."""
    return name.startswith("read.schema") and not (name in then and name in now)


def _changed(name: str, before: str | None, after: str | None) -> str:
    if (before or after or "").startswith("#"):
        # What it is may be a secret.
        return f"`{name}` is another one now" if before and after else f"`{name}` {'is' if after else 'was'} set"
    return f"`{name}` {_was(before)} and {_is(after)} now"


def _was(value: str | None) -> str:
    return "was not set" if value is None else f"was {value!r}"


def _is(value: str | None) -> str:
    return "is not set" if value is None else f"is {value!r}"
