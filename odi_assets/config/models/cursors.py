"""Cursor documents that start nodes: how far another tool has read, and so written what the node reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import mistake
from odi_assets.config.models.fields import Strict, Text


class DrivingCursor(Strict):
    """A stream of a cursor document. The node reads when it has moved forward and its first snapshot is complete."""

    document: Text = Field(
        description="The document, as in `olake/state.json`: relative to the project file or `connection`, or a URI."
    )
    stream: Text = Field(description="The stream, as the document names it: `public.orders`.")
    connection: Text | None = Field(default=None, description="Connection that the document and the catalog are on.")
    catalog: Text | None = Field(
        default=None, description="OLake's `streams.json`: it tells streams without a snapshot, and types of cursors."
    )
    snapshot: Literal["complete", "chunks", "none"] = Field(
        default="complete",
        description="`complete`: wait until the first snapshot is read; `chunks`: read after each finished chunk of "
        "it too; `none`: the stream has none.",
    )

    @model_validator(mode="after")
    def _one_way_to_tell(self) -> DrivingCursor:
        if self.catalog is not None and self.snapshot == "none":
            raise mistake("says that there is no snapshot, and `catalog` is there to tell: give one", at=("snapshot",))
        return self
