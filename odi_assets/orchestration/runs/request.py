"""What a run is asked for beyond "what is new": said in run tags, so that the shell and Dagster's UI ask alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.time_range import Bounds

FULL_REFRESH_TAG = "odi/full_refresh"
RESUME_TAG = "odi/resume"
FROM_TAG, TO_TAG = "odi/from", "odi/to"


@dataclass(frozen=True)
class Request:
    """How nodes are to be run.

    Attributes:
        full_refresh: read the sources from the beginning and replace the tables.
        resume: leave out what succeeded in the last run and for which nothing changed.
        bounds: run just this range, and leave the HWMs alone.
    """

    full_refresh: bool = False
    resume: bool = False
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        if self.full_refresh and self.bounds is not None:
            raise ConfigError(
                f"a full refresh replaces the whole table, and this run is bounded ({self.bounds})",
                fix="run it without partitions or range, or without the full refresh",
            )
        if self.resume and (self.full_refresh or self.bounds is not None):
            again = "everything" if self.full_refresh else f"a range ({self.bounds})"
            raise ConfigError(
                f"a resumed run leaves out what is done, and this one is to do {again} again",
                fix="ask for one of the two",
            )

    @property
    def tags(self) -> dict[str, str]:
        """The run tags that say so."""
        tags = {FULL_REFRESH_TAG: self.full_refresh, RESUME_TAG: self.resume}
        found = {tag: "true" for tag, wanted in tags.items() if wanted}
        if self.bounds is not None:
            found |= {FROM_TAG: self.bounds.start.isoformat(), TO_TAG: self.bounds.end.isoformat()}
        return found


def request_of(tags: Mapping[str, str], *, full_refresh: bool = False, partitions: Bounds | None = None) -> Request:
    """What the tags of a run ask for, together with its launchpad's switch and its partitions.

    Raises:
        ConfigError: a tag cannot be read, or they do not go together.
    """
    given = [tag for tag in (FROM_TAG, TO_TAG) if tag in tags]
    if len(given) == 1:
        raise ConfigError(f"the run tag {given[0]} stands alone", fix=f"a range needs {FROM_TAG} and {TO_TAG}")
    bounds = Bounds.of(tags[FROM_TAG], tags[TO_TAG]) if given else None
    if bounds is not None and partitions is not None:
        raise ConfigError(f"this run has partitions and the tag {FROM_TAG}", fix="give one of the two")
    return Request(full_refresh or _switch(tags, FULL_REFRESH_TAG), _switch(tags, RESUME_TAG), bounds or partitions)


def _switch(tags: Mapping[str, str], tag: str) -> bool:
    value = tags.get(tag, "false").strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"the run tag {tag} is `{value}`", fix="set it to true or false", tag=value)
    return value == "true"
