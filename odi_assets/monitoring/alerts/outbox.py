"""Alerts on their way: which are sent to whom, which are held back, and which are tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from odi_assets.config.models import AlertConfig, EmailAlert, WebhookAlert
from odi_assets.monitoring.alerts.alert import Alert
from odi_assets.monitoring.alerts.delivery import DeliveryError, post, send

_HOUR = 3600.0
_TRIED_FOR = timedelta(days=1)
_PAUSE = 60.0
"""Seconds between the second try and the third; each later pause is twice as long. A server may take an alert, and not
say so in time: it would get the alert again at each tick."""
_MOST_WAITING = 50
"""Alerts that wait for a server: databases hold 64 KiB of a sensor's cursor."""


class Outbox:
    """Delivers alerts as ``alerts`` of the project file says. What it remembers is JSON, for the sensor's cursor.

    Args:
        configs: of the project file, in its order.
        remembered: what :meth:`remember` gave.
        now: the time, in seconds since 1970.

    Attributes:
        troubles: what could not be delivered, in words.
        delivered: how many were.
    """

    def __init__(self, configs: Sequence[AlertConfig], remembered: Mapping[str, Any], now: float) -> None:
        self._configs, self._now = configs, now
        self._sent: dict[str, dict[str, Any]] = dict(remembered.get("sent", {}))
        self._waiting: list[dict[str, Any]] = list(remembered.get("waiting", []))
        self.troubles: list[str] = []
        self.delivered = 0

    def put(self, alert: Alert) -> None:
        """Take an alert for each entry of ``alerts`` that asks for it and has not had too many like it."""
        for index, config in enumerate(self._configs):
            if alert.event in config.on_events:
                held = 0 if alert.status == "OVER" else self._held_back(index, config, alert)
                if held is not None:
                    self._waiting.append({"to": index, "alert": alert.with_held(held).to_json()})

    def _held_back(self, index: int, config: AlertConfig, alert: Alert) -> int | None:
        """How many like it were held back before; None if it is held back itself."""
        key = f"{index} {config.type} {alert.event} {alert.subject}"
        seen = self._sent.setdefault(key, {"times": [], "held": 0})
        times = [at for at in seen["times"] if self._now - at < max(_HOUR, config.metadata.throttle_minutes * 60)]
        in_hour = sum(self._now - at < _HOUR for at in times)
        too_soon = bool(times) and self._now - times[-1] < config.metadata.throttle_minutes * 60
        if too_soon or in_hour >= config.metadata.max_per_hour:
            self._sent[key] = {"times": times, "held": seen["held"] + 1}
            return None
        self._sent[key] = {"times": [*times, self._now], "held": 0}
        return int(seen["held"])

    def deliver(self, log: Callable[[str], None], seconds: float) -> None:
        """Deliver what waits. What cannot be delivered is tried again, for a day: the next time, and then after pauses
        that grow to an hour.

        Args:
            log: takes the text of an alert to the log.
            seconds: after these, nothing more is begun.
        """
        until, still_waiting = time.monotonic() + seconds, []
        for waiting_alert in self._waiting:
            index, alert = waiting_alert["to"], Alert(**waiting_alert["alert"])
            if index >= len(self._configs) or alert.event not in self._configs[index].on_events:
                # The project file is another one by now.
                continue
            name = f"alerts[{index}] ({self._configs[index].type})"
            if self._now < waiting_alert.get("not_before", 0) or time.monotonic() >= until:
                still_waiting.append(waiting_alert)
                continue
            try:
                _deliver(self._configs[index], alert, log)
                self.delivered += 1
            except DeliveryError as error:
                age = datetime.fromtimestamp(self._now, UTC) - datetime.fromisoformat(alert.at)
                again = age < _TRIED_FOR
                self.troubles.append(
                    f"{name}: {error.message}; `{alert.title}` is {'tried again' if again else 'given up'}"
                )
                tries = waiting_alert.get("tries", 0) + 1
                not_before = self._now + min(_HOUR, _PAUSE * 2.0 ** (tries - 2)) if tries > 1 else 0
                still_waiting += [{**waiting_alert, "tries": tries, "not_before": not_before}] if again else []
        self._waiting = still_waiting

    @property
    def waiting(self) -> int:
        """How many alerts wait for another try."""
        return len(self._waiting)

    def remember(self) -> dict[str, Any]:
        """What the next look is to know."""
        oldest = self._now - max([_HOUR, *(config.metadata.throttle_minutes * 60 for config in self._configs)])
        sent = {key: seen for key, seen in self._sent.items() if seen["times"] and seen["times"][-1] >= oldest}
        return {"sent": sent, "waiting": self._waiting[-_MOST_WAITING:]}


def _deliver(config: AlertConfig, alert: Alert, log: Callable[[str], None]) -> None:
    if isinstance(config, WebhookAlert):
        post(config, alert)
    elif isinstance(config, EmailAlert):
        send(config, alert)
    else:
        log(alert.text)


def wanted(configs: Iterable[AlertConfig], *events: str) -> bool:
    """Whether anybody is to know of one of these events."""
    return any(not {*events}.isdisjoint(config.on_events) for config in configs)
