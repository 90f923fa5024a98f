"""What a database does to cursors behind a mark: types, names and values change, and each message leads on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, IncrementError, SourceError
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.state.values.typed_text import to_text
from odi_assets_tests.nodes.support import HEAD, Sandbox
from odi_assets_tests.sources.sql.conftest import NODE, both
from odi_assets_tests.sources.sql.servers import Server

LADDERS: dict[str, dict[str, list[str]]] = {
    # From each type to the ones behind it, values lose digits.
    "postgres": {
        "decimal": ["numeric", "numeric(14,4)", "numeric(12,1)", "numeric(12,0)", "numeric(12,-1)"],
        "time": ["timestamp", "timestamp(4)", "timestamp(1)", "timestamp(0)"],
        "instant": ["timestamptz", "timestamptz(4)", "timestamptz(1)", "timestamptz(0)"],
        "float": ["double precision", "real", "numeric(14,2)", "bigint"],
        "text": ["text", "varchar(20)", "varchar(12)", "varchar(3)"],
    },
    "mariadb": {
        "decimal": ["decimal(14,4)", "decimal(12,1)", "decimal(12,0)"],
        "time": ["datetime(6)", "datetime(4)", "datetime(1)", "datetime"],
        "instant": ["timestamp(6) NULL", "timestamp(4) NULL", "timestamp(1) NULL", "timestamp NULL"],
        "float": ["double", "decimal(14,2)", "bigint"],
        "text": ["mediumtext", "varchar(20)", "varchar(12)", "varchar(3)"],
    },
}
FOLLOWED = {
    "stateful": "{mode: stateful, column: at}",
    "closed": "{mode: stateful, column: at, boundary: closed}",
    "fallback": "{mode: stateful, column: other, fallback_column: at}",
    "cursors": "{mode: cursors, columns: [at], snapshot: {by: [id]}}",
    "second": "{mode: cursors, columns: [other, at], snapshot: {by: [id]}}",
}
MOMENT = datetime(2024, 1, 1, 10, 0, 0, 7)
CHANGES: list[tuple[Any, str, Any]] = [
    (MOMENT.replace(tzinfo=UTC), "local", MOMENT),
    (MOMENT, "instant", MOMENT.replace(tzinfo=UTC)),
    (date(2024, 1, 1), "local", datetime(2024, 1, 1)),
    (7, "decimal", Decimal(7)),
    (Decimal("7.00"), "int", 7),
    (7, "float", 7.0),
]
Made = Callable[..., Project]
MODES: dict[str, Callable[[Any], Any]] = {
    "{mode: stateful, column: at}": lambda value: value,
    "{mode: cursors, columns: [made, at], snapshot: {by: [id]}}": lambda value: {"cursors": {"made": 3, "at": value}},
}


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A project in the current folder, whose node follows `events`."""
    monkeypatch.chdir(tmp_path)

    def made(increment: str, table: str = "events") -> Project:
        node = NODE.replace("READ", f"table: {table}, incremental: {increment}").replace("WRITE", "mode: append")
        head = HEAD.replace("system:", f"{server.connection}system:")
        (tmp_path / "odibi.yaml").write_text(head + node.replace("\n", "\n  "), encoding="utf-8")
        # As an earlier run has left it.
        write_deltalake(tmp_path / "lake" / "events", pa.table({"id": pa.array([1], pa.int64())}), mode="ignore")
        return Project.load(tmp_path / "odibi.yaml")

    return made


@both
@pytest.mark.parametrize("increment", MODES)
def test_the_command_for_a_cursor_of_another_type_leads_on(server: Server, project: Made, increment: str) -> None:
    found, key, stored = project(increment), NodeKey("p", "events"), MODES[increment]
    state = found.open_state()
    for before, kind, now in CHANGES:
        columns = f"id bigint PRIMARY KEY, made int, at {server.types[kind]}"
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events ({columns})")
        server.execute("INSERT INTO events (id, made) VALUES (1, 3)" if "made" in increment else "SELECT 1")
        assert main(["state", "set", "p.events", to_text(stored(before))]) == 0
        with pytest.raises(IncrementError, match=r"and its HWM .* is ") as stopped:
            plan_node(found, state, key)
        command = re.search(r"set the HWM to the same value of the new type: odi (.*); or load", str(stopped.value.fix))
        assert command, stopped.value.fix
        assert main(shlex.split(command[1])) == 0
        assert state.get_hwm("p.events") == stored(now)
        assert plan_node(found, state, key).nothing_new


def test_a_type_in_which_the_mark_means_nothing_leaves_the_full_refresh(server: Server, project: Made) -> None:
    found = project("{mode: stateful, column: at}")
    for before, kind in ((7, "text"), (Decimal("7.5"), "bigint"), (MOMENT, "date")):
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id int, at {kind})")
        assert main(["state", "set", "p.events", to_text(before)]) == 0
        with pytest.raises(IncrementError) as stopped:
            plan_node(found, found.open_state(), NodeKey("p", "events"))
        fix = "if the column was changed on purpose, load everything again with odi run p --node events --full-refresh"
        assert stopped.value.fix == fix


def _retyped(random: Random, name: str) -> Iterator[tuple[str, str, bool]]:
    """Changes of a cursor's type, and whether values lose digits by them."""
    ladders = LADDERS["postgres" if name == "postgres" else "mariadb"]
    for family, ladder in random.sample(list(ladders.items()), 3):
        finer, coarser = sorted(random.sample(range(len(ladder)), 2))
        before, now = random.choice([(finer, coarser), (coarser, finer)])
        yield family, f"{ladder[before]} > {ladder[now]}", before < now


def _values(random: Random, family: str, known: int) -> list[str]:
    """60 literals in ascending order, with more digits than most types of the family keep. The others are so far above
    those ``known`` that no type makes the two one."""
    drawn = sorted(random.uniform(100, 130) for _ in range(60))
    numbers = [number + 25 * (place >= known) for place, number in enumerate(drawn)]
    if family == "text":
        return [f"'{'z' if place >= known else 'k'}{number * 1e9:.0f}'" for place, number in enumerate(drawn)]
    moments = (f"'2024-01-01 10:{int(number) - 100:02d}:{number % 1 * 60:09.6f}'" for number in numbers)
    return [repr(number) for number in numbers] if family in ("decimal", "float") else list(moments)


@both
@pytest.mark.slow
@pytest.mark.parametrize(
    ("followed", "driver"), [*((followed, "plain") for followed in FOLLOWED), ("stateful", "jdbc"), ("second", "jdbc")]
)
def test_a_cursor_that_loses_digits_stops_the_run_and_one_that_gains_some_goes_on(
    server: Server, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, followed: str, driver: str
) -> None:
    if server.name == "mysql" and driver == "jdbc":
        pytest.skip("the driver of MariaDB reads both")
    random, wrong = Random(f"{server.name} {followed} {driver}"), []
    connection = server.connection if driver == "plain" else server.connection.replace("}", ", look_timeout: 0}")
    for number, (family, change, loses) in enumerate(_retyped(random, server.name)):
        before, now = change.split(" > ")
        known = random.randrange(20, 40)
        values = _values(random, family, known)
        server.execute("DROP TABLE IF EXISTS events")
        server.execute(f"CREATE TABLE events (id bigint PRIMARY KEY, at {before}, other {before})")
        server.execute(_insert(server, values[:known], 0, before))
        read = f"table: events, incremental: {FOLLOWED[followed]}"
        text = NODE.replace("READ", read).replace("WRITE", "mode: append") + "    transform: {sql: SELECT id FROM df}\n"
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        sandbox = Sandbox(tmp_path / str(number), spark, text, connection)
        sandbox.run("events")
        server.execute(_insert(server, values[known : known + 10], known, before))
        _altered(server, "at", now)
        server.execute(_insert(server, values[known + 10 :], known + 10, now))
        stopped = _stopped(sandbox)
        loaded = [row[0] for row in sandbox.rows("events")]
        if "a cursor and its fallback have to be of one type" in stopped:
            continue
        # Ties look otherwise, and so does a mark of another type.
        may_stop = loses or (followed == "closed" and "cannot be compared" in stopped) or "and its HWM" in stopped
        if (
            (loses and not stopped)
            or (stopped and not may_stop)
            or sorted(loaded) != [*range(known if stopped else 60)]
        ):
            wrong.append((change, stopped, loaded))
        command = re.search(r": odi (state set .*?); or (?:load|put)", stopped)
        if command is not None and followed != "closed":
            assert main(shlex.split(command[1])) == 0
            stopped = _stopped(sandbox)
            loaded = [row[0] for row in sandbox.rows("events")]
            if stopped or sorted(loaded) != [*range(60)]:
                wrong.append((f"{change} {command[1]}", stopped, loaded))
        elif loses and followed != "closed":
            wrong.append((change, f"no command: {stopped}", loaded))
    assert not wrong


PAYLOADS = {
    # Types whose values look otherwise in each other.
    "postgres": [("varchar(20)", "char(20)"), ("json", "jsonb"), ("timestamptz", "timestamptz(0)")],
    "mariadb": [("varchar(20)", "char(20)"), ("timestamp(6) NULL", "timestamp NULL")],
}


def _altered(server: Server, column: str, kind: str) -> None:
    if server.type == "postgres":
        server.execute(f"ALTER TABLE events ALTER COLUMN {column} TYPE {kind} USING {column}::{kind}")
    else:
        server.execute(f"ALTER TABLE events MODIFY {column} {kind}")


@both
def test_tied_rows_whose_other_columns_got_another_type_stop_the_run(
    server: Server, tmp_path: Path, spark: SparkSession
) -> None:
    name = "postgres" if server.name == "postgres" else "mariadb"
    random, wrong = Random(server.name), []
    changes = [(family, *random.sample(ladder, 2)) for family, ladder in LADDERS[name].items()]
    for number, (family, before, now) in enumerate([*changes, *(("text", *pair) for pair in PAYLOADS[name])]):
        value = {"text": '\'{"b": 1,  "a": 2}\'', "float": "1.0625", "decimal": "1.0625"}.get(family, f"'{MOMENT}'")
        value = f"'{MOMENT}'" if "time" in before else value
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id int, at int, v {before})")
        cast = f"::{before}" if server.type == "postgres" else ""
        server.execute(f"INSERT INTO events VALUES (1, 1, {value}{cast}), (2, 2, {value}{cast}), (3, 2, {value}{cast})")
        text = NODE.replace("READ", "table: events, incremental: {mode: stateful, column: at, boundary: closed}")
        text = text.replace("WRITE", "mode: append") + "    transform: {sql: SELECT id FROM df}\n"
        (tmp_path / str(number)).mkdir()
        sandbox = Sandbox(tmp_path / str(number), spark, text, server.connection)
        sandbox.run("events")
        _altered(server, "v", now)
        server.execute("INSERT INTO events (id, at) VALUES (4, 2)")
        stopped = _stopped(sandbox)
        loaded = sorted(row[0] for row in sandbox.rows("events"))
        if loaded != ([1, 2, 3] if stopped else [1, 2, 3, 4]) or (stopped and "cannot be compared" not in stopped):
            wrong.append((before, now, stopped, loaded))
    assert not wrong


KNOWN_BY = (
    ("{mode: stateful, column: at}", "mode: upsert, keys: [k]"),
    ("{mode: stateful, column: at}", "mode: append_once, keys: [k]"),
    ("{mode: stateful, column: at, watermark_lag: 3}", "mode: append, keys: [k]"),
    ("{mode: cursors, columns: [at], snapshot: {by: [at]}}", "mode: upsert, keys: [k]"),
    ("{mode: rolling_window, column: day, lookback: 2, unit: day}", "mode: upsert, keys: [k]"),
    ("null", "mode: upsert, keys: [k]"),
)
NOT_COMPARED = ("{mode: stateful, column: at}", "mode: append, keys: [k]")
"""Looks up no keys."""


@both
@pytest.mark.slow
@pytest.mark.parametrize(
    ("increment", "write", "driver"), [*((*how, "plain") for how in (*KNOWN_BY, NOT_COMPARED)), (*KNOWN_BY[0], "jdbc")]
)
def test_a_type_that_changes_the_values_or_texts_that_keys_are_made_of_stops_the_run(
    server: Server, tmp_path: Path, spark: SparkSession, increment: str, write: str, driver: str
) -> None:
    if server.name == "mysql" and driver == "jdbc":
        pytest.skip("the driver of MariaDB reads both")
    name = "postgres" if server.name == "postgres" else "mariadb"
    connection = server.connection if driver == "plain" else server.connection.replace("}", ", look_timeout: 0}")
    random, wrong = Random(f"{server.name} {increment} {write}"), []
    families = ["decimal", random.choice(["time", "instant", "text"])]
    ladders = [(family, random.sample(LADDERS[name][family], 2)) for family in families]
    wider: list[tuple[str, list[str]]] = [("decimal", ["int", LADDERS[name]["decimal"][-3]]), ("", ["int", "bigint"])]
    for number, (family, (before, now)) in enumerate([*ladders, random.choice(wider)]):
        values = _values(random, family, 30)[::29] if before != "int" else ["1", "2", "3"]
        cast, casted = (f"::{kind}" if server.type == "postgres" else "" for kind in (before, now))
        columns = f"id int, at int, day {'timestamp' if name == 'postgres' else 'datetime'}, src {before}"
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events ({columns})")
        rows = ", ".join(f"({at}, {at}, {_TODAY}, {value}{cast})" for at, value in enumerate(values[:2]))
        server.execute(f"INSERT INTO events VALUES {rows}")
        text = NODE.replace("READ", f"table: events, incremental: {increment}").replace(
            "WRITE", f"{write}, schema: evolve"
        )
        (tmp_path / str(number)).mkdir()
        text += "    transform: {sql: 'SELECT id, at, CAST(src AS STRING) AS k FROM df'}\n"
        sandbox = Sandbox(tmp_path / str(number), spark, text, connection)
        sandbox.run("events")
        _altered(server, "src", now)
        server.execute(f"INSERT INTO events VALUES (9, 9, {_TODAY}, {values[2]}{casted})")
        if "upsert" in write:
            server.execute("UPDATE events SET at = 8 WHERE id = 0")
        ladder = LADDERS[name].get(family, [])
        loses = before != "int" and ladder.index(before) < ladder.index(now)
        changes = (loses or family == "decimal") and (increment, write) != NOT_COMPARED
        stopped = _stopped(sandbox)
        loaded = sorted(row[0] for row in sandbox.rows("events"))
        said = "keeps less" in stopped if loses else "made of `src`" in stopped
        if changes is not said or bool(stopped) is not said or loaded != ([0, 1] if said else [0, 1, 9]):
            wrong.append((before, now, stopped, loaded))
    assert not wrong


_TODAY = "CURRENT_TIMESTAMP"


def _stopped(sandbox: Sandbox) -> str:
    """Run the node; the text of what stopped it, with its remedy."""
    try:
        sandbox.run("events")
    except IncrementError as error:
        return f"{error} {error.fix}"
    return ""


def _insert(server: Server, values: Sequence[str], first: int, kind: str) -> str:
    cast = f"::{kind}" if server.type == "postgres" else ""
    rows = ", ".join(f"({first + number}, {value}{cast}, NULL)" for number, value in enumerate(values))
    return f"INSERT INTO events VALUES {rows}"


@both
@pytest.mark.parametrize("increment", MODES)
def test_rows_that_lie_below_the_mark_alone_are_said_to(server: Server, project: Made, increment: str) -> None:
    found, key = project(increment), NodeKey("p", "events")
    columns = "id bigint PRIMARY KEY, made int, at bigint"
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events ({columns})")
    assert main(["state", "set", "p.events", to_text(MODES[increment](7))]) == 0
    plan = plan_node(found, found.open_state(), key)
    assert plan.nothing_new
    assert "the source has no row with a value of" in plan.summary
    server.execute("INSERT INTO events VALUES (1, 2, 5)")
    plan = plan_node(found, found.open_state(), key)
    assert plan.nothing_new
    name, now, then = ("made", 2, 3) if "made" in increment else ("at", 5, 7)
    said = f"the newest row of the source lies below the mark: `{name}` is {now}, and was {then}. If it was restored"
    assert said in plan.summary
    assert plan.reads[0].warning is not None
    assert said in plan.reads[0].warning
    server.execute("UPDATE events SET at = 7, made = 3")
    plan = plan_node(found, found.open_state(), key)
    assert plan.nothing_new
    assert "below the mark" not in plan.summary


@both
def test_a_renamed_cursor_or_table_is_adopted_and_the_first_message_says_so(server: Server, project: Made) -> None:
    increment, key = "{mode: stateful, column: at}", NodeKey("p", "events")
    server.execute(*(f"DROP TABLE IF EXISTS {name}" for name in ("events", "happenings")))
    server.execute("CREATE TABLE events (id bigint, happened bigint)")
    found = project(increment)
    assert main(["state", "set", "p.events", "7"]) == 0
    with pytest.raises(IncrementError) as stopped:
        plan_node(found, found.open_state(), key)
    assert "odi state adopt p.events goes on with the mark" in str(stopped.value.fix)
    server.execute("DROP TABLE events", "CREATE TABLE happenings (id bigint, at bigint)")
    with pytest.raises(SourceError) as gone:
        plan_node(found, found.open_state(), key)
    assert "odi state adopt p.events goes on with the mark" in str(gone.value.fix)
    renamed = project(increment, "happenings")
    with pytest.raises(IdentityMismatchError, match=r"events, and is .*happenings now"):
        plan_node(renamed, renamed.open_state(), key)
    assert main(["state", "adopt", "p.events", "--yes"]) == 0
    assert plan_node(renamed, renamed.open_state(), key).nothing_new


def test_another_mode_on_the_same_column_is_named(server: Server, project: Made) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint)")
    project("{mode: cursors, columns: [at]}")
    assert main(["state", "set", "p.events", '{"cursors": {"at": 7}}']) == 0
    found = project("{mode: stateful, column: at}")
    with pytest.raises(IdentityMismatchError) as stopped:
        plan_node(found, found.open_state(), NodeKey("p", "events"))
    said = "was followed by the column `at` (mode: cursors), and is followed by the column `at` (mode: stateful) now"
    assert said in str(stopped.value)
