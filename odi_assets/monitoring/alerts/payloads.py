"""An alert in the forms of Slack, Teams, other webhooks and e-mail."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from email.message import EmailMessage
from typing import Any

from odi_assets.config.models import EmailAlert, WebhookAlert
from odi_assets.monitoring.alerts.alert import Alert


def payload(config: WebhookAlert, alert: Alert) -> Mapping[str, Any]:
    """What is posted."""
    return _FORMS[config.type](config, alert)


def _plain(config: WebhookAlert, alert: Alert) -> Mapping[str, Any]:
    """Odibi's keys, and ours."""
    del config
    return {
        "pipeline": alert.subject.partition(".")[0],
        "status": alert.status,
        "message": alert.message,
        "timestamp": alert.at,
        "event_type": alert.event,
        "project": alert.project,
        "environment": alert.environment,
        "subject": alert.subject,
        "facts": dict(alert.facts),
    }


def _slack(config: WebhookAlert, alert: Alert) -> Mapping[str, Any]:
    text = alert.text
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, written)
    channel = config.metadata.channel
    return {"text": text, **({"channel": channel} if channel else {})}


def _teams(config: WebhookAlert, alert: Alert) -> Mapping[str, Any]:
    """A card, as a workflow of Teams takes it."""
    of_failures = config.metadata.mention_on_failure if alert.is_trouble else ()
    people = list(dict.fromkeys((*config.metadata.mention, *of_failures)))
    facts = [{"title": name, "value": value} for name, value in alert.facts.items()]
    body: list[Mapping[str, Any]] = [
        {"type": "TextBlock", "text": alert.title, "weight": "Bolder", "wrap": True},
        {"type": "TextBlock", "text": alert.message, "wrap": True},
        *([{"type": "FactSet", "facts": facts}] if facts else []),
    ]
    mentions = [
        {"type": "mention", "text": f"<at>{person}</at>", "mentioned": {"id": person, "name": person}}
        for person in people
    ]
    if mentions:
        body.append({"type": "TextBlock", "text": " ".join(str(mention["text"]) for mention in mentions), "wrap": True})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "msteams": {"width": "Full", "entities": mentions},
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


_FORMS: Mapping[str, Callable[[WebhookAlert, Alert], Mapping[str, Any]]] = {
    "webhook": _plain,
    "slack": _slack,
    "teams": _teams,
    "teams_workflow": _teams,
}


def email(config: EmailAlert, alert: Alert) -> EmailMessage:
    """The e-mail."""
    message = EmailMessage()
    message["Subject"] = " ".join(alert.title.split())
    message["From"], message["To"] = config.sender, ", ".join(config.to)
    message["Date"] = datetime.fromisoformat(alert.at)
    # The same at each try: readers show an e-mail once that a slow server took twice.
    digest = hashlib.sha256(json.dumps([alert.to_json(), config.to]).encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{config.sender.rpartition('@')[2]}>"
    message.set_content(f"{alert.text}\n\n{alert.at}\n")
    return message
