"""Printing: data goes to stdout, everything else to stderr; plain text where it is not a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from odi_assets.config.graph import NodeKey

_PIPE_WIDTH = 10_000
"""Columns of a stream that is not a terminal: nothing is ever cut or wrapped there."""

NARROW = 110
"""Terminals with fewer columns than this get the compact form of wide tables."""

_LONGEST_VALUE = 40
"""Letters of a value that tables show."""
_STDOUT, _STDERR = 1, 2

_READABLE = 24
"""Columns that a wrapped cell needs at least."""


@dataclass(frozen=True)
class Column:
    """A column of a table, and what happens to it on a narrow terminal.

    Attributes:
        cell: gives the text for what a row is about; None and ``""`` leave the cell empty.
        wrap: its cells go on in the next line.
        spare: it is left out, the last such column first, when wrapping does not make room enough.
        optional: it is left out where all its cells are empty.
    """

    name: str
    cell: Callable[[Any], str | int | None]
    justify: Literal["left", "right"] = "left"
    wrap: bool = False
    spare: bool = False
    optional: bool = False


class ReaderGone(Exception):
    """Whoever read stdout does so no longer."""


def open_missing_streams() -> None:
    """Put the null device in the place of each standard stream that this process was started without.

    A file, socket or JVM that is opened later must get no descriptor of 0 to 2: what is printed would land in it.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        # As the descriptors that a shell gives: child processes have them, too.
        os.set_inheritable(opened, True)
    os.close(opened)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  open as long as the process


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


def console(stream: TextIO) -> Console:
    """A console that writes no escape codes but to a terminal, and no colour where NO_COLOR is set."""
    from rich.console import Console

    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
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
    out = console(sys.stdout)
    return out.is_terminal and out.width < NARROW


def data_table(columns: Sequence[Column], items: Iterable[Any]) -> None:
    """Print a table on stdout: a line of heads, then a line per item; whole in a pipe, wrapped on a terminal.

    Numbers are written as in ``1,234``.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = console(sys.stdout)
    cell_rows = ([column.cell(item) for column in columns] for item in items)
    rows = [[f"{cell:,}" if isinstance(cell, int) else cell or "" for cell in row] for row in cell_rows]
    padding = (0 if is_narrow() else 1) if out.is_terminal else 2
    # A box has a blank column of its own between two others.
    shown, roomy = _fitting(columns, rows, out.width, padding + out.is_terminal)
    table = Table(
        box=SIMPLE_HEAD if out.is_terminal else None, show_edge=False, pad_edge=False, padding=(0, padding, 0, 0)
    )
    for index in shown:
        table.add_column(
            columns[index].name,
            justify=columns[index].justify,
            overflow="fold",
            # Rich takes width from every column that may wrap, so those that need not must not.
            no_wrap=roomy and not columns[index].wrap,
        )
    for row in rows:
        table.add_row(*(Text(row[index]) for index in shown))
    with out.capture() as captured:
        out.print(table)
    data("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int, gap: int) -> tuple[list[int], bool]:
    """Return which columns to show, without as many of the spare ones as it takes to fit, and whether these fit."""
    needed = []
    for index, column in enumerate(columns):
        cells = [column.name, *(row[index] for row in rows)]
        width = max(len(line) for cell in cells for line in cell.split("\n"))
        needed.append(gap + (min(width, _READABLE) if column.wrap else width))
    shown = [index for index, column in enumerate(columns) if not column.optional or any(row[index] for row in rows)]
    spare = [index for index in shown if columns[index].spare]
    while sum(needed[index] for index in shown) > room and spare:
        shown.remove(spare.pop())
    return shown, sum(needed[index] for index in shown) <= room


@contextmanager
def stdout_kept_for_data() -> Iterator[None]:
    """Within, send to stderr what others print: functions of nodes, Spark, libraries."""
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


def moment(time: datetime) -> str:
    """``2013-01-31 05:00:00``."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def short_id(run_id: str | None) -> str:
    """As much of a run's id as tables show."""
    return (run_id or "")[:8]


def short_value(value: str | None) -> str:
    """A value as tables show it: its first letters, and how many there are."""
    if value is None:
        return "NULL"
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}… ({len(value):,} letters)"


def hwm_change(before: str | None, after: str | None) -> str:
    """``none → version 4``; one HWM if it stays; nothing where there is none. In two lines on a narrow terminal."""
    if before == after:
        return before or ""
    return f"{before or 'none'}{chr(10) if is_narrow() else ' '}→ {after or 'none'}"


def node_name(keys: Iterable[NodeKey]) -> Callable[[NodeKey], str]:
    """Return what tables call these nodes: by their names alone where all are of one pipeline."""
    one_pipeline = len({key.pipeline for key in keys}) == 1
    return lambda key: key.node if one_pipeline else str(key)


def count(number: int | None) -> str:
    """``1,234``; nothing for None."""
    return "" if number is None else f"{number:,}"
