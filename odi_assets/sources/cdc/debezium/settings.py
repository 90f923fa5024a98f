"""The keys of a ``read`` of Debezium's envelopes, from files or from topics of Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from odi_assets.config.captured_tables import kept_tables
from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes
from odi_assets.config.models.connections import KafkaConnection, StoreConnection
from odi_assets.config.models.fields import Columns, Text
from odi_assets.config.models.increments import FilesIncrement
from odi_assets.config.models.read_options import hidden_parts
from odi_assets.config.models.reads import ReadConfig, SourceKind
from odi_assets.sources.cdc.debezium.columns import named

if TYPE_CHECKING:
    from odi_assets.config.models.connections import Connection
    from odi_assets.config.models.nodes import NodeConfig

_NO_MEANING = "has no meaning for `format: debezium`"
_OF_OTHERS = ("schema", "options", "rescued", "strict", "table", "query", "partition_column", "pieces", "columns")
UNAVAILABLE = "__debezium_unavailable_value"


class DebeziumRead(ReadConfig):
    """The changes of tables, as Debezium writes them: files of JSON, an envelope a line, or topics of Kafka."""

    INCREMENTS: ClassVar = frozenset({"files"})
    NEEDS: ClassVar = "any"
    READS: ClassVar = "files"
    CAPTURES: ClassVar = True
    MISPLACED: ClassVar = {
        **dict.fromkeys(_OF_OTHERS, _NO_MEANING),
        "snapshot": f"{_NO_MEANING}: Debezium makes snapshots, and their rows are changes of `op` r",
    }

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["path"]}, {"required": ["topics"]}]},
    )

    incremental: FilesIncrement | None = Field(
        default=None, description="How files are followed, as in `{mode: files, settle: 1m}`: each is read once."
    )
    path: Text | None = Field(default=None, description="Path of the files; may be a glob, as in `topics/**/*.json`.")
    topics: Columns = Field(
        default=(),
        description="Topics of Kafka: `shop.public.orders`, `shop.public.*`; with `!` in front, topics that are left "
        "out.",
    )
    tables: Columns = Field(
        default=(),
        description="Tables whose changes are taken, as in `public.orders`, `public.*`; with `!` in front, tables that "
        "are left out. Without it: all.",
    )
    keys: dict[Text, Columns] = Field(
        default_factory=dict,
        description="By table, the columns of its key, where the key of a change does not stand beside it.",
    )
    types: dict[Text, dict[Text, Text]] = Field(
        default_factory=dict,
        description="By table and column, the type, where no schema is beside a change, as in `integer`, "
        "`numeric(10,2)`, `MicroTimestamp`; a column without one is text.",
    )
    unavailable: Text = Field(
        default=UNAVAILABLE, description="What stands for a value that did not change and that the log does not have."
    )

    @model_validator(mode="before")
    @classmethod
    def _files_are_followed(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("path") and data.get("incremental") is None:
            return {**data, "incremental": {"mode": "files"}}
        return data

    @model_validator(mode="after")
    def _is_one_source(self) -> DebeziumRead:
        read_mistakes = hidden_parts(self.path) if self.path else []
        if bool(self.path) == bool(self.topics):
            read_mistakes.append(
                Mistake("needs one of `path`, for files, and `topics`, for a connection of type kafka")
            )
        if self.topics and not kept_tables(self.topics):
            read_mistakes.append(Mistake("names no topic that is not left out", at=("topics",)))
        if self.topics and self.incremental is not None:
            text = "is for files: a topic is followed by its offsets"
            read_mistakes.append(Mistake(text, at=("incremental",), where="key"))
        if self.incremental is not None and self.incremental.on_change == "reload":
            text = "would repeat changes that are in the log: leave it out"
            read_mistakes.append(about("reload", text, at=("incremental", "on_change")))
        for table, columns in self.types.items():
            for column, name in columns.items():
                try:
                    named(name)
                except ValueError as error:
                    read_mistakes.append(Mistake(str(error), at=("types", table, column)))
        if read_mistakes:
            raise mistakes(read_mistakes)
        return self

    @property
    def captured(self) -> tuple[str, ...]:
        """The entries of ``tables`` that name tables, without those that others leave out."""
        return kept_tables(self.tables)

    @property
    def stored_at(self) -> str:
        return self.path or ""

    @property
    def place(self) -> str:
        return self.path or "topics"

    @property
    def shown(self) -> str:
        return self.path or ", ".join(kept_tables(self.topics))

    @property
    def places(self) -> dict[str, str]:
        return (
            {self.path: self.path}
            if self.path
            else {topic.replace(".", "/"): topic for topic in kept_tables(self.topics)}
        )

    def stream_mistakes(self) -> Iterator[Mistake]:
        text = "cannot be read as a stream: write its changes with a node, and stream that table"
        yield Mistake(text, at=("format",))

    def mistakes_with(self, node: NodeConfig, connection: Connection | None) -> Iterator[Mistake]:
        del node
        if connection is None:
            return
        if self.topics and not isinstance(connection, KafkaConnection):
            yield about(self.connection, "has no topics: name a connection of type kafka", at=("connection",))
        if self.path and not isinstance(connection, StoreConnection):
            yield about(self.connection, "holds no files: name a connection of files", at=("connection",))


DEBEZIUM = SourceKind(DebeziumRead, "odi_assets.sources.cdc.debezium.source:debezium_source")
