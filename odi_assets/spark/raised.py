"""Values that stop a job while Spark computes, and what the error says of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column

_PREFIX = "Not loaded: "
_FIX = " What to do: "
_DEEPEST = 20
_JAVA_FRAME = re.compile(r"^\s*(at [\w.$/<>]+\(|\.\.\. \d+ more|JVM stacktrace:)")
_QUERY_PLAN = re.compile(r"^('|\+- )")
_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_FURTHER = re.compile(
    r"\s*(== \w+|SQLSTATE: |;? line \d+,? pos|\(line \d+, pos| on search path \["
    r"|(?<=\.) (If necessary |If you |To return |To tolerate |Use |Verify |Correct |Search path|Did you mean one))"
)
"""How begins what Spark adds to what is wrong."""
_STOP = re.compile(rf"\[USER_RAISED_EXCEPTION\] {_PREFIX}(.*?){_FIX}(.*?) SQLSTATE", re.DOTALL)


def without_stacks(message: str) -> str:
    """``message`` up to the first stack of Java or query plan in it; Spark puts both into its messages."""
    lines = message.split("\n")
    for number, line in enumerate(lines):
        if _JAVA_FRAME.match(line) or (_QUERY_PLAN.match(line) and number and lines[number - 1].endswith(";")):
            return "\n".join(lines[:number]).rstrip().rstrip(";")
    return message.rstrip()


def own_words(message: str) -> str:
    """What an error of Spark says, in one line: without its class and state, places in Python, plans and advice.

    Example:
        >>> own_words('[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate 0. SQLSTATE: 22012')
        'division by zero'
    """
    text = " ".join(_FURTHER.split(without_stacks(message), maxsplit=1)[0].split())
    text = _CLASS.sub("", text).rstrip(" .;")
    return text[:1].lower() + text[1:] if text[1:2] in " " or text[1:2].islower() else text


def stopped_by(*message: Column | str, fix: str) -> Column:
    """A column that stops the job with a message of texts and columns."""
    parts = [F.lit(part) if isinstance(part, str) else part for part in (_PREFIX, *message, _FIX, fix)]
    return F.raise_error(F.concat(*parts))


def stop_message(text: str) -> tuple[str, str] | None:
    """The message of such a column, and its fix, in the text of an error of Spark; None for other errors."""
    match = _STOP.search(text)
    return (match[1], match[2]) if match else None


def error_text(error: BaseException) -> str:
    """What an error of Spark says, and what the errors say that caused it, from the outermost in."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(texts) < _DEEPEST:
        texts.append(str(cause))
        cause = getattr(cause, "_cause", None) or cause.__cause__
    return "\n".join(texts)
