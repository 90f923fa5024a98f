"""What a ``read`` with ``format: debezium`` names: files of envelopes, or topics of Kafka."""

from __future__ import annotations

from typing import Any

from odi_assets.config.models.connections import KafkaConnection
from odi_assets.sources.cdc.debezium.envelopes import EnvelopeRules
from odi_assets.sources.cdc.debezium.files import EnvelopeFiles
from odi_assets.sources.cdc.debezium.settings import DebeziumRead
from odi_assets.sources.cdc.debezium.topics import Topics
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.source import Source, SourceContext


def debezium_source(read: DebeziumRead, context: SourceContext) -> Source:
    """The source that a ``read`` of Debezium's envelopes names."""
    rules = EnvelopeRules(read, context.label, context.target.node)
    if isinstance(context.connection, KafkaConnection):
        return Topics(**context.common(read), rules=rules, server=context.connection)
    # The format is that of the files; what is read is said by `settings`.
    location: dict[str, Any] = {"path": str(read.path), "format": FileFormat.JSON, "base": context.locate("")}
    return EnvelopeFiles(**context.common(read), **location, rules=rules)
