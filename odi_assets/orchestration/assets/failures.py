"""Errors of nodes and assets as Dagster shows them: what is wrong and what to do come first, the stack comes after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from odi_assets.errors import OdiError
from odi_assets.orchestration.metadata import NO_HWM
from odi_assets.spark.raised import without_stacks

if TYPE_CHECKING:
    from odi_assets.nodes.run_node import NodeRun


@contextmanager
def remedy_first(asset: dg.AssetKey, run: NodeRun | None = None) -> Iterator[None]:
    """Raise an :class:`OdiError` of the block as a ``dagster.Failure``.

    The failure's description is the error's message with its remedy. Its metadata has the asset, the kind of the error
    and the remedy, and of a node what it reads and up to where it has read. The error itself is the failure's cause.

    Raises:
        dagster.Failure: the block raised an :class:`OdiError`. A retry policy holds for it as for any other error.
    """
    try:
        yield
    except OdiError as error:
        metadata = {"asset": asset.to_user_string(), "error": type(error).__name__, "remedy": error.fix}
        metadata |= _of_node(run) if run is not None else {}
        texts = {name: dg.MetadataValue.text(value) for name, value in metadata.items() if value}
        raise dg.Failure(_description(error), texts) from error


def _description(error: OdiError) -> str:
    """The remedy stands below the first line: a message of Spark may have many."""
    first, *others = without_stacks(error.message).split("\n")
    return "\n".join([first, *([f"→ {error.fix}"] if error.fix else []), *others])


def _of_node(run: NodeRun) -> dict[str, Any]:
    """What the node reads, and up to where; known once its run is planned."""
    if run.plan is None:
        return {}
    sources = [read.snapshot.label for read in run.plan.reads]
    return {"sources": ", ".join(sources), "hwm": str(run.plan.start.hwm or NO_HWM)}
