"""Edits of a node, for each key of the models of `read`, `incremental`, `transform` and `write`.

The keys are those that the models have: :func:`keys_without_edits` finds one that nobody thought of.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.reading.facts import KEYS, SWAPPED, Fact, increment_of
from benchmarks.reading.world import World, more_facts
from odi_assets.config.models import (
    CursorsIncrement,
    FilesIncrement,
    InputConfig,
    StatefulIncrement,
    TransformConfig,
    VersionIncrement,
    WriteConfig,
)
from odi_assets.config.models.reads import built_in_settings

Node = dict[str, Any]
Make = Callable[[Node, random.Random, World], str | None]
"""Edits a node; says how, or None where the node has nothing like it."""

MODELS = (
    StatefulIncrement,
    CursorsIncrement,
    FilesIncrement,
    VersionIncrement,
    TransformConfig,
    WriteConfig,
    InputConfig,
)


@dataclass(frozen=True)
class Edit:
    """An edit.

    Attributes:
        key: model and field.
        harmless: it changes neither which rows are read nor how they compare: a run may not stop.
    """

    key: str
    make: Make
    harmless: bool = False


def _read(node: Node) -> dict[str, Any]:
    return node.get("read") or {}


def _increment(node: Node, mode: str) -> dict[str, Any] | None:
    """The increment of a node, in its long form and to be edited, if it is of this mode."""
    source = node["read"] if "read" in node else next(iter(node["inputs"].values()))
    if increment_of(node).get("mode") != mode:
        return None
    source["incremental"] = increment_of(node)
    found: dict[str, Any] = source["incremental"]
    return found


def _set(section: Callable[[Node], dict[str, Any] | None], name: str, *values: Any) -> Make:
    """Set a key to one of these values that it does not have; None takes it away."""

    def make(node: Node, draw: random.Random, world: World) -> str | None:
        del world
        found = section(node)
        if found is None:
            return None
        left = [value for value in values if value != found.get(name)]
        if not left:
            return None
        value = draw.choice(left)
        before = found.get(name)
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
        return f"{name}: {before!r} -> {value!r}"

    return make


def _of(*kinds: str) -> Callable[[Node], dict[str, Any] | None]:
    return lambda node: _read(node) if _read(node).get("format") in kinds else None


def _stateful(node: Node) -> dict[str, Any] | None:
    return _increment(node, "stateful")


def _cursors(node: Node) -> dict[str, Any] | None:
    return _increment(node, "cursors")


def _files(node: Node) -> dict[str, Any] | None:
    return _increment(node, "files")


def _files_that_may_be_ignored(node: Node) -> dict[str, Any] | None:
    """Files of a node that reads no file again: where it does, `ignore` is refused."""
    return None if "overwrite" in node["write"]["mode"] else _files(node)


def _version(node: Node) -> dict[str, Any] | None:
    return _increment(node, "version")


def _write(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node["write"]
    return found


def _transform(node: Node) -> dict[str, Any] | None:
    return node.get("transform")


def _on_day(node: Node) -> dict[str, Any] | None:
    found = _stateful(node)
    return found if found is not None and found["column"] == "day" else None


def _untyped(node: Node) -> dict[str, Any] | None:
    found = _stateful(node)
    return found if found is not None and "type" not in found else None


def _option(name: str, *values: str | None, kinds: tuple[str, ...] = ("csv", "json")) -> Make:
    def options(node: Node) -> dict[str, Any] | None:
        return _read(node).setdefault("options", {}) if _read(node).get("format") in kinds else None

    return _set(options, name, *values)


def _null_is_a_cursor(node: Node, draw: random.Random, world: World) -> str | None:
    fact = draw.choice(world.facts)
    if _read(node).get("format") != "csv":
        return None
    value = str(fact.values()[increment_of(node).get("column", "seq")])
    _read(node).setdefault("options", {})["nullValue"] = value
    return f"nullValue: {value}"


def _ddl(change: Callable[[list[str], random.Random], str | None]) -> Make:
    def make(node: Node, draw: random.Random, world: World) -> str | None:
        del world
        if "schema" not in _read(node):
            return None
        columns = _read(node)["schema"].split(", ")
        said = change(columns, draw)
        _read(node)["schema"] = ", ".join(columns)
        return said

    return make


def _typed(name: str, *types: str) -> Make:
    def change(columns: list[str], draw: random.Random) -> str | None:
        place = next((i for i, column in enumerate(columns) if column.split()[0] == name), None)
        if place is None:
            return None
        kind = draw.choice([one for one in types if one != columns[place].split(" ", 1)[1]] or [types[0]])
        said = f"{columns[place]} -> {kind}"
        columns[place] = f"{name} {kind}"
        return said

    return _ddl(change)


def _with_x(columns: list[str], draw: random.Random) -> str | None:
    del draw
    if any(column.startswith("x ") for column in columns):
        return None
    columns.append("x STRING")
    return "x STRING is a column"


def _without_v(columns: list[str], draw: random.Random) -> str | None:
    del draw
    left = [column for column in columns if not column.startswith("v ")]
    columns[:] = left
    return "v is no column"


def _in_another_order(columns: list[str], draw: random.Random) -> str | None:
    draw.shuffle(columns)
    return "columns in another order"


def _no_schema(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    return None if _read(node).pop("schema", None) is None else "no schema"


def _other_increment(node: Node, draw: random.Random, world: World) -> str | None:
    del world
    kind, mode = _read(node).get("format", "node"), increment_of(node).get("mode")
    stateful = {"mode": "stateful", "column": "seq"}
    modes: Mapping[str, list[Any]] = {
        "sql": [stateful, {"mode": "cursors", "columns": ["seq"]}],
        "delta": [stateful, "version"],
        "node": [stateful, "version"],
    }
    source = node["read"] if "read" in node else next(iter(node["inputs"].values()))
    left = [
        one for one in modes.get(kind, [stateful, "files"]) if (one if isinstance(one, str) else one["mode"]) != mode
    ]
    source["incremental"] = draw.choice([*left, None])
    if source["incremental"] is None:
        source.pop("incremental")
    return f"incremental: {mode} -> {source.get('incremental')}"


def _other_start(node: Node, draw: random.Random, world: World) -> str | None:
    """Another value where the first run begins: below what is loaded, among it, far above it, or none."""
    found = _stateful(node)
    if found is None or found["column"] not in ("seq", "at"):
        return None
    facts = [*world.facts, Fact(0, 0, 0, 0, "a"), Fact(0, 0, world.facts[-1].seq + 50, world.facts[-1].place + 50, "a")]
    before, values = found.pop("initial_value", None), {str(fact.values()[found["column"]]) for fact in facts}
    value = draw.choice([None, *sorted(values)])
    if value is not None:
        found["initial_value"] = value
    return f"initial_value: {before} -> {value}"


def _other_query(comment: bool) -> Make:
    def make(node: Node, draw: random.Random, world: World) -> str | None:
        del draw, world
        read = _read(node)
        if "query" not in read:
            return None
        read["query"] = read["query"].replace(" ", "  ", 1) if comment else f"{read['query']} WHERE 1 = 1"
        return f"query: {read['query']}"

    return make


def _asked(column: str, sql: str) -> Make:
    def make(node: Node, draw: random.Random, world: World) -> str | None:
        del draw, world
        if _read(node).get("format") != "sql":
            return None
        _read(node).setdefault("columns", {})[column] = sql
        return f"columns: {column}: {sql}"

    return make


def _other_key(same: bool) -> Make:
    def make(node: Node, draw: random.Random, world: World) -> str | None:
        del world
        before = node["transform"]["key"] if node.get("transform") else None
        if before not in KEYS:
            # The node has no transform, or another edit has made its key one that passes.
            return None
        left = [one for one in KEYS if one != before and (KEYS[one] == KEYS[before]) == same]
        if not left:
            return None
        node["transform"]["key"] = draw.choice(left)
        return f"k: {before} -> {node['transform']['key']}"

    return make


def _passing_key(node: Node, draw: random.Random, world: World) -> str | None:
    del world
    if not node.get("transform") or node["transform"].get("in_function"):
        return None
    node["transform"]["key"] = draw.choice(["uuid()", "cast(rand() * 1000 AS BIGINT)", "unix_timestamp()"])
    return f"k: {node['transform']['key']}"


def _add_transform(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    if node.get("transform"):
        return None
    node["transform"] = {"key": "id"}
    return "a transform that adds k"


def _other_mode(node: Node, draw: random.Random, world: World) -> str | None:
    del world
    write = node["write"]
    before = write["mode"]
    keys = write.get("keys") or (["k"] if node.get("transform") else ["id"])
    write["mode"] = draw.choice([one for one in ("append", "append_once", "overwrite", "upsert") if one != before])
    for name in ("partition_by", "only_if_newer", "delete_when", "schema"):
        write.pop(name, None)
    if write["mode"] in ("append_once", "upsert"):
        write["keys"] = keys
    if write["mode"] == "upsert":
        write["only_if_newer"] = "seq"
    return f"mode: {before} -> {write['mode']}"


def _upserts(node: Node) -> dict[str, Any] | None:
    return node["write"] if node["write"]["mode"] == "upsert" else None


def _key_columns(node: Node, draw: random.Random, world: World) -> str | None:
    del world
    write = node["write"]
    choices = [["id"], ["id", "v"], ["v"], None] + ([["k"], ["k", "v"]] if node.get("transform") else [])
    left = [one for one in choices if one != write.get("keys")]
    keys = draw.choice(left)
    before = write.pop("keys", None)
    if keys is not None:
        write["keys"] = keys
    return f"keys: {before} -> {keys}"


def _partition(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    write = node["write"]
    before = write.get("partition_by")
    write["partition_by"] = ["v"] if before != ["v"] else ["id"]
    return f"partition_by: {before} -> {write['partition_by']}"


def _reordered(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world

    def turned(value: Any) -> Any:
        return {k: turned(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value

    kept = turned(node)
    node.clear()
    node.update(kept)
    return "keys of the file in another order"


def _comment(node: Node, draw: random.Random, world: World) -> str | None:
    del draw
    world.comment = "# a comment\n"
    node["description"] = "what it is"
    return "a comment and a description"


def _view(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    if "inputs" not in node:
        return None
    node["inputs"] = {"other": next(iter(node["inputs"].values()))}
    return "another view name"


def _swap_key(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    if not node.get("transform") or node["transform"].get("in_function"):
        return None
    node["transform"]["in_file"] = not node["transform"].get("in_file")
    return "the query goes to a file, or back"


def _into_function(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    if not node.get("transform") or "inputs" in node:
        return None
    node["transform"].pop("in_file", None)
    node["transform"]["in_function"] = not node["transform"].get("in_function")
    return "the query goes into a function, or back"


def _params(node: Node, draw: random.Random, world: World) -> str | None:
    del draw, world
    if not (node.get("transform") or {}).get("in_function"):
        return None
    node["transform"]["params"] = {"a": 2}
    return "params: a: 2"


def _other_place(node: Node, draw: random.Random, world: World) -> str | None:
    """The node reads a copy of its source, which may have a row of its own by then."""
    if world.copies or (name := world.copy_source()) is None:
        return None
    if alone := draw.random() < 0.5:
        world.land_in_copies(more_facts(draw, world.facts, 1, again=False, tied=False))
    node["read"]["path"] = name if node["read"]["format"] == "delta" else f"{name}/*"
    return f"path: {name}, a copy{' with a row of its own' if alone else ''}"


_SAME_PLACE = {"connection": ("landing", "landing2")}

TO_A_COPY = Edit("ReadConfig.path", _other_place)

EDITS: tuple[Edit, ...] = (
    Edit("ReadConfig.connection", _set(_of("csv", "json", "parquet"), "connection", *_SAME_PLACE["connection"]), True),
    Edit("ReadConfig.format", _set(_of("csv", "json"), "format", "csv", "json")),
    Edit("ReadConfig.path", _set(_of("csv", "json", "parquet"), "path", "in/*", "./in/*", "in/0*", "in")),
    TO_A_COPY,
    Edit("ReadConfig.schema_ddl", _ddl(_with_x)),
    Edit("ReadConfig.schema_ddl", _ddl(_without_v)),
    Edit("ReadConfig.schema_ddl", _ddl(_in_another_order)),
    Edit("ReadConfig.schema_ddl", _typed("seq", "BIGINT", "INT", "DOUBLE", "STRING", "DECIMAL(20,0)")),
    Edit("ReadConfig.schema_ddl", _typed("at", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING")),
    Edit("ReadConfig.schema_ddl", _typed("id", "BIGINT", "STRING", "INT", "DECIMAL(10,1)")),
    Edit("ReadConfig.schema_ddl", _no_schema),
    Edit("ReadConfig.options", _option("timestampFormat", SWAPPED, "yyyy-MM-dd HH:mm:ss", None)),
    Edit("ReadConfig.options", _option("nullValue", "a", "b", None, kinds=("csv",))),
    Edit("ReadConfig.options", _null_is_a_cursor),
    Edit("ReadConfig.options", _option("encoding", "ISO-8859-1", "UTF-8", None)),
    Edit("ReadConfig.options", _option("ignoreLeadingWhiteSpace", "true", None, kinds=("csv",))),
    Edit("ReadConfig.options", _option("dateFormat", "dd.MM.yyyy", None)),
    Edit("ReadConfig.options", _option("sep", ";", None, kinds=("csv",))),
    Edit("ReadConfig.options", _option("multiLine", "true", None)),
    Edit("ReadConfig.options", _option("mergeSchema", "true", None, kinds=("parquet",)), harmless=True),
    Edit("ReadConfig.options", _option("fetchsize", "10", "100", kinds=("sql",)), harmless=True),
    Edit("ReadConfig.rescued", _set(_of("csv", "json", "parquet"), "rescued", "rest", "other", None)),
    Edit(
        "ReadConfig.asset",
        _set(_of("csv", "json", "parquet", "delta", "sql"), "asset", "dlt/orders", None),
        harmless=True,
    ),
    Edit("ReadConfig.strict", _set(_of("csv", "json", "parquet"), "strict", False, True)),
    Edit("ReadConfig.table", _set(_of("sql"), "table", "facts", "public.facts")),
    Edit("ReadConfig.query", _other_query(comment=True), harmless=True),
    Edit("ReadConfig.query", _other_query(comment=False)),
    Edit("ReadConfig.partition_column", _set(_of("sql"), "partition_column", "uid", "seq"), harmless=True),
    Edit("ReadConfig.pieces", _set(_of("sql"), "pieces", 2, 1), harmless=True),
    Edit("ReadConfig.columns", _asked("v", "upper(v)")),
    Edit("ReadConfig.columns", _asked("id", "id + 500")),
    Edit("ReadConfig.columns", _asked("seq", "seq * 2")),
    Edit("ReadConfig.incremental", _other_increment),
    Edit("StatefulIncrement.mode", _other_increment),
    Edit("StatefulIncrement.column", _set(_stateful, "column", "seq", "at", "day")),
    Edit("StatefulIncrement.fallback_column", _set(_stateful, "fallback_column", "uid", None)),
    Edit("StatefulIncrement.initial_value", _other_start, harmless=True),
    Edit("StatefulIncrement.boundary", _set(_stateful, "boundary", "open", "closed")),
    Edit("StatefulIncrement.on_null", _set(_stateful, "on_null", "include", "exclude", "raise")),
    Edit("StatefulIncrement.date_format", _set(_on_day, "date_format", "eu", "us", "iso", None)),
    Edit("StatefulIncrement.date_format", _set(_on_day, "date_format", "eu", None)),
    Edit("StatefulIncrement.type", _set(_on_day, "type", "text", None)),
    Edit("StatefulIncrement.state_key", _set(_stateful, "state_key", "another", None)),
    Edit("StatefulIncrement.watermark_lag", _set(_stateful, "watermark_lag", 2, 5, None)),
    Edit("StatefulIncrement.on_change", _set(_stateful, "on_change", "ignore", "raise", None), harmless=True),
    Edit("StatefulIncrement.max_ahead", _set(_stateful, "max_ahead", "7d", "none", None), harmless=True),
    Edit("StatefulIncrement.on_ahead", _set(_untyped, "on_ahead", "hold", "stop", None), harmless=True),
    Edit("CursorsIncrement.mode", _other_increment),
    Edit("CursorsIncrement.columns", _set(_cursors, "columns", ["seq"], ["seq", "at"], ["at", "seq"], ["at"])),
    Edit("CursorsIncrement.on_null", _set(_cursors, "on_null", "snapshot", "exclude", "raise"), harmless=True),
    Edit("CursorsIncrement.watermark_lag", _set(_cursors, "watermark_lag", 2, 5, "9d", "40d", None)),
    Edit("CursorsIncrement.snapshot", _set(_cursors, "snapshot", {"rows": 5}, {"pieces": 1}), harmless=True),
    Edit("CursorsIncrement.max_ahead", _set(_cursors, "max_ahead", "7d", "none", None), harmless=True),
    Edit("CursorsIncrement.on_ahead", _set(_cursors, "on_ahead", "hold", "stop", None), harmless=True),
    Edit("CursorsIncrement.state_key", _set(_cursors, "state_key", "another", None)),
    Edit("FilesIncrement.mode", _other_increment),
    Edit("FilesIncrement.settle", _set(_files, "settle", "1s", None), harmless=True),
    Edit("FilesIncrement.on_change", _set(_files, "on_change", "reload", "raise"), harmless=True),
    Edit("FilesIncrement.on_change", _set(_files_that_may_be_ignored, "on_change", "ignore"), harmless=True),
    Edit("FilesIncrement.state_key", _set(_files, "state_key", "another", None)),
    Edit("VersionIncrement.mode", _other_increment),
    Edit("VersionIncrement.state_key", _set(_version, "state_key", "another", None)),
    Edit("TransformConfig.sql", _other_key(same=False)),
    Edit("TransformConfig.sql", _other_key(same=True)),
    Edit("TransformConfig.sql", _passing_key),
    Edit("TransformConfig.sql", _add_transform),
    Edit("TransformConfig.sql", _set(_transform, "more", "upper(v) AS w", None)),
    Edit("TransformConfig.sql", _set(_transform, "comment", "-- why", "/* why */", None), harmless=True),
    Edit("TransformConfig.sql_file", _swap_key, harmless=True),
    Edit("TransformConfig.function", _into_function),
    Edit("TransformConfig.params", _params),
    Edit("WriteConfig.connection", _comment, harmless=True),
    Edit("WriteConfig.path", _reordered, harmless=True),
    Edit("WriteConfig.format", _set(_write, "format", "delta"), harmless=True),
    Edit("WriteConfig.mode", _other_mode),
    Edit("WriteConfig.keys", _key_columns),
    Edit("WriteConfig.keys", _key_columns),
    Edit("WriteConfig.partition_by", _partition),
    Edit("WriteConfig.schema_policy", _set(_write, "schema", "evolve", "ignore", "fail")),
    Edit("WriteConfig.delete_when", _set(_upserts, "delete_when", "gone", None)),
    Edit("WriteConfig.only_if_newer", _set(_upserts, "only_if_newer", "seq", "uid", None)),
    Edit("InputConfig.node", _view, harmless=True),
    Edit("InputConfig.read", _comment, harmless=True),
    Edit("InputConfig.incremental", _other_increment),
)
"""Places (`write.connection`, `write.path`) are edited by the change sweep; here they stand for what is no edit of a
setting."""


_OF_CAPTURES = {f"ReadConfig.{name}" for name in ("tables", "snapshot", "topics", "keys", "types", "unavailable")}
"""Of logs, which no node here reads: what tables that join and leave do is tested beside the source."""


def keys_without_edits() -> set[str]:
    """Keys of the models that no edit is for."""
    keys = {f"{model.__name__}.{name}" for model in MODELS for name in model.model_fields}
    keys |= {f"ReadConfig.{name}" for model in built_in_settings().values() for name in model.model_fields}
    return keys - {edit.key for edit in EDITS} - _OF_CAPTURES
