"""The oracle: what docs promise of a landing zone, in plain Python.

A file is known by its path and its content. One that is gone while its time and its bytes are found under another name
was moved: it gives the rows that it gave, unless its folders give other values. All else that is not known is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.change_sweep.world import Config, Expected, NodeAt, Row
from benchmarks.change_sweep.zone.listing import FileThen

Files = Mapping[str, FileThen]


@dataclass
class Known(Expected):
    """What a table must hold, and what its node read of the landing zone or of the table above.

    Attributes:
        loaded: by path, the files that were loaded; of a node that follows a column, those whose folders it knows.
        mark: the greatest ``v`` that was read.
        above: the rows of the table above, as the node read it last.
    """

    loaded: dict[str, FileThen] = field(default_factory=dict)
    mark: int = 0
    above: Counter[Row] = field(default_factory=Counter)


@dataclass(frozen=True)
class Arrivals:
    """The files of a landing zone, compared with those that were loaded.

    Attributes:
        new: files to be loaded.
        rewritten: paths of loaded files that have other content.
        shifted: by path, where a loaded file was, before it moved to folders of other values.
        moved: by path, where a loaded file was that gives the same rows.
        gone: paths of loaded files that are nowhere.
    """

    new: frozenset[str]
    rewritten: frozenset[str]
    shifted: Mapping[str, str]
    moved: Mapping[str, str]
    gone: frozenset[str]

    @property
    def changed(self) -> frozenset[str]:
        """Files that were loaded and give other rows now."""
        return self.rewritten.union(self.shifted)


def arrivals(loaded: Files, now: Files, columns: Collection[str]) -> Arrivals:
    """What came, went and moved since files were ``loaded``."""
    absent = [path for path, file in loaded.items() if path not in now or now[path].data != file.data]
    arrived = [path for path in now if path not in loaded or path in absent]
    pairs: dict[str, str] = {}
    for keeps_values in (True, False):
        for path in sorted(set(arrived) - pairs.keys()):
            for old in sorted(set(absent) - set(pairs.values())):
                same = now[path].values(columns) == loaded[old].values(columns)
                if now[path].content == loaded[old].content and same == keeps_values:
                    pairs[path] = old
                    break
    shifted = {path: old for path, old in pairs.items() if now[path].values(columns) != loaded[old].values(columns)}
    left = set(absent) - set(pairs.values())
    rewritten = {path for path in left if path in now and path not in pairs}
    return Arrivals(
        frozenset(arrived) - pairs.keys() - rewritten,
        frozenset(rewritten),
        shifted,
        {path: old for path, old in pairs.items() if path not in shifted},
        frozenset(left - rewritten - shifted.keys()),
    )


def rule(at: NodeAt) -> str:
    """What a node does about files that give other rows now."""
    default = "raise" if at.node["write"]["mode"] == "append" else "reload"
    return str(at.increment.get("on_change", default))


def columns_of(at: NodeAt) -> list[str]:
    """The columns of a node that reads files."""
    return [column.split()[0] for column in at.node["read"]["schema"].split(", ")]


def reasons_to_stop(at: NodeAt, known: Known, now: Files) -> list[str]:
    """Why a run of a node over ``files`` has to stop; empty if it must not."""
    found, is_reload = arrivals(known.loaded, now, columns_of(at)), rule(at) == "reload"
    if rule(at) == "raise" and found.changed:
        return [f"other rows in {', '.join(sorted(found.changed))}"]
    works = found.new or (is_reload and found.changed)
    if at.node["write"]["mode"] == "partition_overwrite" and works and found.gone:
        return [f"gone: {', '.join(sorted(found.gone))}"]
    return []


def after_run(at: NodeAt, known: Known, now: Files) -> tuple[Counter[Row], dict[str, FileThen]]:
    """What the table of a node over ``files`` holds after a run, and the files that are loaded then."""
    columns = columns_of(at)
    found, mode = arrivals(known.loaded, now, columns), at.node["write"]["mode"]
    take = found.new | (found.changed if rule(at) == "reload" else frozenset())
    keeps = found.rewritten - take
    left = {*found.shifted.values(), *found.moved.values()}
    stay = {path: file for path, file in known.loaded.items() if path not in left}
    loaded = {**stay, **{path: file for path, file in now.items() if path not in keeps}}
    if not take:
        return known.wanted, loaded
    if mode == "overwrite":
        return whole(at, now.values()), loaded
    if mode == "partition_overwrite":
        touched = {_k(one) for path in take for one in now[path].rows(columns)}
        rows = whole(at, now.values())
        kept = Counter() if found.changed else _where(known.wanted, touched, inside=False)
        return (rows if found.changed else kept + _where(rows, touched)), loaded
    return joined(at.node["write"], known.wanted, [now[path] for path in take], columns), loaded


def whole(at: NodeAt, files: Iterable[FileThen]) -> Counter[Row]:
    """A table that is made of all ``files``."""
    return joined(at.node["write"], Counter(), files, columns_of(at), once="transform" in at.node)


def joined(
    write: Config,
    rows: Counter[Row],
    files: Iterable[FileThen],
    columns: Collection[str],
    above: int = 0,
    *,
    once: bool = False,
) -> Counter[Row]:
    """``rows`` with those of ``files``, the oldest first.

    Args:
        above: rows up to this ``v`` are left out.
        once: the transform leaves one row of each key, see ``ONE_OF_A_KEY``.
    """
    result, ordered = Counter(rows), sorted(files, key=lambda file: (file.content[0], file.path))
    new = [one for file in ordered for one in file.rows(columns) if v(one) > above]
    for one in {_id(one): one for one in sorted(new, key=_newest_last)}.values() if once else new:
        there = [row for row in result if _id(row) == _id(one)] if "keys" in write else []
        if there and write["mode"] == "append_once":
            continue
        for row in there:
            del result[row]
        result[one] += 1
    return result


ONE_OF_A_KEY = (
    "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY {order}) AS n FROM df) WHERE n = 1"
)
"""SQL that leaves the newest row of each key."""


def _newest_last(one: Row) -> tuple[int, int, bool, str]:
    k = _k(one)
    return v(one), int(dict(one)["w"]), k is not None, k or ""


def keys_come_twice(at: NodeAt, now: Files) -> bool:
    """Whether two rows of files have one key, and nothing says which of them is the newest."""
    ids = [_id(one) for one in rows_of(now.values(), columns_of(at))]
    return "keys" in at.node["write"] and "transform" not in at.node and len(set(ids)) < len(ids)


def by_cursor(at: NodeAt, known: Known, now: Files) -> tuple[Counter[Row], dict[str, FileThen]]:
    """What the table of a node that reads files by the column ``v`` holds after a run, and the files that it knows."""
    columns, write, files = columns_of(at), at.node["write"], now.values()
    fresh = [one for file in files for one in file.rows(columns) if v(one) > known.mark]
    by_partitions = write["mode"] == "partition_overwrite"
    moved = _moved(known.loaded, now) if by_partitions else set()
    if not fresh and not moved:
        return known.wanted, known.loaded
    if by_partitions:
        touched, rows = {*map(_k, fresh), *moved}, whole(at, files)
        kept = _where(known.wanted, touched, inside=False)
        return kept + _where(rows, touched), _with_gone(known.loaded, now)
    if write["mode"] == "overwrite":
        return whole(at, files), known.loaded
    once = "transform" in at.node
    return joined(write, known.wanted, files, columns, known.mark, once=once), known.loaded


_Place = tuple[str | None, tuple[int, int]]
"""A folder's ``k``, and by what a file in it is known: its time and its size."""


def _place(file: FileThen) -> _Place:
    return file.values(["k"]).get("k"), (file.content[0], len(file.data))


def _moved(then: Files, now: Files) -> set[str | None]:
    """The values of ``k`` that files moved between: one is in a folder less, and in another one more."""
    before, after = Counter(map(_place, then.values())), Counter(map(_place, now.values()))
    left, came = before - after, after - before
    both = {facts for _, facts in left} & {facts for _, facts in came}
    return {k for k, facts in [*left, *came] if facts in both}


def _with_gone(then: Files, now: Files) -> dict[str, FileThen]:
    """The files that are there ``now``, and those that were there ``then`` and are nowhere."""
    before, after = Counter(map(_place, then.values())), Counter(map(_place, now.values()))
    left, came = before - after, {facts for _, facts in after - before}
    found = dict(now)
    for name, file in then.items():
        place = _place(file)
        if left[place] > 0 and place[1] not in came:
            left[place] -= 1
            found[f"gone {len(found)}/{name}"] = file
    return found


def greatest(rows: Iterable[Row], mark: int) -> int:
    """The greatest ``v``, and at least ``mark``."""
    return max([mark, *map(v, rows)])


def v(one: Row) -> int:
    """The cursor of a row."""
    return int(dict(one)["v"])


def _id(one: Row) -> str:
    return dict(one)["id"]


def _k(one: Row) -> str | None:
    return dict(one).get("k")


def _where(rows: Counter[Row], values: Collection[str | None], *, inside: bool = True) -> Counter[Row]:
    return Counter({one: count for one, count in rows.items() if (_k(one) in values) == inside})


def holding(known: Known, rows: Counter[Row]) -> Known:
    """``known``, of a table with these rows."""
    once = frozenset(rows)
    return replace(known, rows=once, repeated=rows - Counter(once))


def up_to(mark: int, rows: Counter[Row]) -> Counter[Row]:
    """The rows that do not lie above a mark."""
    return Counter({one: count for one, count in rows.items() if v(one) <= mark})


def rows_of(files: Iterable[FileThen], columns: Collection[str]) -> Iterator[Row]:
    """The rows of files."""
    return (one for file in files for one in file.rows(columns))
