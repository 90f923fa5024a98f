"""The sweep: a node loads rows, more rows land, the node is edited and runs again, and its table is judged.

A stop has to say ways on, and each that can be taken is taken, from the same state: the edit is put back, the table is
rebuilt, the edit is adopted. After it, rows land again and are loaded, and the table is judged like any other.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.reading.edits import EDITS, Edit
from benchmarks.reading.facts import Fact, declared_type, increment_of, is_below_start, key_of, options_of, wanted_of
from benchmarks.reading.world import World, more_facts
from odi_assets.errors import ConfigError, OdiError

EDITS_OF_A_BASE = 12
"""How many edits are made of one node; each begins where its first runs left it."""

KINDS = ("csv", "csv", "csv", "json", "parquet", "delta", "node", "sql", "sql")
CURSORS = ("cursors",)
"""Kinds of sources to draw from: of all sorts, and only SQL tables that are followed by cursors."""


@dataclass
class Tally:
    """What a sweep found; each finding says how to see it again."""

    edits: int = 0
    went_on: int = 0
    stopped: int = 0
    remedies: Counter[str] = field(default_factory=Counter)
    by_key: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    dead_ends: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)


def sweep(
    spark: SparkSession,
    count: int,
    seed: int,
    folder: Path,
    say: Callable[[str], None],
    server: Any = None,
    edits: Sequence[Edit] = EDITS,
    kinds: Sequence[str] = KINDS,
    at_once: int = 1,
    beside: Sequence[Edit] = (),
) -> Tally:
    """Make ``count`` edits of nodes whose seeds begin at ``seed`` and whose sources are drawn from ``kinds``.

    Args:
        at_once: how many edits one run meets together; they count as one.
        beside: edits that are made before each of them.
    """
    tally = Tally()
    kinds = [kind for kind in kinds if server is not None or kind != "sql"]
    while tally.edits < count:
        world, draw = World(folder / "world", spark, server), random.Random(seed)
        _born(world, draw, kinds)
        _of_base(world, draw, seed, count, tally, edits, at_once, beside, say)
        shutil.rmtree(folder / "world", ignore_errors=True)
        seed += 1
    return tally


def _of_base(
    world: World,
    draw: random.Random,
    seed: int,
    count: int,
    tally: Tally,
    edits: Sequence[Edit],
    at_once: int,
    beside: Sequence[Edit],
    say: Callable[[str], None],
) -> None:
    again = _may_repeat_ids(world.node)
    # Rows that the increment leaves out: only tables and typed files can have them from the beginning.
    nulls = increment_of(world.node).get("on_null") == "exclude"
    for number in range(2):
        facts = more_facts(draw, world.facts, 4, again=again and number > 0, tied=False)
        world.land(facts, without_cursor=nulls and not number)
        world.run()
    kept = world.keep()
    order = draw.sample(range(len(edits)), len(edits))
    for number in range(min(EDITS_OF_A_BASE, len(edits) // at_once)):
        if tally.edits >= count:
            return
        places = order[number * at_once : (number + 1) * at_once]
        draw_of_edits = random.Random(seed * 1000 + places[0])
        for finding in _edited(world, draw_of_edits, [*beside, *(edits[place] for place in places)], tally):
            say(f"  --seed {seed} {finding}")
        world.put_back(kept)


def _born(world: World, draw: random.Random, kinds: Sequence[str]) -> None:
    """A node of its own kind: source, increment, transform and write mode are drawn."""
    kind = draw.choice(kinds)
    replaces = ["overwrite", "partition_overwrite"] if kind != "cursors" else []
    mode = draw.choice(["append"] * 3 + ["append_once", "upsert", *replaces])
    transform = {"key": draw.choice(["id", "id + 1000"])} if draw.random() < 0.5 else None
    increment = _increment(draw, kind, mode)
    world.facts_have_x = kind in ("csv", "json") and draw.random() < 0.3
    read: dict[str, Any] = {"connection": "landing", "format": kind, "path": "in/*"}
    if kind in ("csv", "json", "parquet"):
        read["schema"] = "uid BIGINT, id BIGINT, seq BIGINT, at TIMESTAMP, day STRING, v STRING"
        read |= {"options": {"header": "true"}} if kind == "csv" else {}
        read |= {"rescued": "rest"} if world.facts_have_x or draw.random() < 0.2 else {}
    elif kind == "delta":
        read |= {"connection": "lake", "path": "source"}
    elif kind in ("sql", "cursors"):
        read = {"connection": "db", "format": "sql"}
        # Nothing but a table's key says how to cut a snapshot into chunks.
        queries = [{"query": "SELECT * FROM facts"}] if increment["mode"] == "stateful" else []
        read |= draw.choice([{"table": "facts"}, *queries])
        world.server.begin()
    write: dict[str, Any] = {"connection": "lake", "path": "n", "mode": mode}
    again = increment.get("watermark_lag") or increment.get("on_null") == "include"
    if mode in ("append_once", "upsert") or (mode == "append" and (again or draw.random() < 0.2)):
        write["keys"] = ["k"] if transform and draw.random() < 0.7 else ["id"]
        if mode == "append" and draw.random() < 0.5:
            write["keys"].append("uid")
    if mode == "upsert":
        write |= {"only_if_newer": "seq"} | ({"keys": ["v"]} if draw.random() < 0.3 else {})
    write |= {"partition_by": ["v"]} if mode == "partition_overwrite" else {}
    world.node = {"name": "n", "write": write}
    if kind == "node":
        up = {"connection": "lake", "path": "source", "format": "delta"}
        world.extra = [{"name": "up", "read": up | {"path": "none"}, "write": {"connection": "lake", "path": "source"}}]
        world.node["inputs"] = {"up": {"node": "up", "incremental": increment}}
    else:
        world.node["read"] = read | {"incremental": increment}
    if transform:
        world.node["transform"] = transform
    world.save()


def _increment(draw: random.Random, kind: str, mode: str) -> dict[str, Any]:
    if kind == "cursors":
        lags: dict[str, Any] = {"seq": 2, "at": "9d"}
        columns = draw.choice([["seq"], ["seq"], ["at"], ["seq", "at"]])
        lag = lags[columns[0]] if len(columns) == 1 and draw.random() < 0.7 else None
        return {"mode": "cursors", "columns": columns} | ({"watermark_lag": lag} if lag else {})
    if kind == "sql" and mode not in ("overwrite", "partition_overwrite") and draw.random() < 0.4:
        return {"mode": "cursors", "columns": ["seq"]} | ({"watermark_lag": 2} if mode != "append" else {})
    if draw.random() < 0.3 and kind != "sql":
        return {"mode": "files" if kind in ("csv", "json", "parquet") else "version"}
    column = draw.choice(["seq", "seq", "at", "day"]) if kind in ("csv", "json", "parquet", "sql") else "seq"
    found: dict[str, Any] = {"mode": "stateful", "column": column}
    if column == "day":
        unread = [{}] if kind != "sql" else []
        found |= draw.choice([{"date_format": "eu"}, {"date_format": "eu"}, {"date_format": "us"}, *unread])
    elif draw.random() < 0.4:
        found["boundary"] = "closed"
    elif column == "seq" and draw.random() < 0.4:
        found["watermark_lag"] = 2
    if kind in ("json", "parquet", "delta", "node") and column == "seq" and draw.random() < 0.4:
        found["on_null"] = "exclude"
    if column == "seq" and draw.random() < 0.3:
        found["initial_value"] = draw.choice(["0", "2", "4"])
    return found


def _may_repeat_ids(node: dict[str, Any]) -> bool:
    return node["write"]["mode"] in ("upsert", "append_once")


# -- one edit ----------------------------------------------------------------------------------------------------------


def _edited(world: World, draw: random.Random, edits: Sequence[Edit], tally: Tally) -> Iterator[str]:
    """Make edits and run, and where that goes on, take them back and run; findings."""
    before = json.dumps(world.node)
    unread = draw.random() < 0.6
    if unread:
        world.land(_fresh(world, draw, tied=_may_be_tied(world.node) and draw.random() < 0.5))
    said = [edit.make(world.node, draw, world) for edit in edits]
    if None in said or (json.dumps(world.node) == before and not world.comment):
        return
    world.save()
    base = f"{before}, {'rows unread' if unread else 'all read'}"
    what = f"{'; '.join(f'{edit.key}: {text}' for edit, text in zip(edits, said, strict=True))} | {base}"
    if (yield from _run_edited(world, draw, edits, tally, before, what, lands=not unread)):
        edited = json.dumps(world.node)
        if increment_of(world.node).get("mode") == "files" and _format(world.node) != _format(json.loads(before)):
            # Loaded files would have to be written again in the former format: other files, with the same rows.
            return
        world.land(_fresh(world, draw, tied=False))
        _put_back(world, before)
        yield from _run_edited(world, draw, edits, tally, edited, f"{what}, and taken back", lands=False)


def _run_edited(
    world: World, draw: random.Random, edits: Sequence[Edit], tally: Tally, before: str, what: str, *, lands: bool
) -> Generator[str, None, bool]:
    """Run after edits; findings, and whether the run went on rightly."""
    tally.edits += 1
    tally.by_key.update(edit.key for edit in edits)
    loaded = world.counts()
    try:
        if lands:
            _require_readable(world)
            world.land(_fresh(world, draw, tied=False))
        world.run()
    except ConfigError as error:
        tally.refused.append(f"{what}: {error}")
        if len(edits) == 1:
            # Two edits may contradict each other.
            yield from _needless(edits, tally, tally.refused[-1])
        return False
    except OdiError as error:
        tally.stopped += 1
        yield from _after_stop(world, draw, edits, tally, str(error), before, loaded, what)
        return False
    except Exception as error:  # noqa: BLE001  any other error is a finding
        tally.tracebacks.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        yield tally.tracebacks[-1]
        return False
    tally.went_on += 1
    found = [*_judged(world, loaded, before, tally, what)]
    yield from found
    return not found


def _format(node: dict[str, Any]) -> str | None:
    found: str | None = node.get("read", {}).get("format")
    return found


def _require_readable(world: World) -> None:
    """Raises what loading the project file raises."""
    from odi_assets.nodes.project import Project

    Project.load(world.root / "odibi.yaml")


def _fresh(world: World, draw: random.Random, *, tied: bool) -> list[Fact]:
    return more_facts(draw, world.facts, 3, again=_may_repeat_ids(world.node), tied=tied)


def _may_be_tied(node: dict[str, Any]) -> bool:
    """Whether rows that are as new as one of the last increment are read, and none of them has to be the newest."""
    return increment_of(node).get("boundary") == "closed" and node["write"].get("keys") != ["v"]


def _after_stop(
    world: World,
    draw: random.Random,
    edits: Sequence[Edit],
    tally: Tally,
    message: str,
    before: str,
    loaded: Counter[int],
    what: str,
) -> Iterator[str]:
    yield from _needless(edits, tally, f"{what}: {message}")
    fix = message.partition("→")[2]
    if not fix:
        tally.dead_ends.append(f"{what}: no way on in {message}")
        yield tally.dead_ends[-1]
        return
    there = world.keep("stopped")
    remedies: list[tuple[str, Callable[[], None], bool]] = [("put back", lambda: _put_back(world, before), False)]
    if "--full-refresh" in fix:
        remedies.append(("full refresh", lambda: world.run(full=True), True))
    if "odi state adopt" in fix and _rows_are_same(before, world.node, world.facts):
        remedies.append(("adopt", lambda: _adopt(world), False))
    passed_over: set[int] = set()
    for name, take, full in remedies:
        findings: list[str] = []
        # What the former definition passes over, as below its mark, an adoption says that it counts as loaded.
        without = passed_over if name == "adopt" else set()
        try:
            take()
            if not full:
                world.run()
            known, then = Counter() if full else loaded, json.dumps(world.node) if name == "put back" else before
            findings += _judged(world, known, then, tally, f"{what} (after {name})", full=full, without=without)
            there_now = world.counts()
            if name == "put back":
                passed_over = {fact.uid for fact in world.facts} - there_now.keys()
            world.land(_fresh(world, draw, tied=False))
            world.run()
            now, later = json.dumps(world.node), f"{what} (a run after {name})"
            findings += _judged(world, there_now, now, tally, later, without=without)
        except ConfigError as error:
            if name == "put back":
                tally.dead_ends.append(f"{what}: {name} is refused: {error}; after {message}")
                yield tally.dead_ends[-1]
        except OdiError as error:
            # What cannot be read at all cannot be rebuilt either: then the error is about the rows, not about the HWM.
            about_rows = re.search("has text that is no date|cannot be read|is no value of", str(error))
            about_marks = "HWM" in str(error) or (name == "adopt" and "odi run" not in str(error))
            # Of two edits, a stop names one, and what is adopted is that one: the other may stop the next run.
            is_other = len(edits) > 1 and name == "adopt" and "→" in str(error) and str(error) != message
            if name == "put back" or (about_marks and not about_rows and not is_other):
                tally.dead_ends.append(f"{what}: after {name}: {error}; first {message}")
                yield tally.dead_ends[-1]
        except Exception as error:  # noqa: BLE001  any other error is a finding
            tally.tracebacks.append(f"{what}: {name}: {type(error).__name__}: {str(error)[:300]}")
            yield tally.tracebacks[-1]
        else:
            tally.remedies[name] += 1
        yield from findings
        world.put_back(there)


def _needless(edits: Sequence[Edit], tally: Tally, end: str) -> Iterator[str]:
    if all(edit.harmless for edit in edits):
        tally.needless.append(end)
        yield f"stops without need: {end}"


def _put_back(world: World, before: str) -> None:
    world.node, world.comment = json.loads(before), ""
    world.land_in_format()
    world.save()


def _adopt(world: World) -> None:
    code, err = world.command("state", "adopt", "p.n", "--yes")
    if code and "→" in err:
        # Rows that cannot be read, or not be told apart, are no rows that are the same.
        raise OdiError(f"odi state adopt: {err}")
    if code:
        raise AssertionError(f"odi state adopt ended with {code}: {err}")


def _rows_are_same(before: str, now: dict[str, Any], facts: Sequence[Fact]) -> bool:
    """Whether an edit leaves the rows, their cursors and their keys as they are: then it may be adopted."""
    then = json.loads(before)
    if not increment_of(then) or not increment_of(now):
        return False
    if _format(then) != _format(now):
        return False
    decisive = ("timestampFormat", "nullValue", "sep", "encoding")
    if any(options_of(then).get(name) != options_of(now).get(name) for name in decisive):
        return False
    cursor = increment_of(then).get("column", "")
    if declared_type(then, cursor) != declared_type(now, cursor):
        return False
    if then.get("read", {}).get("columns") != now.get("read", {}).get("columns"):
        return False
    return then["write"] == now["write"] and all(key_of(one, then) == key_of(one, now) for one in facts)


# -- the judge ---------------------------------------------------------------------------------------------------------


def _judged(
    world: World,
    loaded: Counter[int],
    before: str,
    tally: Tally,
    what: str,
    *,
    full: bool = False,
    without: Set[int] = frozenset(),
) -> Iterator[str]:
    """Findings about the table after a run that says that all is well; ``without`` rows need not be there."""
    found = _difference(world, loaded, json.loads(before), full=full, without=without)
    if found is not None:
        tally.silent.append(f"{what}: {found}")
        yield f"silent: {tally.silent[-1]}"


def _difference(
    world: World, loaded: Counter[int], then: dict[str, Any], *, full: bool, without: Set[int]
) -> str | None:
    node, counts, mode = world.node, world.counts(), world.node["write"]["mode"]
    elsewhere = set() if world.is_copied else world.alone
    wanted = wanted_of(world.facts, set(loaded), node, world.offered, then) - without - elsewhere
    if mode == "append" and not increment_of(node):
        # Each run adds all of its source: such a node is defined to.
        return f"rows {sorted(wanted - counts.keys())} are missing" if wanted - counts.keys() else None
    repeated = sorted(uid for uid, count in counts.items() if count > max(1, loaded[uid]))
    if repeated:
        return f"rows {repeated} are there more than once"
    if mode in ("upsert", "append_once") and (full or then["write"]["mode"] == mode):
        return _keyed_difference(world, set(counts), set(loaded), wanted)
    if mode in ("upsert", "append_once"):
        # What an append left stays; of the new rows, each key is there.
        keys = {key_of(fact, node) for fact in world.facts if fact.uid in counts}
        lost = [fact.uid for fact in world.facts if fact.uid in wanted and key_of(fact, node) not in keys]
        return f"rows {lost} are missing" if lost else None
    lost = sorted((wanted | (set(loaded) if mode != "overwrite" else set())) - counts.keys())
    if mode in ("append", "partition_overwrite") and then["write"]["mode"] in ("upsert", "append_once"):
        lost = sorted(set(lost) & wanted)
    if mode in ("overwrite", "partition_overwrite"):
        # What is made again has no row from below the beginning.
        lost = sorted(set(lost) - {fact.uid for fact in world.facts if is_below_start(fact, node)} - elsewhere)
    return f"rows {lost} are missing" if lost else None


def _keyed_difference(world: World, there: set[int], loaded: set[int], wanted: set[int]) -> str | None:
    by_uid = {fact.uid: fact for fact in world.facts}
    keys: dict[tuple[str, ...], list[int]] = {}
    for uid in sorted(there):
        keys.setdefault(key_of(by_uid[uid], world.node), []).append(uid)
    twice = {key: uids for key, uids in keys.items() if len(uids) > 1}
    if twice:
        return f"keys are there more than once: {twice}"
    gone = [uid for uid in sorted(loaded | wanted) if key_of(by_uid[uid], world.node) not in keys]
    if gone:
        return f"no row has the keys of {gone}"
    if world.node["write"]["mode"] != "upsert":
        return None
    newer = world.node["write"].get("only_if_newer")
    as_text = newer is not None and declared_type(world.node, newer) == "STRING"
    rank = {uid: str(fact.values()[newer]) if as_text else uid for uid, fact in by_uid.items()}
    newest = {key_of(by_uid[uid], world.node): uid for uid in sorted(wanted, key=rank.__getitem__)}
    old = [(uids[0], newest[key]) for key, uids in keys.items() if key in newest and rank[uids[0]] < rank[newest[key]]]
    return f"older rows are there instead of newer ones: {old}" if old else None
