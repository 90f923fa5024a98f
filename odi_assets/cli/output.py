"""Where words go: data on stdout, everything else on stderr; plain text wherever it is not a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 10_000
"""Columns of a stream that is not a terminal: nothing is ever cut or wrapped there."""

NARROW = 110
"""Terminals with fewer columns than this get the compact form of wide tables."""

_STDOUT, _STDERR = 1, 2

_READABLE = 20
"""Columns that a wrapped cell needs at least."""


@dataclass(frozen=True)
class Column:
    """A column of a table; ``wrap`` lets it be the one that gives way on a narrow terminal."""

    name: str
    justify: Literal["left", "right"] = "left"
    wrap: bool = False


class ReaderGone(Exception):
    """Whoever read stdout does so no longer."""


def data(text: str) -> None:
    """Print data on stdout.

    Raises:
        ReaderGone: nobody reads it.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        raise ReaderGone from error


def data_json(value: Any) -> None:
    """Print a JSON document on stdout."""
    data(json.dumps(value, indent=2, ensure_ascii=False))


def note(text: str = "") -> None:
    """Print what is not data, on stderr."""
    print(text, file=sys.stderr)


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody watches ``stream``."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console(stream: TextIO) -> Console:
    """A console that writes no escape codes but to a terminal, and no colour where NO_COLOR is set."""
    from rich.console import Console

    terminal = is_terminal(stream)
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system=None if plain else "auto",
        width=None if terminal else _PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def is_narrow() -> bool:
    """Whether stdout is a terminal too narrow for wide tables."""
    return is_terminal(sys.stdout) and console(sys.stdout).width < NARROW


def data_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout: a line of heads, then a line per row; whole in a pipe, wrapped on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = console(sys.stdout)
    padding = 1 if is_narrow() else 2
    table = Table(box=SIMPLE_HEAD if out.is_terminal else None, show_edge=False, pad_edge=False, padding=(0, padding))
    widths = _least_widths(columns, rows, out.width - 2 * padding * len(columns))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.name, justify=column.justify, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with out.capture() as captured:
        out.print(table)
    data("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def _least_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """The widths of columns that do not give way, as far as that leaves room for those that do."""
    natural = [
        max(len(line) for cell in (column.name, *cells) for line in cell.split("\n"))
        for column, cells in zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True)
    ]
    fixed = sum(width for column, width in zip(columns, natural, strict=True) if not column.wrap)
    wrapped = sum(min(width, _READABLE) for column, width in zip(columns, natural, strict=True) if column.wrap)
    if fixed + wrapped > room:
        return [None] * len(columns)
    return [None if column.wrap else width for column, width in zip(columns, natural, strict=True)]


@contextmanager
def stdout_kept_for_data() -> Iterator[None]:
    """Send to stderr what anybody else prints meanwhile: functions of nodes, Spark, libraries."""
    sys.stdout.flush()
    # The JVM and native libraries write to the descriptor; redirecting sys.stdout alone would not reach them.
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def count(number: int | None) -> str:
    """``1,234``; nothing for None."""
    return "" if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """``1 node``, ``8 nodes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
