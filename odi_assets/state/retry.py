"""Trying again: only after errors that say they are transient, with growing waits, and never in silence."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

import tenacity

from odi_assets.config.models import RetryConfig
from odi_assets.errors import Transient

_log = logging.getLogger(__name__)
T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed when made again; told by the error's type alone."""
    return isinstance(error, Transient)


class Retry:
    """Calls an operation until it succeeds, fails for good, or the retries are used up.

    The waits are ``base_delay`` doubled each time up to ``max_delay``, plus a random part up to ``jitter``: 1, 2, 4, 8
    and 16 s, each plus up to 1 s, by default. The operation itself must look at the state anew each time.

    Args:
        config: numbers of retries and waits, in seconds.
        sleep: waits that many seconds.
        draw: a random number between its two arguments.
    """

    def __init__(
        self,
        config: RetryConfig | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.config = config or RetryConfig()
        self._sleep = sleep
        self._draw = draw

    def call(
        self, operation: Callable[[], T], what: str, *, again: Callable[[BaseException], bool] = is_transient
    ) -> T:
        """The result of ``operation``.

        Args:
            operation: what to do.
            what: names it in the log: "set_hwm of `orders`".
            again: which errors are worth another attempt.

        Raises:
            Exception: what ``operation`` raised last, with a note of how often it was tried.
        """
        policy = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.config.retries + 1),
            wait=lambda state: self._wait(state.attempt_number),
            retry=tenacity.retry_if_exception(again),
            sleep=self._sleep,
            before_sleep=lambda state: self._tell(state, what),
            retry_error_callback=_give_up,
        )
        return policy(operation)

    def _wait(self, attempt: int) -> float:
        growing = self.config.base_delay * 2.0 ** (attempt - 1)
        return min(growing, self.config.max_delay) + self._draw(0.0, self.config.jitter)

    def _tell(self, state: tenacity.RetryCallState, what: str) -> None:
        error = _met(state)
        _log.warning(
            "%s: attempt %d of %d met %s: %s; trying again in %.1f s",
            what,
            state.attempt_number,
            self.config.retries + 1,
            type(error).__name__,
            getattr(error, "message", error),
            state.upcoming_sleep,
        )


def _give_up(state: tenacity.RetryCallState) -> NoReturn:
    error = _met(state)
    error.add_note(f"given up after {state.attempt_number} attempts")
    raise error


def _met(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    if error is None:
        raise RuntimeError("a retry without an error")
    return error
