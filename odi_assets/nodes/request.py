"""What a run is asked to do: one request goes from shell, UI, sensor or backfill to each node.

Dagster carries it in run tags, so the shell and the UI ask in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

from odi_assets.errors import ConfigError

if TYPE_CHECKING:
    from odi_assets.delta.table import TableHandle

FULL_REFRESH_TAG = "odi/full_refresh"
RESUME_TAG = "odi/resume"
ADOPT_TAG = "odi/adopt"
ACCEPT_LOSS_TAG = "odi/accept_loss"
FROM_TAG, TO_TAG = "odi/from", "odi/to"
PARTITION_TAG = "odi/partition"


@dataclass(frozen=True)
class Bounds:
    """A half-open range of time, ``start <= time < end``, both in UTC."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, start: str | date | datetime, end: str | date | datetime) -> Bounds:
        """Bounds from dates, times or their ISO texts.

        Raises:
            ConfigError: one is not a date or time, or the range is empty.
        """
        bounds = cls(_moment(start), _moment(end))
        if bounds.start >= bounds.end:
            raise ConfigError(f"the range from {start} to {end} holds nothing", fix="the end comes after the start")
        return bounds

    def __str__(self) -> str:
        return f"from {_short(self.start)} until before {_short(self.end)}"


@dataclass(frozen=True)
class RunRequest:
    """How nodes are to be run; by default, they take in what is new.

    Attributes:
        full_refresh: read the sources from the beginning and replace the tables.
        resume: leave out nodes that succeeded in the last run and for which nothing changed.
        bounds: run only this range, and leave the HWMs as they are.
        partitions: run only these partitions of a column of values, and leave the HWMs as they are; with ``bounds``,
            what they have in this range.
        adopt: first take over tables and HWMs whose node, project or source changed; their rows are the same.
        accept_loss: a full refresh may take rows out of the tables that the sources no longer give.
        inputs_wait: nodes above it were looked at in this run, had nothing to read, and have no table yet.
        until: by source, where it ended when the run began; for the later steps of a run that commits several.
        log: the change log that the node applies, as it is open for all nodes of the run (see ``AppliedLogs``); None:
            the node opens it.
    """

    full_refresh: bool = False
    resume: bool = False
    bounds: Bounds | None = None
    adopt: bool = False
    accept_loss: bool = False
    inputs_wait: bool = False
    until: Mapping[str, Any] = field(default_factory=dict)
    log: TableHandle | None = field(default=None, compare=False, repr=False)
    partitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.full_refresh and self.is_bounded:
            raise ConfigError(
                f"a full refresh replaces the whole table, and this run is bounded ({self.part})",
                fix="run it without partitions or range, or without the full refresh",
            )
        if self.resume and (self.full_refresh or self.is_bounded):
            repeated = "everything" if self.full_refresh else f"a part ({self.part})"
            raise ConfigError(
                f"a resumed run leaves out what is done, and this one is to do {repeated} again",
                fix="ask for one of the two",
            )

    @property
    def is_bounded(self) -> bool:
        """Whether only a part of the rows is run, which no HWM measures."""
        return self.bounds is not None or bool(self.partitions)

    @property
    def part(self) -> str:
        """The part that a bounded run is of, in words; empty for other runs.

        Example:
            >>> RunRequest(bounds=Bounds.of("2024-01-01", "2024-01-02"), partitions=("eu",)).part
            'from 2024-01-01 until before 2024-01-02, of the partition eu'
        """
        words = [] if self.bounds is None else [str(self.bounds)]
        if self.partitions:
            words.append(f"of the partition{'s' * (len(self.partitions) > 1)} {', '.join(self.partitions)}")
        return ", ".join(words)

    @property
    def tags(self) -> dict[str, str]:
        """The run tags that carry it."""
        tags = {
            FULL_REFRESH_TAG: self.full_refresh,
            RESUME_TAG: self.resume,
            ADOPT_TAG: self.adopt,
            ACCEPT_LOSS_TAG: self.accept_loss,
        }
        run_tags = {tag: "true" for tag, wanted in tags.items() if wanted}
        if self.bounds is not None:
            run_tags |= {FROM_TAG: self.bounds.start.isoformat(), TO_TAG: self.bounds.end.isoformat()}
        if self.partitions:
            run_tags[PARTITION_TAG] = _listed(self.partitions)
        return run_tags

    @classmethod
    def of_run(
        cls,
        tags: Mapping[str, str],
        *,
        full_refresh: bool = False,
        adopt: bool = False,
        accept_loss: bool = False,
        bounds: Bounds | None = None,
        partitions: Sequence[str] = (),
    ) -> RunRequest:
        """The request in the tags of a run, its launchpad's switches and its partitions.

        Args:
            bounds, partitions: what the run's partitions in Dagster are.

        Raises:
            ConfigError: a tag has a wrong value, or two of them exclude each other.
        """
        range_tags = [tag for tag in (FROM_TAG, TO_TAG) if tag in tags]
        if len(range_tags) == 1:
            raise ConfigError(
                f"the run has the tag {range_tags[0]} alone", fix=f"a range needs {FROM_TAG} and {TO_TAG}"
            )
        tagged = [*range_tags, *[tag for tag in (PARTITION_TAG,) if tag in tags]]
        if tagged and (bounds is not None or partitions):
            raise ConfigError(f"this run has partitions and the tag {tagged[0]}", fix="give one of the two")
        bounds = Bounds.of(tags[FROM_TAG], tags[TO_TAG]) if range_tags else bounds
        partitions = partitions_in(tags) or tuple(partitions)
        switched: dict[str, bool] = {}
        for tag in (FULL_REFRESH_TAG, RESUME_TAG, ADOPT_TAG, ACCEPT_LOSS_TAG):
            value = tags.get(tag, "false").strip().lower()
            if value not in ("true", "false"):
                raise ConfigError(f"the run tag {tag} is `{value}`", fix="set it to true or false", tag=value)
            switched[tag] = value == "true"
        return cls(
            full_refresh or switched[FULL_REFRESH_TAG],
            switched[RESUME_TAG],
            bounds,
            adopt or switched[ADOPT_TAG],
            accept_loss or switched[ACCEPT_LOSS_TAG],
            partitions=tuple(partitions),
        )


def partitions_in(tags: Mapping[str, str]) -> tuple[str, ...]:
    """The partitions that the tags of a run name: one as it is, several as a list in JSON.

    Raises:
        ConfigError: the tag holds no such list.
    """
    text = tags.get(PARTITION_TAG, "")
    if not text.startswith("["):
        return (text,) if text else ()
    try:
        partitions = json.loads(text)
    except ValueError:
        partitions = None
    if not partitions or not all(isinstance(partition, str) for partition in partitions):
        raise ConfigError(
            f"the run tag {PARTITION_TAG} is `{text}`, which is no list of texts", fix='write it as ["eu", "us"]'
        )
    return tuple(partitions)


def partition_label(bounds: tuple[str, str] | None, partitions: Sequence[str]) -> str | None:
    """The part that a run was of, as run history names it; None for a run of what is new.

    Example:
        >>> partition_label(("2024-01-01", "2024-01-02"), ["eu"]), partition_label(None, ["eu", "us"])
        ('2024-01-01...2024-01-02|eu', 'eu,us')
    """
    words = [*(["...".join(bounds)] if bounds else []), *([",".join(partitions)] if partitions else [])]
    return "|".join(words) or None


def _listed(partitions: Sequence[str]) -> str:
    alone = len(partitions) == 1 and not partitions[0].startswith("[")
    return partitions[0] if alone else json.dumps(list(partitions), ensure_ascii=False)


def _moment(value: str | date | datetime) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ConfigError(
                f"{value!r} is not a date or a time", fix="write it as 2013-01-31 or 2013-01-31T05:00"
            ) from error
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return in_utc(value)


def in_utc(moment: datetime) -> datetime:
    """``moment`` in UTC; without a zone, it is taken as UTC.

    Raises:
        ConfigError: in UTC it is outside the years 1 to 9999.
    """
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ConfigError(f"{moment.isoformat()} is no time of the years 1 to 9999 in UTC") from error


def _short(moment: datetime) -> str:
    return (
        moment.date().isoformat() if moment.time() == time() else moment.replace(tzinfo=None).isoformat("T", "minutes")
    )
