"""The settings of nodes that apply a change log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import mistake
from odi_assets.config.models.fields import Names, Strict, Text


class ApplyConfig(Strict):
    """A table of a database, made of the change log that a node with `format: cdc` writes.

    With ``tables``, the file has one node for several tables: it is written out before the models see it.
    """

    changes: Text = Field(description="The node that captures: `node` of this pipeline, or `pipeline.node`.")
    table: Text = Field(default="", description="Table of the database, as in `public.orders`.")
    tables: Names = Field(
        default=(),
        description="Several tables, a node for each: the node's `name` and its table's place have `{table}` in them.",
    )
    history: bool = Field(
        default=False, description="Keep every version of a row, with its operation and its time, and replace none."
    )

    @model_validator(mode="after")
    def _names_a_table(self) -> ApplyConfig:
        if self.tables and self.table:
            raise mistake("is there beside `table`: give one of them", at=("tables",))
        if self.tables:
            raise mistake("make a node each: write `{table}` in the `name` of the node", at=("tables",))
        if not self.table:
            raise mistake("names no table: add `table`, or `tables`")
        return self


KEYS_OF_LOG = "*"
"""In ``write.keys`` of a node that applies a change log: the keys that the log says."""


_LOGS = ("cdc", "debezium")
"""Formats of a ``read`` that makes a change log."""


def written_out(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node with what there is no choice about: a log is appended and partitioned by table; a node that applies one
    follows its versions, and upserts by its keys."""
    read, apply, write = data.get("read"), data.get("apply"), data.get("write")
    if not isinstance(write, Mapping):
        return data
    if isinstance(read, Mapping) and read.get("format") in _LOGS:
        return {**data, "write": {"mode": "append", "partition_by": ["table"], **write}}
    if not isinstance(apply, Mapping):
        return data
    source = {"node": apply.get("changes"), "incremental": {"mode": "version"}}
    if apply.get("history"):
        how: dict[str, Any] = {"mode": "append", "schema": "evolve"}
    else:
        how = {"mode": "upsert", "keys": [KEYS_OF_LOG], "delete_when": "_deleted", "schema": "evolve"}
    if write.get("mode", how["mode"]) != how["mode"]:
        # The checks say what is wrong with it.
        how = {}
    return {"inputs": {"changes": source}, **data, "write": {**how, **write}}
