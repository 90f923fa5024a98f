"""Sources outside a pipeline: what all kinds of them have in common, and how a ``read`` finds its kind.

``format`` names the kind. Each kind has its settings, a :class:`ReadConfig`, in its own folder of ``sources/`` or in
another package; :data:`SOURCES` is the table of them. A kind is loaded when a project file has a ``read`` of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from odi_assets.config.diagnostics.mistakes import ERROR_TYPE, Mistake, closest, mistake, mistakes
from odi_assets.config.models.connections import Connection
from odi_assets.config.models.fields import Owner, Strict, Text
from odi_assets.config.models.increments import Increment
from odi_assets.errors import ConfigError
from odi_assets.util.extensions import ExtensionPoint

if TYPE_CHECKING:
    from odi_assets.config.models.nodes import NodeConfig

SOURCES = ExtensionPoint(
    group="odi_assets.sources",
    what="kind of source",
    built_in={
        **dict.fromkeys(("csv", "json", "parquet"), "odi_assets.sources.files.settings:FILES"),
        "delta": "odi_assets.sources.delta.settings:TABLE",
        "sql": "odi_assets.sources.sql.settings:DATABASE",
        "cdc": "odi_assets.sources.cdc.settings:LOG",
        "debezium": "odi_assets.sources.cdc.debezium.settings:DEBEZIUM",
    },
    wanted="`SourceKind`",
)


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


class ReadConfig(Strict):
    """A source outside the pipeline: what every kind has. A kind derives its settings from this class.

    What a subclass may override says to checks, plans and Dagster what the source is; nobody asks for its class.
    """

    DEFAULTS: ClassVar = {
        "streaming": False,
        "sql_file": None,
        "filter": None,
        "time_travel": None,
        "archive_options": {},
    }
    INCREMENTS: ClassVar[frozenset[str]] = frozenset({"stateful", "rolling_window"})
    """The modes of ``incremental`` that the source can be followed by."""
    NEEDS: ClassVar[Literal["store", "database", "any"]] = "store"
    """What its connection has to be: a place of files and tables, a database, or any."""
    READS: ClassVar[Literal["files", "table", "other"]] = "other"
    """What lies at :attr:`stored_at`: files that are read as they are, a Delta table, or anything else."""
    CAPTURES: ClassVar[bool] = False
    """Whether the node writes a change log: it captures the log of a database, or what somebody captured of one."""
    MISPLACED: ClassVar[Mapping[str, str]] = {}
    """Keys of other kinds that people write here, and what to say of them."""

    connection: Text = Field(description="Name of a connection.")
    format: Text = Field(description="Format of the source: its kind.")
    incremental: Increment | None = Field(default=None, description="Read only what is new; without it, everything.")
    asset: SourceAsset | None = Field(
        default=None,
        description="The asset that it is in Dagster: `dlt/orders` is the asset of that key, of whoever lands the "
        "rows; or `key`, `group`, `owner` and `upstream`.",
    )

    @property
    def place(self) -> str:
        """The place that assets and messages name, as a path below its connection."""
        return self.stored_at or self.format

    @property
    def stored_at(self) -> str:
        """The path of what is read in the store of its connection; empty if it is not stored there."""
        return ""

    @property
    def shown(self) -> str:
        """What is read, in words, without its connection."""
        return self.place

    @property
    def places(self) -> dict[str, str]:
        """The paths of what is read, each with what is read there, in words."""
        return {self.place: self.shown}

    @property
    def declared(self) -> str | None:
        """The columns of the rows in Spark's DDL, as far as the project file names them; None: it names none."""
        return None

    @property
    def all_columns(self) -> Mapping[str, str] | None:
        """All columns of the rows with their types in Spark's DDL; None unless the project file names all."""
        return None

    @property
    def kept_aside(self) -> str | None:
        """The column that keeps what does not fit the other columns; None if there is none."""
        return None

    @property
    def is_untyped(self) -> bool:
        """Whether its columns have no types: all of them are text, and nobody said so."""
        return False

    def asked_for(self, column: str) -> dict[str, str]:
        """How a column is read, by the name of the setting; empty if no setting says it.

        Args:
            column: in small letters.
        """
        del column
        return {}

    def why_not_followed(self, mode: str) -> str:
        """Why ``incremental`` cannot have ``mode``, which is not in :attr:`INCREMENTS`, in words."""
        if mode == "cursors":
            return f"`cursors` reads a table of a database in chunks, and `{self.format}` is none: use `stateful`"
        ways = (
            f"use {', '.join(f'`{other_mode}`' for other_mode in sorted(self.INCREMENTS))}"
            if self.INCREMENTS
            else "leave it out"
        )
        return f"`{mode}` is no way to follow `format: {self.format}`: {ways}"

    def stream_mistakes(self) -> Iterator[Mistake]:
        """Find why a stream node cannot read it."""
        yield Mistake(
            f"`{self.format}` cannot be read as a stream: load it with a node, and stream that", at=("format",)
        )

    def mistakes_with(self, node: NodeConfig, connection: Connection | None) -> Iterator[Mistake]:
        """Find what does not fit the node or the connection. Places of mistakes are keys of this ``read``.

        Args:
            connection: None if it is not readable.
        """
        del node, connection
        yield from ()

    @property
    def untyped_cursor(self) -> str | None:
        """The cursor column whose type nobody named; None if there is none."""
        increment = self.incremental
        if increment is None or increment.mode != "stateful" or increment.date_format or increment.type:
            return None
        return increment.column if self.is_untyped else None


class StoredRead(ReadConfig):
    """A source at a path of a store: what kinds of files and tables have in common."""

    path: Text = Field(description="Path under the connection; may be a glob, as in `flights/*.csv`.")

    @property
    def stored_at(self) -> str:
        return self.path


@dataclass(frozen=True)
class SourceKind:
    """A kind of source: what an entry point of the group ``odi_assets.sources`` names. Its name is the ``format``.

    Attributes:
        settings: the keys that a ``read`` of it has. Its module may import neither Spark nor a driver: commands that
            only look at the project file load it.
        source: the function that makes the source, as ``module:function``: it takes the settings and a
            ``SourceContext``, and returns a ``Source``. It is loaded when a node's source is looked at.

    Example:
        >>> SourceKind(StoredRead, "odi_sqlite.source:sqlite_source").source
        'odi_sqlite.source:sqlite_source'
    """

    settings: type[ReadConfig]
    source: str


def kind_of(name: str) -> SourceKind:
    """The kind that a ``format`` names.

    Raises:
        ConfigError: there is none, two packages have one, or its package is broken.
    """
    kind: SourceKind = SOURCES.load(name, _is_kind)
    return kind


def _is_kind(candidate: object) -> bool:
    return (
        isinstance(candidate, SourceKind)
        and isinstance(candidate.settings, type)
        and issubclass(candidate.settings, ReadConfig)
    )


def built_in_settings() -> dict[str, type[ReadConfig]]:
    """The settings of the kinds of this package, by ``format``."""
    return {name: kind_of(name).settings for name in SOURCES.built_in}


def settings_of(data: Any) -> type[ReadConfig]:
    """The model of a ``read`` as it stands in the file: of its ``format``, or of the one that was probably meant.

    It is :class:`ReadConfig` itself where that is not known, or where the package of the ``format`` is broken.
    """
    name = data.get("format") if isinstance(data, Mapping) else None
    if isinstance(name, str):
        try:
            if SOURCES.find(name) is not None:
                return kind_of(name).settings
            meant = closest(name, SOURCES.names())
            model = ReadConfig if meant is None else kind_of(meant).settings
        except ConfigError:
            return ReadConfig
        # A key that is not for it says that another kind was meant: the one of a package that is not installed.
        return ReadConfig if model.MISPLACED.keys() & data.keys() else model
    if name is not None or not isinstance(data, Mapping):
        return ReadConfig
    return max(built_in_settings().values(), key=lambda model: sum(_has(model, key) for key in data))


def _has(model: type[ReadConfig], key: object) -> bool:
    return any(key in (name, field.alias) for name, field in model.model_fields.items())


def _read_of(data: Any) -> ReadConfig:
    """The settings of a ``read``, as the model of its kind."""
    if isinstance(data, ReadConfig) or not isinstance(data, Mapping):
        return ReadConfig.model_validate(data)
    name = data.get("format")
    try:
        if isinstance(name, str) and SOURCES.find(name) is not None:
            return kind_of(name).settings.model_validate(data)
    except ConfigError as error:
        raise mistakes([Mistake(f"{error.message}; {error.fix}", at=("format",))]) from error
    model = settings_of(data)
    left = data if model is not ReadConfig else {key: data[key] for key in data if _has(ReadConfig, key)}
    raise _of_format(left, model)


def _of_format(data: Mapping[Any, Any], model: type[ReadConfig]) -> ValidationError:
    """The error of a ``read`` whose ``format`` is missing or unknown, with what else is wrong with it."""
    name = data.get("format")
    errors: list[InitErrorDetails] = []
    if name is None:
        errors.append({"type": "missing", "loc": ("format",), "input": None})
    else:
        names = SOURCES.names()
        expected = f"{', '.join(f'{known_name!r}' for known_name in names[:-1])} or {names[-1]!r}"
        errors.append({"type": "enum", "loc": ("format",), "input": name, "ctx": {"expected": expected}})
    try:
        model.model_validate(dict(data))
    except ValidationError as error:
        errors += [_copied(details) for details in error.errors(include_url=False) if details["loc"] != ("format",)]
    return ValidationError.from_exception_data("ReadConfig", errors)


def _copied(error: ErrorDetails) -> InitErrorDetails:
    """An error of pydantic as one that can be raised together with others."""
    context = error.get("ctx", {})
    kind: PydanticCustomError | str = error["type"]
    if error["type"] == ERROR_TYPE:
        kind = PydanticCustomError(ERROR_TYPE, "{text}", context)
    return {"type": kind, "loc": error["loc"], "input": error["input"], "ctx": context}


def _dumped(read: ReadConfig, info: SerializationInfo) -> dict[str, Any]:
    return read.model_dump(mode=info.mode)


Read = Annotated[
    ReadConfig,
    PlainValidator(_read_of, json_schema_input_type=ReadConfig),
    PlainSerializer(_dumped),
]
"""A ``read``, as the model of its kind."""
