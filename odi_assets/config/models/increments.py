"""Increments: how a node goes on from what it read before."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from odi_assets.config.diagnostics.mistakes import mistake
from odi_assets.config.models.durations import Ahead, Lag, Span
from odi_assets.config.models.fields import Columns, Names, Strict, Text, ValueText

Boundary = Literal["open", "closed"]
OnNull = Literal["raise", "include", "exclude"]
DateFormat = Literal["oracle", "sql_server", "us", "eu", "iso"]
OnChange = Literal["raise", "reload", "ignore"]
OnAhead = Literal["stop", "hold"]
OnNullCursors = Literal["raise", "snapshot", "exclude"]
CTID = "ctid"
"""PostgreSQL's column of a row's place in its table."""

_STATE_KEY = "Key of the high-water mark in the state backend; `<pipeline>.<node>` unless given."


class ClockGuard(Strict):
    """Keeps a high-water mark of a date or a time from running ahead of the clock."""

    max_ahead: Ahead = Field(
        default=timedelta(days=1),
        description="How far ahead of now a high-water mark of a date or time may be; `none`: any distance.",
    )
    on_ahead: OnAhead = Field(
        default="stop",
        description="Rows with a cursor further ahead: stop the run, or load each once its time has come (`hold`).",
    )

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.max_ahead is None and self.on_ahead == "hold":
            raise mistake("holds no row with `max_ahead: none`: leave one of them out", at=("on_ahead",))
        return self

    @model_serializer(mode="wrap")
    def _unless_given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without newer settings that have their default: code versions and fingerprints stay what they are."""
        return {name: value for name, value in serialize(self).items() if name not in _NEWER or self._is_set(name)}

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


_NEWER = frozenset({"max_ahead", "on_ahead", "on_change"})


class StatefulIncrement(ClockGuard):
    """``HWM < column <= upper``, where upper is fixed before reading."""

    DEFAULTS: ClassVar = {"lookback": None, "unit": None}

    mode: Literal["stateful"]
    column: Text = Field(description="Cursor column: grows with every new or changed row.")
    fallback_column: Text | None = Field(default=None, description="Used where `column` is null.")
    initial_value: ValueText | None = Field(
        default=None,
        description="Where the first run begins, this value included; typed by the column. Without it: everything.",
    )
    boundary: Boundary = Field(
        default="open",
        description="`closed`: rows tied with the high-water mark that come later are read too, each once.",
    )
    on_null: OnNull = Field(
        default="raise",
        description="Rows without a cursor: stop the run, load each once (`include`), or drop and count (`exclude`).",
    )
    date_format: DateFormat | None = Field(
        default=None, description="How dates are written in a text column; they are compared as dates, in UTC."
    )
    type: Literal["text"] | None = Field(
        default=None, description="`text`: a cursor of files without a type is compared as text, `10` before `9`."
    )
    state_key: Text | None = Field(default=None, description=_STATE_KEY)
    watermark_lag: Lag | None = Field(
        default=None, description="How far behind the high-water mark to read again, for rows that come late: `2h`."
    )
    on_change: Literal["raise", "ignore"] | None = Field(
        default=None,
        description="A Delta table whose loaded rows are other ones since it was rewound, overwritten or restored: "
        "stop the run (the rule), or go on above the high-water mark.",
    )

    @model_validator(mode="after")
    def _text_has_no_clock(self) -> Self:
        if self.type == "text" and self.on_ahead == "hold":
            raise mistake("is for cursors of dates and times, which `type: text` is not", at=("on_ahead",))
        return self


_ONE_OR_MORE = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
_Columns = Annotated[
    Names,
    _ONE_OR_MORE,
    Field(min_length=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]


class ChunksConfig(Strict):
    """How the first read of a table is cut into chunks."""

    by: _Columns | None = Field(
        default=None,
        description="Columns whose ranges are the chunks, or `ctid` of PostgreSQL; the primary key unless given.",
    )
    rows: int = Field(default=1_000_000, ge=1, description="About how many rows a chunk has.")
    pieces: int = Field(
        default=4, ge=1, le=256, description="Parts of a large chunk that are read side by side, a connection each."
    )
    chunks_per_commit: int = Field(
        default=1, ge=1, le=256, description="Chunks that are read side by side, and written in one commit."
    )


class CursorsIncrement(ClockGuard):
    """A snapshot of a table in chunks, then the rows above the greatest value of each of its cursor columns.

    The maxima do not depend on each other, and are taken before the snapshot. The first cursor of a row that is not
    NULL says whether the row is new.
    """

    mode: Literal["cursors"]
    columns: _Columns = Field(
        description="Cursor columns; the first that is not null counts. One at least grows with every new or changed "
        "row.",
    )
    on_null: OnNullCursors = Field(
        default="raise",
        description="Rows without any cursor: stop the run; read them in the snapshot, and never later (`snapshot`); "
        "or drop and count (`exclude`).",
    )
    watermark_lag: Lag | None = Field(
        default=None, description="How far behind the maxima to read again, for rows that come late: `2h`."
    )
    snapshot: ChunksConfig = Field(default=ChunksConfig(), description="How the first read is cut into chunks.")
    state_key: Text | None = Field(default=None, description=_STATE_KEY)


class RollingWindowIncrement(Strict):
    """The last ``lookback`` units of ``column``, counted back from now in UTC; keeps no HWM."""

    DEFAULTS: ClassVar = {"fallback_column": None, "state_key": None, "watermark_lag": None, "date_format": None}

    mode: Literal["rolling_window"]
    column: Text = Field(description="Date or timestamp column.")
    lookback: int = Field(gt=0, description="Length of the window, in units.")
    unit: Literal["minute", "hour", "day", "week", "month", "year"] = Field(
        default="day", description="Unit of the window."
    )


class FilesIncrement(Strict):
    """Files that were not loaded yet, whatever their time of change."""

    mode: Literal["files"]
    settle: Span = Field(
        default=timedelta(0), description="Files that changed less than this ago are left for a later run: `30s`."
    )
    on_change: OnChange | None = Field(
        default=None,
        description="Files rewritten after they were loaded, or moved to other folders like `k=1`: stop the run "
        "(the rule with `append`), load them again (the rule otherwise; `append` keeps their former rows too), or "
        "leave what was loaded (not with `overwrite` and `partition_overwrite`, which read loaded files again).",
    )
    state_key: Text | None = Field(default=None, description=_STATE_KEY)


class VersionIncrement(Strict):
    """Rows that an upstream Delta table gained in commits after the last one read."""

    mode: Literal["version"]
    state_key: Text | None = Field(default=None, description=_STATE_KEY)


class DrivingCursor(Strict):
    """A stream of a cursor document. The node reads when it has moved forward and its first snapshot is complete."""

    document: Text = Field(
        description="The document, as in `olake/state.json`: relative to the project file or `connection`, or a URI."
    )
    stream: Text = Field(description="The stream, as the document names it: `public.orders`.")
    connection: Text | None = Field(default=None, description="Connection that the document and the catalog are on.")
    catalog: Text | None = Field(
        default=None, description="OLake's `streams.json`: it has streams without a snapshot, and types of cursors."
    )
    numbers: Columns = Field(
        default=(),
        description="Cursor columns of numbers that the document has as texts. Columns of `read.schema` "
        "and of the node's table are known.",
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


CursorIncrement = StatefulIncrement | RollingWindowIncrement
"""Increments that follow a cursor column."""

_SHORT_FORM = BeforeValidator(lambda value: {"mode": value} if isinstance(value, str) else value)
"""``version`` is short for ``{mode: version}``."""

Increment = Annotated[
    StatefulIncrement | CursorsIncrement | RollingWindowIncrement | FilesIncrement | VersionIncrement,
    Field(discriminator="mode"),
    _SHORT_FORM,
]
InputIncrement = Annotated[
    StatefulIncrement | RollingWindowIncrement | VersionIncrement,
    Field(discriminator="mode"),
    _SHORT_FORM,
]
