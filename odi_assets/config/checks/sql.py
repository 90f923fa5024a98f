"""SQL that is not there or that Spark cannot run, as far as that is beyond doubt without Spark.

To refuse a right query is worse than to let a wrong one through, which Spark itself will refuse. sqlglot does not know
all of Spark's syntax. So only a query whose every word and sign both take in the same way is judged, and of the errors
that sqlglot finds, only errors of grammar count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, pairwise
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from odi_assets.config.diagnostics.mistakes import Mistake, Path, about, closest
from odi_assets.config.models import TransformConfig
from odi_assets.util.lazy import sqlglot

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

Tokens = list[tuple[int, str]]
"""Where each token starts, and as it is written."""

_NOT_SQL = "is no Spark SQL query"
_CANNOT_PARSE = "Spark cannot parse the query"

_CONTINUED_COMMENT = re.compile(r"--[^\n]*\\\n")
"""A comment that goes on in the next line, after a backslash: sqlglot's tokenizer does not know it."""

_JUDGED = frozenset(
    {
        *("L_PAREN", "R_PAREN", "L_BRACKET", "R_BRACKET", "COMMA", "DOT", "STAR", "PLUS", "DASH", "SLASH"),
        *("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "DPIPE", "STRING", "NUMBER", "VAR", "IDENTIFIER"),
        *("SELECT", "DISTINCT", "ALIAS", "FROM", "WHERE", "GROUP_BY", "HAVING", "ORDER_BY", "LIMIT", "WITH", "UNION"),
        *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "SEMI", "ANTI", "ON", "USING"),
        *("AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END"),
        *("TRUE", "FALSE", "ASC", "OVER", "PARTITION_BY"),
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "TEXT", "DATE"),
        *("TIMESTAMPTZ",),
    }
)  # fmt: skip
"""Signs and words of sqlglot's tokenizer that its parser takes as Spark does. A query with any other is not judged."""

_WORDS_OF_SPARK = frozenset(
    {
        *("AGGREGATE", "APPROX", "AT", "BERNOULLI", "BOTH", "BUCKET", "CLUSTER", "COLLATION", "CURRENT", "DELAY"),
        *("DISTANCE", "DISTRIBUTE", "EXACT", "EXCLUDE", "EXTEND", "FOLLOWING", "FOREIGN", "GROUPING", "IDENTIFIER"),
        *("IGNORE", "INCREMENT", "LAST", "LEADING", "LOCAL", "MATERIALIZED", "MEASURE", "NEAREST", "NULLS", "OF"),
        *("OPTIONS", "OUT", "PLACING", "PRECEDING", "PRIMARY", "QUERY", "RECURSION", "REPEATABLE", "RESPECT", "SETS"),
        *("SIMILARITY", "SORT", "STRATIFY", "STREAM", "SYSTEM", "SYSTEM_TIME", "SYSTEM_VERSION", "TO", "TRAILING"),
        *("UNBOUNDED", "VERSION", "WATERMARK", "WITHIN", "WITHOUT", "ZONE"),
    }
)  # fmt: skip
"""Words with a meaning in Spark's grammar that sqlglot's tokenizer takes for names. A query with one is not judged."""

_NAMES_TOO = frozenset(
    {
        *("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "SEMI", "ANTI", "USING", "WITH", "IN", "IS", "NULL"),
        *("LIKE", "OVER"),
        *("BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "TRUE", "FALSE", "ASC"),
    }
)  # fmt: skip
"""Words that somebody may give to a column, as Spark allows: it has no reserved words. That nobody does so with the
others, ``SELECT`` and ``WHERE`` for example, is taken for granted."""

_MOST_NAMES = 6
"""Such words of a query that is judged."""

_PLAIN_CALLS = frozenset({"CAST", "TRY_CAST"})
"""Functions with a syntax of their own that sqlglot's parser takes as Spark does."""

_GRAMMAR_ERROR = re.compile(r"Invalid expression / Unexpected token|Expecting |Required keyword: .*\.(?:core|query)\.")

QUERY_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
OTHER_QUERIES = frozenset({"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "LIST", "CALL", "EXECUTE", "BEGIN"})
COMMANDS = frozenset(
    {
        "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "DROP", "ALTER", "TRUNCATE", "REPLACE", "USE", "SET", "RESET",
        "CACHE", "UNCACHE", "REFRESH", "ANALYZE", "MSCK", "REPAIR", "LOAD", "GRANT", "REVOKE", "ADD", "COMMENT",
        "DECLARE", "OPTIMIZE", "VACUUM", "CLEAR",
    }
)  # fmt: skip
_OPENING = {")": "(", "]": "["}


def mistakes_of(transform: TransformConfig, at: Path, root: FilePath) -> Iterator[Mistake]:
    """Find what is wrong with the SQL of a transform.

    Args:
        transform: what holds the query, or names the file that does.
        at: where it is in the project file.
        root: the folder that files are looked for from.
    """
    mistake_by_key = {
        "sql": find_mistake(transform.sql) if transform.sql is not None else None,
        "sql_file": _mistake_of_file(transform.sql_file, root) if transform.sql_file is not None else None,
    }
    yield from (replace(mistake, at=(*at, key)) for key, mistake in mistake_by_key.items() if mistake is not None)


def _mistake_of_file(name: str, root: FilePath) -> Mistake | None:
    file = root / name
    if not file.is_file():
        meant = closest(file.name, [other.name for other in file.parent.glob("*.sql")])
        what = "is a folder" if file.is_dir() else "does not exist"
        suggestion = name.removesuffix(file.name) + meant if meant else None
        return about(name, f"{what}; files are looked for from the project file's folder", suggestion=suggestion)
    try:
        return find_mistake(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return Mistake("the file is not UTF-8 text")
    except OSError as error:
        return Mistake(f"the file cannot be read: {error.strerror}")


@lru_cache(maxsize=1024)
def find_mistake(sql: str) -> Mistake | None:
    """Return what is wrong with a query: its brackets, commas, quotes, or the first error of its grammar."""
    if _CONTINUED_COMMENT.search(sql):
        return None
    try:
        tokens = sqlglot.dialects.Spark().tokenize(sql)
    except sqlglot.TokenError as error:
        return _unclosed(sql, str(error.__cause__))
    written = [(token.start, sql[token.start : token.end + 1]) for token in tokens]
    while written and written[-1][1] == ";":
        written.pop()
    if not written:
        return _wrong("holds no query")
    mistake = _first_word(sql, written) or _balance(sql, written) or _several(sql, written) or _commas(sql, written)
    return mistake or _syntax_error(sql, tokens[: len(written)])


def _unclosed(sql: str, reason: str) -> Mistake | None:
    match = re.match(r"Missing (?P<sign>\S+) from \d+:(?P<start>\d+)", reason)
    if match is not None:
        return _never_closes(f"a quote {match['sign']}", sql, int(match["start"]))
    return _never_closes("a comment /*", sql, sql.rfind("/*")) if sql.count("/*") > sql.count("*/") else None


def _first_word(sql: str, tokens: Tokens) -> Mistake | None:
    start, text = next((token for token in tokens if token[1] != "("), tokens[0])
    match = re.match(r"\w+", sql[start:])
    word = match[0].upper() if match is not None else text
    if word in QUERY_STARTS | OTHER_QUERIES:
        return None
    if word in COMMANDS:
        return _wrong(f"`{word}` is no query: a node's SQL gives rows, and the node writes them")
    if match is not None:
        return Mistake(f"no query starts with `{match[0]}`", plain=_NOT_SQL, suggestion=closest(word, QUERY_STARTS))
    return _wrong("no query: it starts neither with `SELECT` nor with `WITH`")


def _balance(sql: str, tokens: Tokens) -> Mistake | None:
    opened: list[tuple[int, str]] = []
    for start, text in tokens:
        if text in _OPENING.values():
            opened.append((start, text))
        elif text in _OPENING and (not opened or opened.pop()[1] != _OPENING[text]):
            return _wrong(f"`{text}` on line {_line(sql, start)} of the query closes nothing")
    return _never_closes(f"`{opened[-1][1]}`", sql, opened[-1][0]) if opened else None


def _several(sql: str, tokens: Tokens) -> Mistake | None:
    if tokens[0][1].upper() == "BEGIN":
        return None
    end = next((start for start, text in tokens if text == ";"), None)
    if end is None:
        return None
    return _wrong(f"`;` on line {_line(sql, end)} of the query starts a second statement: Spark takes one")


def _commas(sql: str, tokens: Tokens) -> Mistake | None:
    for (start, text), (_, following) in pairwise([*tokens, (len(sql), ",")]):
        if text == following == ",":
            return _wrong(f"a comma on line {_line(sql, start)} of the query has nothing after it")
    return None


def _is_judged(tokens: list[Token]) -> bool:
    """Whether all of a query is syntax that sqlglot's parser takes as Spark does."""
    parser = sqlglot.dialects.Spark.Parser
    words = _WORDS_OF_SPARK | parser.NO_PAREN_FUNCTION_PARSERS.keys()
    calls = parser.FUNCTION_PARSERS.keys() - _PLAIN_CALLS
    for token, following in pairwise([*tokens, tokens[-1]]):
        kind, word, then = token.token_type.name, token.text.upper(), following.token_type.name
        if kind not in _JUDGED:
            return False
        # A name before a text makes a literal of it: X'1F'.
        if kind == "VAR" and (word in words or (word in calls and then == "L_PAREN") or then == "STRING"):
            return False
    return True


def _syntax_error(sql: str, tokens: list[Token]) -> Mistake | None:
    if not _is_judged(tokens):
        return None
    details = _grammar_error(sql, tokens)
    if details is None or any(_grammar_error(sql, other) is None for other in _with_words_as_names(tokens)):
        return None
    near = str(details.get("highlight") or "").strip()
    where = f"near `{near}` on line {details.get('line')} of it" if near else "at its end"
    return Mistake(f"{_CANNOT_PARSE}, {where}", plain=_CANNOT_PARSE)


def _grammar_error(sql: str, tokens: list[Token]) -> Mapping[str, Any] | None:
    """What sqlglot says of the first error; None if it finds none that counts."""
    parser = sqlglot.dialects.Spark().parser()
    # A call is a name and arguments: how many of them a function takes is nothing of the grammar's.
    parser.FUNCTIONS = {}
    try:
        parser.parse(tokens, sql)
    except sqlglot.ParseError as error:
        details = error.errors[0] if error.errors else {}
        return details if _GRAMMAR_ERROR.match(str(details.get("description") or "")) else None
    except sqlglot.errors.SqlglotError:
        return None
    return None


def _with_words_as_names(tokens: list[Token]) -> Iterator[list[Token]]:
    """The query with some of its words taken for names, as Spark may do: ``SELECT left AS when FROM df``."""
    places = [i for i, token in enumerate(tokens) if i and token.token_type.name in _NAMES_TOO]
    if len(places) > _MOST_NAMES:
        # Too many ways to read it: it is not judged.
        places = []
        yield []
    for count in range(1, len(places) + 1):
        for some in combinations(places, count):
            yield [_as_name(token) if i in some else token for i, token in enumerate(tokens)]


def _as_name(token: Token) -> Token:
    return sqlglot.Token(sqlglot.TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end)


def _never_closes(what: str, sql: str, start: int) -> Mistake:
    return _wrong(f"{what} opens on line {_line(sql, start)} of the query and never closes")


def _wrong(message: str) -> Mistake:
    return Mistake(message, plain=_NOT_SQL)


def _line(sql: str, position: int) -> int:
    return sql.count("\n", 0, position) + 1
