"""Which tables of a database `tables` of a node names."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from odi_assets.config.captured_tables import LEFT_OUT
from odi_assets.errors import ConfigError

_log = logging.getLogger(__name__)


def named(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern names. What is a name itself names that one alone."""
    listed = list(names)
    exactly = [name for name in listed if name == pattern]
    return exactly or [name for name in listed if fnmatch.fnmatchcase(name, pattern)]


@dataclass(frozen=True)
class TablePatterns:
    """The entries of ``tables``.

    Attributes:
        wanted: those that name tables, as in ``public.*``.
        unwanted: those that leave tables out, without their ``!``.

    Example:
        >>> TablePatterns.of(["public.*", "!public.audit_*"]).kept(["public.orders", "public.audit_1"])
        ['public.orders']
    """

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]

    @classmethod
    def of(cls, entries: Sequence[str]) -> TablePatterns:
        return cls(
            tuple(entry for entry in entries if not entry.startswith(LEFT_OUT)),
            tuple(entry.removeprefix(LEFT_OUT) for entry in entries if entry.startswith(LEFT_OUT)),
        )

    def kept(self, names: Sequence[str]) -> list[str]:
        """``names`` without those that are left out."""
        gone = {name for pattern in self.unwanted for name in named(pattern, names)}
        return [name for name in names if name not in gone]

    def require(self, names: Sequence[str], known: Collection[str], label: str) -> None:
        """Look for entries that change nothing: a misspelled one would let a table in that nobody wants captured.

        Args:
            names: all tables of the database.
            known: those that are captured already; once there are some, a table that was left out may be gone.

        Raises:
            ConfigError: an entry leaves out no table, or another one all tables that it names.
        """
        for pattern in self.unwanted:
            if named(pattern, names):
                continue
            text = f"{label}: `{LEFT_OUT}{pattern}` leaves out no table: none of the database is named so"
            if not known:
                raise ConfigError(text, fix="correct `tables`, or take it out")
            _log.warning("%s", text)
        kept = set(self.kept(names))
        for pattern in self.wanted:
            matched = named(pattern, names)
            if matched and kept.isdisjoint(matched):
                raise ConfigError(
                    f"{label}: `{pattern}` of `tables` names nothing that is not left out by entries with `{LEFT_OUT}`",
                    fix="correct `tables`, or take it out",
                )
