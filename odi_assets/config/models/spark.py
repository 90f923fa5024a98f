"""Spark's settings in a project file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, mistakes
from odi_assets.config.models.fields import Names, Option, Strict, Text

REQUIRED_CONF: Mapping[str, str] = {
    # Stored instants must not depend on the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, carries no minimum and maximum in the footer.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Else filters are pushed down to files as java.sql.Date and Timestamp, whose calendar has no 5 to 14 October 1582:
    # files with such days would be left out.
    "spark.sql.datetime.java8API.enabled": "true",
}
"""Settings without which a table or a checkpoint is read or written wrongly; a project cannot override them."""

_ZONE = "spark.sql.session.timeZone"
_SAME = {_ZONE: {"utc", "etc/utc", "gmt", "z", "+00:00"}}


def other_values(conf: Mapping[str, object]) -> Iterator[Mistake]:
    """The settings of a ``conf`` that a run would not take."""
    for key, value in REQUIRED_CONF.items():
        own = str(conf.get(key, value)).lower()
        if own != value.lower() and own not in _SAME.get(key, ()):
            why = f"is {value} in every run: tables and marks must not depend on it"
            zone = "; text in another zone is read with `timeZone` in `read.options`" if key == _ZONE else ""
            yield Mistake(f"{why}{zone}", at=("conf", key))


class SparkConfig(Strict):
    """Spark settings of this project."""

    master: Text | None = Field(default=None, description="Spark master, as in `local[4]`.")
    remote: Text | None = Field(default=None, description="Spark Connect address, as in `sc://host:15002`.")
    conf: dict[str, Option] = Field(default_factory=dict, repr=False, description="Spark configuration.")
    packages: Names = Field(
        default=(),
        description="JARs that a new session fetches from Maven, as in `org.postgresql:postgresql:42.7.8`; nothing is "
        "fetched unless it is named here.",
    )

    @model_validator(mode="after")
    def _check_conf(self) -> SparkConfig:
        if conf_mistakes := list(other_values(self.conf)):
            raise mistakes(conf_mistakes)
        return self
