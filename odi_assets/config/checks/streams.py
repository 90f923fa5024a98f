"""Stream nodes: settings that do not fit the node's inputs or its table, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odi_assets.config.checks.view import NodeView
from odi_assets.config.diagnostics.mistakes import Mistake, about, closest
from odi_assets.config.models import FileFormat, ReadConfig, StreamSettings, WriteMode

_TAKEN_OPTIONS = {
    "latestfirst": "takes the newest files first, and rows of the older ones would come too late",
    "maxfilespertrigger": "has a key of its own: `max_files_per_batch` of the input, in `stream.inputs`",
    "maxbytespertrigger": "is not taken: use `max_files_per_batch` of the input, in `stream.inputs`",
    "cleansource": "is not taken: the files show later why a row is missing",
}
"""Options of Spark's file streams that lose rows or have a key of their own, in lower case."""

_MODES: dict[WriteMode, tuple[str, ...]] = {
    WriteMode.APPEND: ("append",),
    WriteMode.APPEND_ONCE: ("append",),
    WriteMode.UPSERT: ("append", "update"),
    WriteMode.OVERWRITE: ("complete",),
    WriteMode.PARTITION_OVERWRITE: (),
}
"""By write mode, the output modes whose batches it can take."""


def mistakes_of(node: NodeView) -> Iterator[Mistake]:
    """Find what is wrong with the stream settings of a node, and inputs that only a stream node may have."""
    stream = node.config.stream
    if stream is None:
        text = "is for stream nodes: add `stream: {}`, or give it as `read` of the node"
        for view in (view for view, given in node.config.inputs.items() if given.read is not None):
            yield Mistake(text, at=(*node.path, "inputs", view, "read"), where="key")
        return
    yield from _unknown_inputs(node, stream)
    yield from _not_for_streams(node)
    yield from _output_mode(node, stream)
    for at, read in node.config.reads.items():
        yield from (replace(found, at=(*node.path, *at, *found.at)) for found in _of_read(read))


def _unknown_inputs(node: NodeView, stream: StreamSettings) -> Iterator[Mistake]:
    views = [*(["df"] if node.config.read is not None else []), *node.config.inputs]
    for name in stream.inputs:
        if name not in views:
            text = f"is no input of the node; there {'is' if len(views) == 1 else 'are'} {', '.join(views) or 'none'}"
            at = (*node.path, "stream", "inputs", name)
            meant = closest(name, views)
            yield Mistake(f"`{name}` {text}", plain=text, at=at, suggestion=meant, where="key")


def _not_for_streams(node: NodeView) -> Iterator[Mistake]:
    for at in node.config.increments:
        yield Mistake(
            "a stream goes on from its checkpoint: leave `incremental` out", at=(*node.path, *at), where="key"
        )
    if node.config.partition is not None:
        text = "a stream has no partitions to backfill: leave `partition` out, or give `write.partition_by`"
        yield Mistake(text, at=(*node.path, "partition"), where="key")


def _output_mode(node: NodeView, stream: StreamSettings) -> Iterator[Mistake]:
    mode, modes = node.config.write.mode, _MODES[node.config.write.mode]
    if not modes:
        yield Mistake(f"`{mode}` needs all rows of a partition, and a batch has the new ones", at=_mode_of(node))
    elif stream.output_mode not in modes:
        text = f"gives rows that `mode: {mode}` cannot take: "
        needs = {"append": "append, append_once or upsert", "update": "upsert", "complete": "overwrite"}
        text += f"write with `{needs[stream.output_mode]}`, or set `output_mode: {modes[0]}`"
        given = "output_mode" in stream.model_fields_set
        at = (*node.path, "stream", "output_mode") if given else _mode_of(node)
        yield about(stream.output_mode, text, at=at)


def _mode_of(node: NodeView) -> tuple[str | int, ...]:
    return (*node.path, "write", "mode")


def _of_read(read: ReadConfig) -> Iterator[Mistake]:
    if read.format is FileFormat.SQL:
        yield Mistake("a database cannot be read as a stream: load it with a node, and stream that", at=("format",))
    elif read.format is not FileFormat.DELTA and read.schema_ddl is None:
        yield Mistake("a stream of files needs `schema`: the columns, in Spark's DDL", absence=True)
    if read.rescued is not None:
        yield Mistake("is not for streams: load the files with a node, and stream that", at=("rescued",), where="key")
    for name in read.options:
        if name.lower() in _TAKEN_OPTIONS:
            yield Mistake(_TAKEN_OPTIONS[name.lower()], at=("options", name), where="key")
