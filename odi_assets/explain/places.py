"""What is asked, and what was found so far of keys on their way to a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_assets.explain.spans import Stay
from odi_assets.explain.verdicts import KeyVerdict, LoggedKeyChange, SearchedPlace
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_SHOWN = 3


@dataclass
class Trace:
    """What is asked, and what was found so far."""

    project: Project
    spark: SparkSession
    state: StateBackend
    keys: Sequence[str]
    places: dict[str, list[SearchedPlace]] = field(default_factory=lambda: defaultdict(list))
    """By key, in the order they were looked at."""
    at: dict[str, dict[str, SearchedPlace]] = field(default_factory=lambda: defaultdict(dict))
    """By key and name of the place."""
    changes: dict[str, list[LoggedKeyChange]] = field(default_factory=lambda: defaultdict(list))
    """By key, what change logs say of its rows."""

    def add(self, key: str, place: SearchedPlace) -> None:
        """Note a place, unless it was looked at before."""
        if place.name not in self.at[key]:
            self.places[key].append(place)
            self.at[key][place.name] = place


def present(node: Node, stay: Stay, then: str = "") -> SearchedPlace:
    """The table of a node, which has the key; ``then`` goes on with the sentence about it."""
    run = f" (run {stay.since_run[:8]})" if stay.since_run else ""
    since = f"since version {stay.since}{run}" if stay.since is not None else "since before its log begins"
    text = f"{node} has {counted(stay.rows, 'row')} of it, {since}{then}"
    return SearchedPlace(str(node), KeyVerdict.PRESENT, text, stay.rows, stay.since, stay.since_run)


def some_names(names: Sequence[str]) -> str:
    """The first of ``names``, and how many more there are."""
    more = len(names) - _FILES_SHOWN
    return ", ".join(names[:_FILES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
