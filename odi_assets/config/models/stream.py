"""Stream nodes: how the inputs of a node are read as streams, and what its query keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, model_validator

from odi_assets.config.diagnostics.mistakes import Mistake, mistakes
from odi_assets.config.models.durations import Span
from odi_assets.config.models.fields import Option, Strict, Text
from odi_assets.config.spark_settings import other_values, tells_a_secret

OutputMode = Literal["append", "update", "complete"]
StateStoreKind = Literal["rocksdb", "hdfs"]

_SETTINGS_OF_CONF = {
    "spark.sql.shuffle.partitions": "state_partitions",
    "spark.sql.streaming.stateStore.providerClass": "state_store",
    "spark.sql.streaming.minBatchesToRetain": "retain_batches",
    "spark.sql.streaming.checkpointLocation": "checkpoint",
}
"""Settings of Spark that have a key of their own."""

_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


class Watermark(Strict):
    """How long a stream waits for late rows: the greatest time so far minus ``delay``."""

    column: Text = Field(description="TIMESTAMP column with the time of the row's event.")
    delay: Span = Field(description="How much later than the newest row a row may come: `2m`, `1h30m`.")

    @property
    def spark_delay(self) -> str:
        """The delay as Spark's ``withWatermark`` takes it."""
        return f"{self.delay // timedelta(milliseconds=1)} milliseconds"


class StreamInput(Strict):
    """How one input of a stream node is read."""

    where: Text | None = Field(
        default=None, description="SQL condition; rows that do not meet it are left out before the watermark."
    )
    watermark: Watermark | None = Field(default=None, description="How long the stream waits for late rows.")
    max_files_per_batch: int | None = Field(
        default=None, ge=1, description="How many new files one batch takes at most; all there are unless given."
    )
    on_change: Literal["raise", "ignore"] = Field(
        default="raise",
        description="Of a table: versions that change or remove rows stop the run, or are passed over (`ignore`).",
    )


class HealthLimits(Strict):
    """What a stream's state and checkpoint may come to; beyond a limit, the node's asset check fails."""

    max_state_rows: int | None = Field(default=None, ge=0, description="Rows in the state, of all operators.")
    max_rows_dropped: int | None = Field(default=None, ge=0, description="Rows of one batch that came too late.")
    max_watermark_lag: Span | None = Field(
        default=None, description="How far the watermark may be behind the clock: `2h`."
    )
    max_stuck_batches: int | None = Field(
        default=None, ge=0, description="Batches in a row that read something and left the watermark where it was."
    )
    max_skew: float | None = Field(
        default=None, ge=1, description="Rows of the fullest partition of the state over the mean. Reads the state."
    )
    max_snapshot_lag: int | None = Field(
        default=None, ge=0, description="Versions of a state store since its last snapshot: what a restart replays."
    )
    max_files: int | None = Field(default=None, ge=0, description="Files in the checkpoint.")
    max_bytes: int | None = Field(default=None, ge=0, description="Bytes in the checkpoint.")
    max_commit_ms: int | None = Field(
        default=None, ge=0, description="Milliseconds of the last batch's state commits, over all partitions."
    )


class StreamSettings(Strict):
    """A node that runs as a Structured Streaming query: its checkpoint is its mark, each batch one commit."""

    inputs: dict[str, StreamInput] = Field(
        default_factory=dict, description="By view name: how an input is read. `df` is what `read` gives."
    )
    output_mode: OutputMode = Field(
        default="append",
        description="Which rows a batch gives: those that are final (`append`), those that changed (`update`, for "
        "`mode: upsert`), or all (`complete`, for `mode: overwrite`).",
    )
    state_store: StateStoreKind = Field(
        default="rocksdb", description="Where Spark keeps state: RocksDB with changelogs, or in memory (`hdfs`)."
    )
    state_partitions: int | None = Field(
        default=None, ge=1, description="Partitions of the state; the first run fixes them. Spark's 200 unless given."
    )
    retain_batches: int | None = Field(
        default=None, ge=2, description="How many batches the checkpoint keeps; Spark's 100 unless given."
    )
    checkpoint: Text | None = Field(
        default=None,
        description="Folder of the checkpoint, on the connection of the table; in the table's folder unless given.",
    )
    conf: dict[str, Option] = Field(
        default_factory=dict, repr=False, description="Spark's settings of this query, by their documented names."
    )
    late_rows: Text | None = Field(
        default=None,
        description="Table, on the connection of the node's, that keeps the rows which came below the watermark.",
    )
    unmatched_rows: Text | None = Field(
        default=None,
        description="Table, on the connection of the node's, that keeps the rows which a join gave up without a match.",
    )

    health: HealthLimits | None = Field(
        default=None, description="Limits of an asset check of the stream's state and checkpoint."
    )

    @model_validator(mode="after")
    def _check_conf(self) -> StreamSettings:
        conf_mistakes = [
            Mistake(f"has a key of its own: `{key}`", at=("conf", name), where="key")
            for name, key in _SETTINGS_OF_CONF.items()
            if name in self.conf
        ]
        shown = "is shown with its value in Spark's events: give it to all of Spark, in `spark.conf`, which hides it"
        conf_mistakes += [Mistake(shown, at=("conf", name), where="key") for name in self.conf if tells_a_secret(name)]
        conf_mistakes += other_values(self.conf)
        if self.unmatched_rows and self.state_store == "rocksdb" and str(self.conf.get(_CHANGELOG)).lower() == "false":
            why = "unmatched rows are found in the changelogs of the state: leave the setting, or `unmatched_rows`, out"
            conf_mistakes.append(Mistake(why, at=("conf", _CHANGELOG)))
        if conf_mistakes:
            raise mistakes(conf_mistakes)
        return self

    def of_input(self, name: str) -> StreamInput:
        """How the input ``name`` is read; with no settings, if none are given."""
        return self.inputs.get(name) or StreamInput()

    @property
    def paths(self) -> dict[str, str]:
        """The folders that it names on the table's connection, by key."""
        path_by_key: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "late_rows": self.late_rows,
            "unmatched_rows": self.unmatched_rows,
        }
        return {key: path for key, path in path_by_key.items() if path}
