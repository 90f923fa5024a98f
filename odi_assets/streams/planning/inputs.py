"""The inputs of a stream node, and whether its checkpoint knows them: what batches have read is not read again.

Spark knows an input by its name and a landing file by its URI. Where one of them changed and the rows did not, the next
batch would read them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.streamed import Offset, ReadBefore, StreamedSource, StreamRead, streamed
from odi_assets.streams.planning.marks import StreamMarks, in_effect, settings_of, stream_marks, stream_stamps
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.util.words import counted


def stream_inputs(node: Node) -> tuple[StreamedSource, ...]:
    """The inputs of a stream node, in the order of its sources.

    Raises:
        ConfigError: one of them cannot be read as a stream.
    """
    stream = settings_of(node)
    return tuple(streamed(source, stream.of_input(source.name)) for source in node.sources)


def planned_reads(
    node: Node, inputs: Sequence[StreamedSource], log: ProgressLog, last: StreamFacts | None
) -> dict[str, StreamRead]:
    """By input, the read of what no batch up to ``last`` has read.

    Raises:
        IdentityMismatchError: nobody knows up to where an input was read that comes back.
        SourceError, TableError: an input cannot be examined, or cannot be read on.
    """
    ends = {} if last is None else ends_at(node, [source.name for source in inputs], log, last)
    if last is not None:
        _require_remembered(node, [source.name for source in inputs if source.name not in ends], log, last)
    return {source.name: source.plan(log, ends.get(source.name)) for source in inputs}


def ends_at(node: Node, names: Iterable[str], log: ProgressLog, last: StreamFacts) -> dict[str, Offset]:
    """By input, up to where the batches up to ``last`` have read it: also one that the last ones were without.

    Raises:
        CheckpointError, StateError, TableError: it cannot be seen what batches have read.
    """
    ends = {name: offset.get("end") for name, offset in last.offsets.items()}
    ends |= log.ends(last.batch, set(names) - ends.keys())
    for _, offsets in _batches_upto(node, last) if (absent := set(names) - ends.keys()) else ():
        ends |= {name: offsets[name].get("end") for name in absent & offsets.keys() - ends.keys()}
    return {name: end for name, end in ends.items() if end is not None}


def _batches_upto(node: Node, last: StreamFacts) -> Iterator[tuple[int, Mapping[str, Mapping[str, Any]]]]:
    """The batches of a query up to ``last`` with what they have read, newest first: as ``meta_batches`` has them, and
    where that has not all of them, as the table's log does."""
    records = node.project.open_batches().of_node(str(node), last.query)
    of_query = sorted((record for record in records if record.batch <= last.batch), key=lambda record: -record.batch)
    yield from ((record.batch, record.offsets) for record in of_query)
    if of_query and of_query[-1].batch == 0:
        return
    stamps = stream_stamps(TableHandle.open(node.target.location), app_id(node.key))
    for _, commit in in_effect(stamp for stamp, _ in stamps):
        facts = commit.stream
        if facts is not None and facts.query == last.query and facts.batch <= last.batch:
            yield facts.batch, facts.offsets


def _require_remembered(node: Node, names: Sequence[str], log: ProgressLog, last: StreamFacts) -> None:
    """Raises IdentityMismatchError if one of some inputs that no batch seems to have read may have been read all the
    same: not all batches are known any more, and the checkpoint lists files of it."""
    planned = log.ends_of(max(log.planned(), default=-1)) if names else {}
    listed = [name for name in names if name not in planned and log.source_log(name)]
    # A run that was killed as it planned the first batch of an input has listed files, too.
    if not listed or any(batch == 0 for batch, _ in _batches_upto(node, last)):
        return
    raise IdentityMismatchError(
        f"{node}: its input `{listed[0]}` comes back, and nothing says any more up to where it was read; the next "
        "batch would read all of it again",
        fix=f"leave the input out; or rebuild the table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
        path=log.location.uri,
    )


def with_way_back(node: Node, target: TableHandle, error: SourceError) -> SourceError:
    """``error``; if it is that an input went back to before what the stream has read, with the batch to go back to."""
    restored, table_id = error.fields.get("restored"), error.fields.get("table_id")
    if restored is None:
        return error
    query: str | None = None
    for _, facts in stream_stamps(target, app_id(node.key)):
        if facts is None or query not in (None, facts.query):
            break
        query = facts.query
        ends = [
            end for offset in facts.offsets.values() if (end := offset.get("end")) and end.get("table_id") == table_id
        ]
        if all(int(end["version"]) <= int(restored) for end in ends):
            command = f"odi state rewind {node} --to-batch {facts.batch}"
            back = f"go back with it, and read what it has gained since: {command}"
            return SourceError(error.message, fix=f"{back}; or {error.fix}", **error.fields)
    return error


def changed_files(node: Node, reads: Iterable[PlannedRead]) -> Iterator[tuple[str, str]]:
    """The files that changed after their batch was read, in words, each with the way to read them again. Files that
    were only touched are among them: nobody has noted what they held."""
    for read in reads:
        changed = read.changed if isinstance(read, StreamRead) else {}
        read_at = _read_at(node, read.name) if changed else {}
        others = [path for path, changed_ms in changed.items() if read_at.get(path) != changed_ms]
        if others:
            yield (
                f"{counted(len(others), 'file')} of {read.snapshot.label} changed after the stream had listed "
                f"{others[0]}: what came after its batch is in no batch",
                f"odi run {node.command} --full-refresh reads all files again",
            )


def _read_at(node: Node, name: str) -> Mapping[str, int]:
    """When files of an input had changed last as their batch was read, of those that changed after it was planned."""
    read_at: dict[str, int] = {}
    stamps = stream_stamps(TableHandle.open(node.target.location), app_id(node.key))
    for _, commit in in_effect(stamp for stamp, _ in stamps):
        if commit.stream is not None:
            read_at = {**commit.stream.read_at.get(name, {}), **read_at}
    return read_at


def require_goes_on(node: Node, marks: StreamMarks) -> None:
    """Raises SourceError if the next batch cannot read on in a table: files that no batch has read were deleted, or
    rows were changed, among others.

    Raises:
        TableError: a table cannot be examined.
    """
    if marks.last is not None and marks.match.can_go_on:
        planned_reads(node, [source for source in stream_inputs(node) if source.known_by_id], marks.log, marks.last)


def unread_versions(node: Node, handle: TableHandle) -> tuple[int, ...]:
    """Versions of a table that together have all files that a stream node has not read yet.

    Raises:
        CheckpointError, TableError: it cannot be seen how far the stream has read.
    """
    return tuple(sorted({version for source, end in _ends_in(node, handle) for version in source.unread_in(end)}))


def log_needed_from(node: Node, handle: TableHandle) -> int | None:
    """The oldest version of a table that its log has to hold for the next batches of a stream node; None if it reads
    nothing of the table, or has not begun.

    Raises:
        CheckpointError, TableError: it cannot be seen how far the stream has read.
    """
    versions = (source.log_needed_from(end) for source, end in _ends_in(node, handle))
    return min((version for version in versions if version is not None), default=None)


def _ends_in(node: Node, handle: TableHandle) -> Iterator[tuple[StreamedSource, Offset]]:
    """The inputs that are this table, each with the offset up to which it is read."""
    own = [source for source in stream_inputs(node) if source.source.uri == handle.location.uri]
    if not own:
        return
    marks = stream_marks(node, TableHandle.open(node.target.location))
    last = marks.last
    ends = {} if last is None else ends_at(node, [source.name for source in own], marks.log, last)
    yield from ((source, ends[source.name]) for source in own if source.name in ends)


def read_before(
    node: Node, inputs: Sequence[StreamedSource], log: ProgressLog, last: StreamFacts, reads: Mapping[str, StreamRead]
) -> Iterator[ReadBefore]:
    """What the next batch would read again.

    Raises:
        SourceError, TableError: an input cannot be examined.
    """
    names = [source.name for source in inputs]
    ends = ends_at(node, names, log, last)
    if not last.offsets.keys() >= set(names):
        # What is new, or comes back, may be what the query has read under a name that it gave up since.
        for _, offsets in _batches_upto(node, last):
            known = {name: offset["end"] for name, offset in offsets.items() if offset.get("end") is not None}
            ends = known | ends
    strange = {
        known_source.name
        for known_source in inputs
        if known_source.name not in ends or reads[known_source.name].is_strange
    }
    # Of an input that reads on what it has read so far, nothing is another's.
    former = ends.keys() - ({known_source.name for known_source in inputs} - strange)
    for source in inputs:
        names = sorted(former - {source.name}) if source.name in strange else []
        rereads = [reread for name in names if (reread := source.read_before(log, name, ends[name])) is not None]
        # A file that was read right here is no other one; of a moved one, it is the likeliest guess.
        here = [former_read for former_read in rereads if former_read.folder == former_read.now]
        elsewhere = reads[source.name].elsewhere
        yield from here or ([elsewhere] if elsewhere is not None else filter(partial(_is_renamed, inputs), rereads))


def _is_renamed(inputs: Sequence[StreamedSource], reread: ReadBefore) -> bool:
    """Whether an input seems to be a former one with another name, in a folder of the same name elsewhere. Files of
    other inputs may have the same names: one for each day."""
    is_gone = reread.name not in {source.name for source in inputs}
    return is_gone and reread.folder.rpartition("/")[2] == reread.now.rpartition("/")[2]


def require_known(node: Node, marks: StreamMarks) -> None:
    """Raises IdentityMismatchError if the next batch would read landing files again. A table is known by its id.

    Raises:
        SourceError: an input cannot be examined.
    """
    if marks.last is not None and marks.match.can_go_on:
        inputs = [source for source in stream_inputs(node) if not source.known_by_id]
        reads = planned_reads(node, inputs, marks.log, marks.last)
        require_unread(node, tuple(read_before(node, inputs, marks.log, marks.last, reads)), marks.checkpoint.uri)


def require_unread(node: Node, rereads: Sequence[ReadBefore], checkpoint: str) -> None:
    """Raises IdentityMismatchError if the next batch would read again what batches have read."""
    if not rereads:
        return
    renamed = next((reread for reread in rereads if reread.name != reread.input), None)
    refresh = f"or rebuild the table from its sources: odi run {node.command} --full-refresh"
    if renamed is not None:
        fix = f"name the input `{renamed.name}` again, for its checkpoint knows it by this name; {refresh}"
    else:
        fix = (
            f"if they are the same files, go on after them: odi state adopt {node}; if they are others, give them "
            f"names of their own; or put `path` and `base_path` back; {refresh}"
        )
    raise IdentityMismatchError(
        f"{node}: {'; '.join(str(reread) for reread in rereads)}; the next batch would read that again",
        fix=fix,
        node=str(node),
        path=checkpoint,
    )
