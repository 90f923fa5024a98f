"""Who is to know what: ``alerts`` of the project file. Names are Odibi's where Odibi has one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema, model_validator

from odi_assets.config.diagnostics.mistakes import mistake, one_of, refuse
from odi_assets.config.models.fields import Address, Secret, Strict, Text

EVENTS = {
    "on_failure": "a run failed, or its process was killed",
    "on_success": "a run succeeded",
    "on_quarantine": "a run put rows into a quarantine",
    "on_stale": "a table has no new rows for longer than its `freshness` allows",
    "on_lag": "a node has not read for `automation.max_lag` what is new, or a capture is beyond `log.warn_lag`",
    "on_given_up": "the sensor requests no more runs of a node, because `max_attempts` of them failed",
}
"""What an alert may be about."""
_INSTEAD = {
    "on_gate_block": "is no event here: a check that blocks fails the run, so take `on_failure`",
    "on_threshold_breach": "is no event here: take `on_stale` or `on_lag`",
    "on_start": "is no event here: take `on_success` and `on_failure`",
}


def _check_event(event: Any) -> Any:
    if event not in EVENTS:
        text = _INSTEAD.get(event) if isinstance(event, str) else None
        raise refuse(event, text or f"is no event: write {one_of(EVENTS)}")
    return event


_EVENTS_SCHEMA = [{"const": event, "description": f"When {text}."} for event, text in EVENTS.items()]
Event = Annotated[str, BeforeValidator(_check_event), WithJsonSchema({"anyOf": _EVENTS_SCHEMA})]


def _check_url(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("https://", "http://")):
        raise mistake("is no address of the web: it begins with `https://`")
    return url


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Addresses = Annotated[
    tuple[Address, ...],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class AlertMetadata(Strict):
    """How often, and whom in particular; Odibi's names."""

    throttle_minutes: int = Field(
        default=15, ge=0, description="Minutes in which the same event of the same pipeline is not repeated."
    )
    max_per_hour: int = Field(default=10, ge=1, description="Alerts of one event of one pipeline in an hour.")
    channel: Text | None = Field(default=None, description="Of Slack: another channel than the webhook's.")
    mention: _Addresses = Field(default=(), description="Of Teams: people who are mentioned in every alert.")
    mention_on_failure: _Addresses = Field(default=(), description="Of Teams: the same, in alerts of failures alone.")


class _Alert(Strict):
    on_events: tuple[Event, ...] = Field(default=("on_failure",), min_length=1, description=f"Any of {one_of(EVENTS)}.")
    metadata: AlertMetadata = Field(default=AlertMetadata(), description="How often, and whom in particular.")


class WebhookAlert(_Alert):
    """A POST of JSON: to Slack, to a workflow of Teams, or to anything else."""

    type: Literal["slack", "teams", "teams_workflow", "webhook"]
    url: Annotated[Secret, AfterValidator(_check_url)] = Field(
        description="Where the alert is posted; it holds a secret, so write `${VARIABLE}`."
    )


class EmailAlert(_Alert):
    """An e-mail, handed to a mail server."""

    type: Literal["email"]
    host: Text = Field(description="The mail server.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection to the server is encrypted."
    )
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="587 for `starttls`, 465 for `tls`, 25 for `none`, unless given."
    )
    user: Text | None = Field(default=None, description="Who signs in at the server.")
    password: Secret | None = Field(default=None, description="The user's password; write `${VARIABLE}`.")
    sender: Address = Field(alias="from", description="Who the e-mail is from.")
    to: _Addresses = Field(min_length=1, description="Who gets it.")

    @model_validator(mode="after")
    def _signs_in_with_both(self) -> EmailAlert:
        if (self.user is None) != (self.password is None):
            key = "user" if self.password is None else "password"
            raise mistake("needs the other one of `user` and `password`", at=(key,))
        if self.password is not None and self.security == "none":
            raise mistake("would be sent in clear text: choose `starttls` or `tls` for `security`", at=("password",))
        return self

    @property
    def server_port(self) -> int:
        """The port of the mail server."""
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.security]


class LogAlert(_Alert):
    """A line in the log of the sensor's tick."""

    type: Literal["log"]


AlertConfig = Annotated[WebhookAlert | EmailAlert | LogAlert, Field(discriminator="type")]
