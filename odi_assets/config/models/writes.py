"""How a node's rows are written to its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes, one_of
from odi_assets.config.models.fields import Columns, Strict, Text
from odi_assets.config.write_modes import WriteMode

SchemaPolicy = Literal["fail", "evolve", "ignore"]
"""What happens when a node's rows have other columns than its table."""


class WriteConfig(Strict):
    """The node's Delta table. ``keys`` identify a row: needed by upsert and append_once."""

    DEFAULTS: ClassVar = {
        "table": None,
        "register_table": None,
        "zorder_by": [],
        "table_properties": {},
        "merge_schema": False,
        "overwrite_schema": False,
        "first_run_query": None,
        "options": {},
        "auto_optimize": None,
        "add_metadata": None,
        "skip_if_unchanged": False,
        "skip_hash_columns": None,
        "skip_hash_sort_columns": None,
        "streaming": None,
        "merge_keys": None,
        "merge_options": None,
        "overwrite_options": None,
    }

    connection: Text = Field(description="Name of a connection.")
    path: Text = Field(description="Folder of the table, under the connection.")
    format: Literal["delta"] = Field(default="delta", description="Tables are Delta tables.")
    mode: WriteMode = Field(default=WriteMode.OVERWRITE, description="What happens to rows that are there already.")
    keys: Columns = Field(
        default=(), description="Columns that identify a row; `merge_keys` and `options: {keys: …}` are taken too."
    )
    partition_by: Columns = Field(default=(), description="Columns that the table is partitioned by.")
    schema_policy: SchemaPolicy = Field(
        default="fail",
        alias="schema",
        description="Rows with other columns than the table: `fail`, `evolve` (new columns join the table), "
        "`ignore` (new columns are left out).",
    )
    delete_when: Text | None = Field(
        default=None, description="Boolean column, of upsert: where it is true, the row with these keys is deleted."
    )
    only_if_newer: Text | None = Field(
        default=None, description="Column, of upsert: a row replaces the stored one only if its value is greater."
    )

    @model_validator(mode="before")
    @classmethod
    def _rename_keys(cls, data: Any) -> Any:
        """Take Odibi's ``merge_keys`` and ``options: {keys: …}`` for ``keys``."""
        if not isinstance(data, Mapping):
            return data
        renamed = dict(data)
        key_paths: list[tuple[str, ...]] = []
        options = data.get("options")
        if isinstance(options, Mapping) and "keys" in options:
            others = [name for name in options if name != "keys"]
            if others:
                text = "unknown key: only `keys` is taken here"
                raise mistakes(Mistake(text, at=("options", name), where="key") for name in others)
            key_paths.append(("options", "keys"))
            renamed["keys"] = renamed.pop("options")["keys"]
        if data.get("merge_keys") is not None:
            key_paths.append(("merge_keys",))
            renamed["keys"] = renamed.pop("merge_keys")
        if len(key_paths) + ("keys" in data) > 1:
            raise mistakes([Mistake("gives the keys a second time: keep `keys`", at=key_paths[0], where="key")])
        return renamed

    @model_validator(mode="after")
    def _check_columns(self) -> WriteConfig:
        column_mistakes: list[Mistake] = []
        for name, columns in {"keys": self.keys, "partition_by": self.partition_by}.items():
            lower = [column.lower() for column in columns]
            twice = [i for i, column in enumerate(lower) if column in lower[:i]]
            column_mistakes += [about(columns[i], "is there twice", at=(name, i)) for i in twice]
        if self.mode.traits.needs_keys and not self.keys:
            column_mistakes.append(Mistake(f"`{self.mode}` needs `keys`: the columns that identify a row"))
        if {"delete_when", "only_if_newer", "schema_policy"} & self.model_fields_set:
            column_mistakes += self._misplaced_options()
        if column_mistakes:
            raise mistakes(column_mistakes)
        return self

    def _misplaced_options(self) -> list[Mistake]:
        option_mistakes = []
        for name in ("delete_when", "only_if_newer"):
            column = getattr(self, name)
            if column is None:
                continue
            if not self.mode.traits.edits_rows:
                modes = one_of(f"mode: {mode}" for mode in WriteMode if mode.traits.edits_rows)
                option_mistakes.append(Mistake(f"is for {modes}, and this node writes `{self.mode}`", at=(name,)))
            elif column.lower() in [key.lower() for key in self.keys]:
                option_mistakes.append(
                    about(column, "is one of `keys`: it cannot tell rows of one key apart", at=(name,))
                )
        if self.delete_when and self.delete_when.lower() in [
            *(column.lower() for column in self.partition_by),
            *([self.only_if_newer.lower()] if self.only_if_newer else []),
        ]:
            option_mistakes.append(about(self.delete_when, "is a marker and is not stored", at=("delete_when",)))
        if self.mode.traits.replaces_columns and "schema_policy" in self.model_fields_set:
            option_mistakes.append(
                Mistake(f"has no say in `mode: {self.mode}`, which replaces the columns too", at=("schema",))
            )
        return option_mistakes
