"""Asking many sources at once, each with a deadline. One that hangs holds up nobody else."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_POLL = 0.05


@dataclass(frozen=True)
class Answer(Generic[K, V]):
    """What became of one question: a value; or an error, which is a ``TimeoutError`` after the deadline."""

    key: K
    value: V | None = None
    error: Exception | None = None


@dataclass
class _Worker(Generic[K, V]):
    """A thread that asks one question after the other."""

    waiting: deque[tuple[K, Callable[[], V]]]
    answers: queue.SimpleQueue[Answer[K, V]]
    asking: K | None = None
    since: float = 0.0
    given_up: bool = False

    def start(self) -> _Worker[K, V]:
        # Not a pool of concurrent.futures: at its end, Python would wait for a thread that hangs.
        threading.Thread(target=self._run, daemon=True, name="look at a source").start()
        return self

    def _run(self) -> None:
        while not self.given_up:
            try:
                key, question = self.waiting.popleft()
            except IndexError:
                return
            self.asking, self.since = key, time.monotonic()
            try:
                answer = Answer[K, V](key, question())
            except Exception as error:  # noqa: BLE001  it is the answer, and whoever asked reports it
                answer = Answer[K, V](key, error=error)
            self.asking = None
            self.answers.put(answer)


@dataclass
class Looks(Generic[K, V]):
    """Asks questions side by side.

    Attributes:
        at_once: how many at the same time.
        seconds: how long each may take.
        hanging: questions of earlier rounds that still wait for their answer. Until then, they are not asked again.
    """

    at_once: int
    seconds: float
    hanging: dict[K, _Worker[K, V]] = field(default_factory=dict)

    def ask(self, questions: Mapping[K, Callable[[], V]], until: float) -> Iterator[Answer[K, V]]:
        """The answers, in the order they come in.

        Args:
            questions: in the order they are asked.
            until: on the monotonic clock, when no further question is begun. Those get no answer.
        """
        self.hanging = {key: worker for key, worker in self.hanging.items() if worker.asking == key}
        answers: queue.SimpleQueue[Answer[K, V]] = queue.SimpleQueue()
        for key in questions.keys() & self.hanging.keys():
            yield Answer(key, error=TimeoutError("it still does not answer, and is not asked again until it does"))
        waiting = deque((key, question) for key, question in questions.items() if key not in self.hanging)
        open_keys = {key for key, _ in waiting}
        workers = [_Worker(waiting, answers).start() for _ in range(min(self.at_once, len(waiting)))]
        while open_keys:
            try:
                answer = answers.get(timeout=_POLL)
            except queue.Empty:
                pass
            else:
                if answer.key in open_keys:
                    open_keys.discard(answer.key)
                    yield answer
            now = time.monotonic()
            if now > until:
                open_keys -= {key for key, _ in waiting}
                waiting.clear()
            for index, worker in enumerate(workers):
                late = worker.asking
                if late is None or late not in open_keys or now - worker.since < self.seconds:
                    continue
                worker.given_up = True
                self.hanging[late] = worker
                open_keys.discard(late)
                workers[index] = _Worker(waiting, answers).start()
                yield Answer(late, error=TimeoutError(f"it did not answer within {self.seconds:g} s"))
