"""Where an error of the user's own Python was raised: ``fn.py:4: KeyError: 'USD'``, and the text of the line."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_OURS = Path(__file__).resolve().parents[1]
_LIBRARIES = re.compile(r"[/\\](lib|Lib)[/\\]python\d|site-packages|dist-packages|pyspark\.zip")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in .+\n(?: +(?!File ")(?P<text>\S.*)\n)?', re.MULTILINE
)
_JAVA_FRAME = re.compile(r"^\s*at [\w.$]+[(/]", re.MULTILINE)
_RAISED = re.compile(r"^\S.*(?:\n(?!\s*$).*)*", re.MULTILINE)


@dataclass(frozen=True)
class Frame:
    """A line of Python that was being executed.

    Attributes:
        text: the line as it is written; empty if it cannot be read.
    """

    file: str
    line: int
    text: str = ""

    @property
    def is_users(self) -> bool:
        """Whether it is neither of Python, nor of an installed package, nor ours."""
        path = Path(self.file)
        is_file = not self.file.startswith("<")
        return is_file and not _LIBRARIES.search(self.file) and not path.is_relative_to(_OURS)


def error_with_place(error: BaseException, root: Path) -> str:
    """What an error says, after the place of the user's innermost line that it went through. If there is none, the
    place of the line that raised it.

    Args:
        root: the folder of the project: files in it are named from there.
    """
    raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _with_place(
            Frame(error.filename, error.lineno, (error.text or "").strip()), f"SyntaxError: {error.msg}", root
        )
    frames = [
        Frame(summary.filename, summary.lineno or 0, summary.line or "")
        for summary in traceback.extract_tb(error.__traceback__)
    ]
    return _with_place(_innermost(frames) or frames[-1], raised, root) if frames else raised


def worker_error_with_place(text: str, root: Path) -> str | None:
    """The same of an error that went through Spark as text, from a Python worker; None if no line of the user's is in
    it."""
    start = text.find(_TRACEBACK)
    if start < 0:
        return None
    # Of errors that were raised while another one was handled, the last one ended the task.
    last = _JAVA_FRAME.split(text[start:], maxsplit=1)[0].rpartition(_TRACEBACK)[2]
    matches = [*_FRAME.finditer(last)]
    frame = _innermost([Frame(match["file"], int(match["line"]), (match["text"] or "").strip()) for match in matches])
    if frame is None:
        return None
    raised = _RAISED.search(last, matches[-1].end())
    return _with_place(frame, raised[0].rstrip() if raised else "an error", root)


def named_from(root: Path, file: str) -> str:
    """The name of a file in messages: one below ``root`` is named from there."""
    path, inside = Path(os.path.realpath(file)), root.resolve()
    return str(path.relative_to(inside)) if path.is_relative_to(inside) else file


def _innermost(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in reversed(frames) if frame.is_users), None)


def _with_place(frame: Frame, raised: str, root: Path) -> str:
    # What Spark says may go on for many lines.
    first, _, rest = raised.partition("\n")
    shown = f"\n    {frame.text}" if frame.text else ""
    return f"{named_from(root, frame.file)}:{frame.line}: {first}{shown}" + (f"\n{rest}" if rest else "")
