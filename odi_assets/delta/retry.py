"""Trying again: waiting for a store that does not answer, and starting over at once after a lost race.

Waiting follows the project's one policy and is never silent. A lost race is no fault: another process made progress,
so the same work starts over on what that process left.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from odi_assets.config.models import RetryConfig
from odi_assets.delta.errors import OutcomeUnknownError
from odi_assets.errors import OdiError, Transient

_log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_RACES = 20
"""How often work is started when other processes overtake it. It is the only such number: after more lost races, their
error is raised. The caller may then compute its rows again, or the policy may wait."""
_RACE_SECONDS = 0.005


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed when made again, by the error's type alone."""
    return isinstance(error, Transient)


@dataclass(frozen=True)
class Retry:
    """Calls an operation until it succeeds, fails for good, or the retries are used up.

    The waits are set by ``config`` (1, 2, 4, 8 and 16 s by default), each plus a random part up to ``jitter``. The
    operation itself must look at the state again each time.

    Attributes:
        config: numbers of retries and waits, in seconds; the default ones if None.
        sleep: waits that many seconds; ``time.sleep`` if None.
        draw: a random number between its two arguments.
    """

    config: RetryConfig | None = None
    sleep: Callable[[float], None] | None = field(default=None, kw_only=True)
    draw: Callable[[float, float], float] = field(default=random.uniform, kw_only=True)

    def call(
        self, operation: Callable[[], T], what: str, *, again: Callable[[BaseException], bool] = is_transient
    ) -> T:
        """The result of ``operation``.

        After a commit whose outcome stayed unknown, the commit is looked for first: if it is there, that is the result.

        Args:
            operation: what to do.
            what: names it in the log: "set_hwm of `orders`".
            again: which errors are worth another attempt.

        Raises:
            Exception: what ``operation`` raised last, with a note of how often it was tried.
        """
        config = self.config or RetryConfig()
        policy = Retrying(
            retry=retry_if_exception(again),
            stop=stop_after_attempt(config.attempts),
            wait=lambda state: config.delay(state.attempt_number) + self.draw(0.0, config.jitter),
            sleep=self.sleep or time.sleep,
            before_sleep=lambda state: _tell(state, what, config.attempts),
            retry_error_callback=_give_up,
        )
        look: Callable[[], Any] | None = None
        for attempt in policy:
            with attempt:
                outcome: T | None = look() if look is not None else None
                return operation() if outcome is None else outcome
            error = _met(attempt.retry_state)
            look = error.look if isinstance(error, OutcomeUnknownError) else None
        raise AssertionError("the last attempt returns or raises")


def _tell(state: RetryCallState, what: str, attempts: int) -> None:
    error = _met(state)
    kind, message = type(error).__name__, getattr(error, "message", error)
    text = "%s: attempt %d of %d met %s: %s; trying again in %.1f s"
    _log.warning(text, what, state.attempt_number, attempts, kind, message, state.upcoming_sleep)


def _give_up(state: RetryCallState) -> NoReturn:
    error = _met(state)
    error.add_note(f"given up after {state.attempt_number} attempts")
    raise error


def _met(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome is not None else None
    if error is None:
        raise AssertionError("an attempt that succeeds ends the retries")
    return error


def raced(attempt: Callable[[], T], lost: Callable[[OdiError], bool]) -> T:
    """The result of ``attempt``, started over at once as long as its error says that another process was faster.

    Args:
        attempt: looks at the state again each time.
        lost: whether an error is such a lost race.

    Raises:
        OdiError: another error; or a lost race, the 20th time.
    """
    for number in range(1, MOST_RACES):
        try:
            return attempt()
        except OdiError as error:
            if not lost(error):
                raise
            _log.debug("another process was faster: %s", error)
        time.sleep(_RACE_SECONDS * number)
    return attempt()
