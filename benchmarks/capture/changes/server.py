"""A server in hand: what a sweep does to the server of any database, and asks of it."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.capture.changes.oracle import DatabaseTable
from benchmarks.kill_sweep.points import Point
from odi_assets_tests.sources.sql.servers import Server

NAMES = ("a", "b", "c")
"""Tables that nodes apply; `c` has a history too."""


@dataclass
class ServerInHand(ABC):
    """A server that can be stopped in several ways, and started again.

    Attributes:
        schema: where its tables are.
        log: what its connection says of its log, in YAML.
        points: where a capture of it may die.
        stops: signals that end it.
        refusal: what its driver raises if it refuses a statement.
        process_file: where it writes the number of its process.
    """

    folder: Path
    server: Server
    _running: ExitStack

    schema: ClassVar[str]
    log: ClassVar[str]
    points: ClassVar[tuple[Point, ...]]
    stops: ClassVar[tuple[signal.Signals, ...]]
    refusal: ClassVar[type[Exception]]
    process_file: ClassVar[str]

    @abstractmethod
    def connect(self, *, autocommit: bool = True) -> Any:
        """A connection of its driver."""

    @abstractmethod
    def execute(self, *statements: str) -> None:
        """Run statements, each by itself."""

    @abstractmethod
    def again(self) -> AbstractContextManager[Server]:
        """The server once more, with the data that are there."""

    @abstractmethod
    def empty(self) -> None:
        """Drop what a life has left, and make the tables."""

    @abstractmethod
    def captured(self) -> list[str]:
        """The tables whose changes a log can have, with their schemas."""

    @abstractmethod
    def existing(self) -> list[str]:
        """All tables of the schema, in the order of their names."""

    @abstractmethod
    def table(self, name: str) -> DatabaseTable:
        """What a table holds."""

    @abstractmethod
    def end_prepared(self, chosen: Callable[[list[str]], str]) -> str:
        """End all prepared transactions, each with the word that ``chosen`` takes of two."""

    def restart(self, how: signal.Signals) -> None:
        """Stop it by a signal, and start it again."""
        file = self.folder / self.process_file
        process = int(file.read_text(encoding="utf-8").split()[0])
        os.kill(process, how)
        while _lives(process):
            time.sleep(0.02)
        self._running.close()
        file.unlink(missing_ok=True)
        self.server = self._running.enter_context(self.again())


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
