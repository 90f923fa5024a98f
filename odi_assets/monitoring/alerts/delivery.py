"""Hands an alert to Slack, Teams, another webhook or a mail server. What goes wrong is said without a secret: the
address of a webhook is one."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from odi_assets.config.models import EmailAlert, WebhookAlert
from odi_assets.errors import OdiError, Transient
from odi_assets.monitoring.alerts.alert import Alert
from odi_assets.monitoring.alerts.payloads import email, payload

TIMEOUT = 8.0
"""Seconds that a server may take."""


class DeliveryError(OdiError, Transient):
    """An alert could not be delivered."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, and be lost."""

    def redirect_request(self, *request: Any) -> None:
        del request


def post(config: WebhookAlert, alert: Alert) -> None:
    """Post an alert.

    Raises:
        DeliveryError: the server cannot be reached, or does not take it.
    """
    body = json.dumps(payload(config, alert)).encode()
    trouble = None
    try:
        request = urllib.request.Request(
            config.url.get_secret_value(), body, {"Content-Type": "application/json", "User-Agent": "odi_assets"}
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        trouble = f"the server answered {_status(error.code)}"
        error.close()
    except (OSError, HTTPException, ValueError) as error:
        trouble = f"the server cannot be reached: {_reason(error)}"
    # Outside of `except`: no cause, whose text may have the address, goes with it.
    raise DeliveryError(trouble, fix="correct `url` of the alert")


def send(config: EmailAlert, alert: Alert) -> None:
    """Hand an alert to a mail server.

    Raises:
        DeliveryError: the server cannot be reached, or does not take it.
    """
    trouble = None
    try:
        with _server(config) as server:
            if config.user is not None and config.password is not None:
                server.login(config.user, config.password.get_secret_value())
            refused = server.send_message(email(config, alert))
        if not refused:
            return
        trouble = f"the mail server refused {', '.join(refused)}"
    except smtplib.SMTPRecipientsRefused as error:
        trouble = f"the mail server refused {', '.join(error.recipients)}"
    except smtplib.SMTPResponseException as error:
        trouble = f"the mail server answered {error.smtp_code} ({type(error).__name__})"
    except (OSError, ValueError) as error:
        trouble = f"the mail server cannot be reached: {_reason(error)}"
    raise DeliveryError(trouble, fix="correct `host`, `port`, `security`, `user` and `password` of the alert")


def _server(config: EmailAlert) -> smtplib.SMTP:
    if config.security == "tls":
        return smtplib.SMTP_SSL(config.host, config.server_port, timeout=TIMEOUT, context=ssl.create_default_context())
    server = smtplib.SMTP(config.host, config.server_port, timeout=TIMEOUT)
    if config.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _status(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _reason(error: BaseException) -> str:
    """Why, without what the error says of the address."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    return getattr(error, "strerror", None) or type(error).__name__
