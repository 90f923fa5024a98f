"""Keeps Dagster from reporting a materialization that did not happen. The one place that leans on a private name.

Dagster 1.13 writes a materialization event for every output of an asset. A node that found nothing new must still
give its output, or Dagster skips the nodes below it, and one of them may be behind after a killed run. Dagster itself
leaves the event out when the output carries the metadata key below (it uses it for observed source assets), so we
set that key. ``test_suppression.py`` fails when a Dagster release changes this.
"""

from __future__ import annotations

from typing import cast

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

PLANNED: dict[str, str] = {"odi/stage": "computed"}
"""Metadata every output starts with: Dagster hands an empty mapping to IO managers as a copy, a filled one as it is."""


def suppress_materialization(context: dg.OutputContext) -> None:
    """From within ``handle_output``: give the output without a materialization event of its own.

    The output must have been made with :data:`PLANNED` as metadata.
    """
    metadata = cast("dict[str, dg.MetadataValue]", context.output_metadata)
    metadata[SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION] = dg.MetadataValue.bool(True)
