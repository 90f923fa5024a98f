"""The asset that a source is in Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from odi_assets.config.diagnostics.mistakes import mistake
from odi_assets.config.models.fields import Owner, Strict, Text


def _parts(value: Any) -> Any:
    return tuple(value.split("/")) if isinstance(value, str) else value


def _not_empty(parts: tuple[str, ...]) -> tuple[str, ...]:
    if not parts or any(not part or "/" in part for part in parts):
        raise mistake("is no asset key: write its parts with `/` between them, as in `dlt/orders`, or as a list")
    return parts


AssetKeyParts = Annotated[
    tuple[str, ...],
    BeforeValidator(_parts),
    AfterValidator(_not_empty),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]}),
]
"""The key of an asset of Dagster: `dlt/orders`, or `[dlt, orders]`."""


class SourceAsset(Strict):
    """The asset that a source is in Dagster: chosen here, in the place of one that connection and path name.

    With a `key` alone, the asset is somebody else's: what lands the rows, if an asset of that key is defined beside the
    project. With `group`, `owner` or `upstream`, it is the project's own, and nobody else may define it.
    """

    key: AssetKeyParts | None = Field(default=None, description="Key of the asset: `dlt/orders`, or `[dlt, orders]`.")
    group: Annotated[Text, Field(pattern="^[A-Za-z0-9_]+$")] | None = Field(
        default=None, description="Group of the asset; `sources` unless given."
    )
    owner: Owner | None = Field(default=None, description="E-mail address or `team:name`.")
    owners: tuple[Owner, ...] = Field(default=(), description="Several owners.")
    upstream: tuple[AssetKeyParts, ...] = Field(default=(), description="Keys of the assets that it is made of.")

    @model_validator(mode="before")
    @classmethod
    def _accept_key(cls, data: Any) -> Any:
        return data if isinstance(data, Mapping | SourceAsset) else {"key": data}

    @property
    def every_owner(self) -> list[str]:
        """Its owners, each once."""
        return list(dict.fromkeys([*([self.owner] if self.owner else []), *self.owners]))

    @property
    def is_elsewhere(self) -> bool:
        """Whether somebody else defines the asset."""
        return self.key is not None and not (self.group or self.every_owner or self.upstream)
