"""Statements in a binary log that has rows: which captured tables they empty, make again or change without a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PLAIN = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_NAME = rf"{_PLAIN}(?:\s*\.\s*{_PLAIN})?"
_LISTED = rf"({_NAME}(?:\s*,\s*{_NAME})*)"
_COMMENT = re.compile(
    r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`)|/\*M?!\d*|\*/|/\*.*?\*/|--\s[^\n]*|\#[^\n]*", re.DOTALL
)
"""Comments, and what is quoted, where there are none; what stands in `/*! … */` is executed."""
_SETTINGS = re.compile(r"\s*SET\s+STATEMENT\b.*?\bFOR\b", re.IGNORECASE | re.DOTALL)


def _begins(pattern: str) -> re.Pattern[str]:
    return re.compile(r"\s*" + pattern.replace(" ", r"\s+"), re.IGNORECASE)


_TRUNCATE = _begins(rf"TRUNCATE (?:TABLE )?{_LISTED}")
_DROP = _begins(rf"DROP TABLES? (?:IF EXISTS )?{_LISTED}")
_DROP_DATABASE = _begins(rf"DROP (?:DATABASE|SCHEMA) (?:IF EXISTS )?({_PLAIN})")
_REPLACE = _begins(rf"CREATE OR REPLACE TABLE ({_NAME})")
_ALTER = _begins(rf"ALTER (?:ONLINE )?(?:IGNORE )?TABLE (?:IF EXISTS )?({_NAME})")
_RENAME = _begins(r"RENAME TABLES?\b")
_CHANGE = _begins(r"(?:INSERT|REPLACE|UPDATE|DELETE|LOAD|WITH)\b")
_OF_ALL_ROWS = re.compile(
    r"\b(?:CHANGE|CONSTRAINT|CONVERT|FOREIGN|IGNORE|MODIFY|PARTITION|PRIMARY|REFERENCES|RENAME|TABLESPACE|TRUNCATE)\b",
    re.IGNORECASE,
)
"""Words of an `ALTER TABLE` after which rows may be gone, or have other keys."""
_OF_OTHERS = re.compile(r"\b(?:RENAME|EXCHANGE)\b", re.IGNORECASE)
_INDEX_ALONE = _begins(
    rf"ALTER (?:ONLINE )?TABLE {_NAME} (?:(?:DISABLE|ENABLE) KEYS\b|(?:ADD|DROP) "
    r"(?:UNIQUE |FULLTEXT |SPATIAL )?(?:INDEX|KEY)\b[^(),]*(?:\([^()]*\)[^(),]*)?$)"
)


@dataclass(frozen=True)
class Statement:
    """A statement, as far as captured tables are concerned.

    Attributes:
        verb: its first word, for messages.
        emptied: the tables without rows of before; what they have then is in the log, or read again.
        restarted: the tables of which only a new snapshot knows the rows.
        changed: the statement changed rows, and stands in the log in the place of them.
    """

    verb: str
    emptied: tuple[str, ...]
    restarted: tuple[str, ...]
    changed: bool = False


def statement_of(text: str, database: str, tables: Iterable[str]) -> Statement | None:
    """What a statement means for some tables; None if it means nothing.

    Args:
        database: where names without one are.
        tables: with their databases.
    """
    text = _COMMENT.sub(lambda comment: comment[1] or " ", text)
    while match := _SETTINGS.match(text):
        text = text[match.end() :]
    words = text.split(None, 1)
    verb = words[0].upper() if words else ""
    if match := _TRUNCATE.match(text):
        emptied = _named(match[1], database, tables)
        return Statement(verb, emptied, ()) if emptied else None
    if match := _DROP.match(text) or _REPLACE.match(text):
        named = _named(match[1], database, tables)
    elif match := _DROP_DATABASE.match(text):
        dropped = _unquoted(match[1]).lower()
        named = tuple(table for table in tables if table.partition(".")[0].lower() == dropped)
    elif _RENAME.match(text) or _CHANGE.match(text):
        named = _mentioned(text, tables)
    elif (match := _ALTER.match(text)) and not _INDEX_ALONE.match(text):
        named = _named(match[1], database, tables)
        if _OF_OTHERS.search(text):
            named = tuple({*named, *_mentioned(text, tables)})
        if named and not _OF_ALL_ROWS.search(text):
            return Statement(verb, (), named)
    else:
        return None
    return Statement(verb, named, named, bool(_CHANGE.match(text))) if named else None


def _named(listed: str, database: str, tables: Iterable[str]) -> tuple[str, ...]:
    """The tables of a list of names."""
    names = set()
    for match in re.finditer(_NAME, listed):
        parts = [_unquoted(part) for part in re.findall(_PLAIN, match[0])]
        names.add(".".join(parts if len(parts) == 2 else [database, *parts]).lower())
    return tuple(table for table in tables if table.lower() in names)


def _mentioned(text: str, tables: Iterable[str]) -> tuple[str, ...]:
    """The tables whose names stand in a text, whatever they mean there."""
    mentioned = []
    for table in tables:
        name = re.escape(table.partition(".")[2].replace("`", "``"))
        if re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE):
            mentioned.append(table)
    return tuple(mentioned)


def _unquoted(name: str) -> str:
    mark = name[0]
    return name[1:-1].replace(mark * 2, mark) if mark in '`"' else name
