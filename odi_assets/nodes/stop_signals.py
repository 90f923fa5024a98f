"""Signals that end a service: after what it computes, and not in the middle of it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_log = logging.getLogger(__name__)


@contextmanager
def stop_signals() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let SIGTERM and SIGINT call what the block names, once; a second one interrupts as usual.

    Until the block has named it, SIGTERM waits. The JVM that the block starts ignores SIGTERM: who stops a service
    sends it to all processes of it, and Spark has to live until the last rows are committed. It ends with this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    waiting = threading.Event()
    stops: list[Callable[[], None]] = []

    def as_before() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        _log.info("signal %s: stopping after what runs", number)
        waiting.set()
        if stops:
            as_before()
            stops[0]()

    def handled_by(stop: Callable[[], None]) -> None:
        stops.append(stop)
        signal.signal(signal.SIGINT, handle)
        if waiting.is_set():
            handle(signal.SIGTERM, None)

    signal.signal(signal.SIGTERM, handle)
    _children.ignore_sigterm()
    try:
        yield handled_by
    finally:
        _children.may_be_ended()
        as_before()


class _Children:
    """Whether processes that are forked from this one ignore SIGTERM, and so what they execute does."""

    def __init__(self) -> None:
        self._ignore = False
        self._hooked = False

    def ignore_sigterm(self) -> None:
        self._ignore = True
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self._in_child)

    def may_be_ended(self) -> None:
        self._ignore = False

    def _in_child(self) -> None:
        if self._ignore:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


_children = _Children()
