"""Keeps Dagster from reporting a materialization that did not happen. The one place that uses a private name of it.

Dagster 1.13 writes a materialization event for every output of an asset. A node that found nothing new must still give
its output, or Dagster skips the nodes downstream, one of which may be behind after a killed run. Dagster writes no such
event if the output has the metadata key below (it uses it for observed source assets), so we set that key.
``test_suppression.py`` fails when a Dagster release changes this.
"""

from __future__ import annotations

from typing import cast

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

_HOLDS_PLACE = "planned"
PLANNED: dict[str, bool] = {_HOLDS_PLACE: True}
"""Initial metadata of every output: IO managers get a copy of an empty mapping, but a filled mapping itself."""


def without_placeholder(context: dg.OutputContext) -> None:
    """Call it first in ``handle_output``: nobody is shown :data:`PLANNED`."""
    cast("dict[str, dg.MetadataValue]", context.output_metadata).pop(_HOLDS_PLACE, None)


def suppress_materialization(context: dg.OutputContext) -> None:
    """Call it in ``handle_output``: the output then has no materialization event of its own.

    The output must have been made with :data:`PLANNED` as metadata.
    """
    metadata = cast("dict[str, dg.MetadataValue]", context.output_metadata)
    metadata[SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION] = dg.MetadataValue.bool(True)
