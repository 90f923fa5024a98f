"""What can be said of a Spark SQL query without parsing it: only what is wrong for certain."""

from __future__ import annotations

import re
from dataclasses import dataclass

from odi_assets.config.diagnostics.mistakes import Mistake, closest

_TOKEN = re.compile(
    r"""
      (?P<comment>--(?:[^\n\\]|\\.|\\\n)*)
    | (?P<block>/\*)
    | (?P<raw>\b[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<dollars>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<unclosed>['"`])
    | (?P<word>\w+)
    | (?P<opening>[(\[])
    | (?P<closing>[)\]])
    | (?P<end>;)
    | (?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")

QUERY_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
OTHER_QUERIES = frozenset({"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "LIST", "CALL", "EXECUTE", "BEGIN"})
COMMANDS = frozenset(
    {
        "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "DROP", "ALTER", "TRUNCATE", "REPLACE", "USE", "SET", "RESET",
        "CACHE", "UNCACHE", "REFRESH", "ANALYZE", "MSCK", "REPAIR", "LOAD", "GRANT", "REVOKE", "ADD", "COMMENT",
        "DECLARE", "OPTIMIZE", "VACUUM", "CLEAR",
    }
)  # fmt: skip
_PAIRS = {")": "(", "]": "["}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class _Unclosed(Exception):
    def __init__(self, what: str, start: int) -> None:
        super().__init__(what)
        self.start = start


def find_certain_mistake(sql: str) -> Mistake | None:
    """Return what is wrong with a query for certain: empty, unbalanced, several statements, or no query at all."""
    try:
        tokens = _tokens(sql)
    except _Unclosed as unclosed:
        return _mistake(f"{unclosed} opens on line {_line(sql, unclosed.start)} of the query and never closes")
    while tokens and tokens[-1].kind == "end":
        tokens.pop()
    if not tokens:
        return _mistake("holds no query")
    return _first_word(tokens) or _balance(sql, tokens) or _several(sql, tokens) or _commas(sql, tokens)


def _tokens(sql: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while (match := _TOKEN.search(sql, position)) is not None:
        position = match.end()
        kind = str(match.lastgroup) if match.lastgroup != "tag" else "dollars"
        if kind == "block":
            position = _block_end(sql, match.start())
        elif kind == "unclosed":
            raise _Unclosed(f"a quote {match.group()}", match.start())
        elif kind != "comment":
            found.append(_Token(kind, match.group(), match.start()))
    return found


def _block_end(sql: str, start: int) -> int:
    depth = 0
    for edge in _BLOCK_EDGE.finditer(sql, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _Unclosed("a comment /*", start)


def _first_word(tokens: list[_Token]) -> Mistake | None:
    first = next((token for token in tokens if token.text != "("), tokens[0])
    word = first.text.upper()
    if first.kind == "word" and word in QUERY_STARTS | OTHER_QUERIES:
        return None
    if first.kind == "word" and word in COMMANDS:
        return _mistake(f"`{word}` is no query: a node's SQL gives rows, and the node writes them")
    if first.kind == "word":
        meant = closest(word, QUERY_STARTS)
        return Mistake(f"no query starts with `{first.text}`", plain=_NOT_SQL, suggestion=meant)
    return _mistake("no query: it starts neither with `SELECT` nor with `WITH`")


def _balance(sql: str, tokens: list[_Token]) -> Mistake | None:
    opened: list[_Token] = []
    for token in tokens:
        if token.kind == "opening":
            opened.append(token)
        elif token.kind == "closing" and (not opened or opened.pop().text != _PAIRS[token.text]):
            return _mistake(f"`{token.text}` on line {_line(sql, token.start)} of the query closes nothing")
    if opened:
        return _mistake(
            f"`{opened[-1].text}` opens on line {_line(sql, opened[-1].start)} of the query and never closes"
        )
    return None


def _several(sql: str, tokens: list[_Token]) -> Mistake | None:
    if tokens[0].text.upper() == "BEGIN":
        return None
    end = next((token for token in tokens if token.kind == "end"), None)
    if end is None:
        return None
    return _mistake(f"`;` on line {_line(sql, end.start)} of the query starts a second statement: Spark takes one")


def _commas(sql: str, tokens: list[_Token]) -> Mistake | None:
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.text == "," and (following is None or following.text == ","):
            return _mistake(f"a comma on line {_line(sql, token.start)} of the query has nothing after it")
    return None


_NOT_SQL = "is no Spark SQL query"


def _mistake(message: str) -> Mistake:
    return Mistake(message, plain=_NOT_SQL)


def _line(sql: str, position: int) -> int:
    return sql.count("\n", 0, position) + 1
