"""What every kind of source answers, without Spark: identity, position, and what is new above a mark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from odi_assets.config.models import FilesIncrement, Increment, StatefulIncrement, VersionIncrement
from odi_assets.config.write_modes import WriteMode
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError, SourceError
from odi_assets.nodes.planning.identity import difference
from odi_assets.sources.cursor.bounds import Bound
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.files.source import LandingFiles
from odi_assets.sources.marks import Mark
from odi_assets.sources.reads import PlannedRead, Read
from odi_assets.sources.source import Source, Target
from odi_assets.state.values import decode, encode

STATEFUL = StatefulIncrement(mode="stateful", column="id")


@dataclass(frozen=True)
class Kind:
    """One kind of source in a folder that may move: how it is made, and how rows come to it."""

    make: Callable[[Path], Source]
    gain: Callable[[Path, int], None]


def target(folder: Path) -> Target:
    return Target("p.n", Location(str(folder / "target")), WriteMode.APPEND.traits, keys=())


def parquet(folder: Path, number: int) -> None:
    place = folder / "landing" / "e"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [number]}), place / f"{number}.parquet")


def files(increment: Increment | None) -> Callable[[Path], Source]:
    return lambda folder: LandingFiles(
        name="df",
        label="landing:e/*.parquet",
        target=target(folder),
        increment=increment,
        format=FileFormat.PARQUET,
        base=Location(str(folder / "landing")),
        path="e/*.parquet",
    )


def commit(folder: Path, number: int) -> None:
    write_deltalake(str(folder / "table"), pa.table({"id": [number]}), mode="append")


def table(increment: Increment | None) -> Callable[[Path], Source]:
    return lambda folder: DeltaTableSource(
        name="up",
        label="p.up",
        target=target(folder),
        increment=increment,
        location=Location(str(folder / "table")),
    )


KINDS = {
    "files, each once": Kind(files(FilesIncrement(mode="files")), parquet),
    "files, by a column": Kind(files(STATEFUL), parquet),
    "a table, by version": Kind(table(VersionIncrement(mode="version")), commit),
    "a table, by a column": Kind(table(STATEFUL), commit),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def stored(source: Source, read: PlannedRead) -> Mark:
    """The mark once ``read`` is in the target, as it comes back from state and the commit."""
    assert isinstance(read, Read)
    assert read.after is not None
    read.before_commit()
    value = encode(read.after.value)
    return source.mark(decode(value.json, value.type), read.remembered())


def test_what_was_read_is_not_new_and_what_comes_later_is(tmp_path: Path, kind: Kind) -> None:
    source = kind.make(tmp_path)
    kind.gain(tmp_path, 1)
    first = source.plan(None)
    assert not first.nothing_new
    mark = stored(source, first)
    assert source.plan(mark).nothing_new
    kind.gain(tmp_path, 2)
    # A source is made for one plan, which sees one version of it.
    later = kind.make(tmp_path)
    second = later.plan(mark)
    assert (second.nothing_new, second.before) == (False, mark)
    assert kind.make(tmp_path).plan(stored(later, second)).nothing_new


def test_a_position_stays_until_rows_come(tmp_path: Path, kind: Kind) -> None:
    source = kind.make(tmp_path)
    kind.gain(tmp_path, 1)
    then = source.position()
    assert (source.position(), source.change_since(then)) == (then, None)
    kind.gain(tmp_path, 2)
    assert source.position() != then
    assert source.change_since(then)


def test_a_mark_measures_the_same_after_everything_moved(tmp_path: Path, kind: Kind) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    kind.gain(here, 1)
    before = kind.make(here)
    identity, mark = before.identity, stored(before, before.plan(None))
    shutil.move(here, there)
    after = kind.make(there)
    assert difference(identity, after.identity, moved=False) is None
    assert after.plan(mark).nothing_new


def test_a_mark_says_what_it_measures(tmp_path: Path, kind: Kind) -> None:
    source = kind.make(tmp_path)
    kind.gain(tmp_path, 1)
    first = source.plan(None)
    assert isinstance(first, Read)
    assert first.after is not None
    assert first.after.measures == source.identity
    again = source.plan(stored(source, first))
    assert isinstance(again, Read)
    assert again.after is not None
    assert again.after.measures == source.identity


def test_another_cursor_is_another_thing_to_measure(tmp_path: Path, kind: Kind) -> None:
    kind.gain(tmp_path, 1)
    other = StatefulIncrement(mode="stateful", column="seq")
    make = files if kind.gain is parquet else table
    assert kind.make(tmp_path).identity != make(other)(tmp_path).identity
    assert kind.make(tmp_path).identity.kind == make(other)(tmp_path).identity.kind


def test_a_read_of_everything_moves_no_mark(tmp_path: Path, kind: Kind) -> None:
    kind.gain(tmp_path, 1)
    whole = kind.make(tmp_path).whole()
    assert (whole.follows, whole.before, whole.after, whole.moves) == (False, None, None, False)


def test_a_source_that_is_not_there_is_an_error_where_rows_are_needed(tmp_path: Path) -> None:
    for make in (files(None), files(STATEFUL), table(None), table(STATEFUL)):
        with pytest.raises(SourceError):
            make(tmp_path).plan(None)


def test_a_table_that_its_node_has_not_made_yet_has_nothing_new(tmp_path: Path) -> None:
    read = table(VersionIncrement(mode="version"))(tmp_path).plan(None)
    assert (read.nothing_new, read.after, read.summary) == (True, None, "p.up does not exist yet")


def test_the_bound_of_a_column_needs_no_spark_where_statistics_tell_it(tmp_path: Path) -> None:
    for make, gain in ((files, parquet), (table, commit)):
        gain(tmp_path, 1)
        gain(tmp_path, 7)
        source = make(STATEFUL)(tmp_path)
        assert source.snapshot().bound_by_statistics(STATEFUL) == ("long", Bound(7, 0))
        assert source.plan(None).summary == "id <= 7"


def test_a_mark_of_another_kind_is_refused_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(IncrementError, match=r"needs `mtime_ns` and `path`[\s\S]*odi state set"):
        files(FilesIncrement(mode="files"))(tmp_path).mark(7, {})
    with pytest.raises(IncrementError, match=r"needs a `version`[\s\S]*odi state set"):
        table(VersionIncrement(mode="version"))(tmp_path).mark("2024-01-01", {})
