"""Nodes that apply several tables of a change log, written out: one node for each table.

In the texts of such a node, ``{table}`` stands for the table's name, and ``{schema}`` for the schema's. Letters that a
node's name cannot have become ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from odi_assets.config.captured_tables import LEFT_OUT, kept_tables
from odi_assets.config.diagnostics.mistakes import Mistake, Path
from odi_assets.config.yaml.document import ValuePlace, YamlDocument

Words = Mapping[str, str]
"""What stands for ``{table}`` and ``{schema}``."""

_NO_LETTER = re.compile(r"\W", re.ASCII)
_PATTERN = re.compile(r"[*?]")


def write_out_tables(document: YamlDocument) -> None:
    """Put a node for each table in the place of nodes with ``apply: {tables: […]}``. What is wrong with such a node is
    noted in ``document``, and the node is left out."""
    pipelines = document.data.get("pipelines")
    for number, pipeline in enumerate(pipelines if isinstance(pipelines, list) else ()):
        nodes = pipeline.get("nodes") if isinstance(pipeline, Mapping) else None
        if isinstance(nodes, list) and any(_tables(node) is not None for node in nodes):
            _write_out(document, ("pipelines", number, "nodes"), nodes)


def _tables(node: Any) -> list[Any] | None:
    apply = node.get("apply") if isinstance(node, Mapping) else None
    tables = apply.get("tables") if isinstance(apply, Mapping) and "table" not in apply else None
    return tables if isinstance(tables, list) else None


def _write_out(document: YamlDocument, at: Path, nodes: list[Any]) -> None:
    made: list[tuple[int, Any, Words]] = []
    for number, node in enumerate(nodes):
        tables = _tables(node)
        copies = [(node, {})] if tables is None else _copies(document, (*at, number), node, tables)
        made += [(number, copy, words) for copy, words in copies]
    places: dict[int, list[tuple[Path, ValuePlace]]] = {}
    for path, place in [*document.places.items()]:
        if path[: len(at)] == at and len(path) > len(at):
            places.setdefault(int(path[len(at)]), []).append((path[len(at) + 1 :], place))
            del document.places[path]
    for number, (origin, _, words) in enumerate(made):
        for rest, place in places.get(origin, ()):
            document.places[(*at, number, *rest)] = replace(place, text=_filled(place.text, words))
    nodes[:] = [copy for _, copy, _ in made]


def _copies(
    document: YamlDocument, at: Path, node: Mapping[str, Any], tables: list[Any]
) -> Iterator[tuple[Any, Words]]:
    if "{table}" not in str(node.get("name")):
        text = "is the name of each table's node: write `{table}` in it, as in `{table}` or `{schema}_{table}`"
        document.mistakes.append(Mistake(text, mark=document.places[(*at, "name") if "name" in node else at].mark))
        return
    apply = node["apply"]
    names: dict[str, None] = {}
    left_out = [str(table).removeprefix(LEFT_OUT) for table in tables if str(table).startswith(LEFT_OUT)]
    for number, table in enumerate(tables):
        if str(table).startswith(LEFT_OUT):
            continue
        try:
            names |= dict.fromkeys(_named(document, int(at[1]), str(apply.get("changes")), str(table)))
        except LookupError as error:
            document.mistakes.append(
                Mistake(str(error.args[0]), mark=document.places[(*at, "apply", "tables", number)].mark)
            )
    for name in names:
        if any(fnmatchcase(name, pattern) for pattern in left_out):
            continue
        schema, _, own = name.partition(".")
        words = {"{table}": _NO_LETTER.sub("_", own), "{schema}": _NO_LETTER.sub("_", schema)}
        filled = _filled(node, words)
        rest = {key: value for key, value in filled["apply"].items() if key != "tables"}
        yield {**filled, "apply": {**rest, "table": name}}, words


def _named(document: YamlDocument, pipeline: int, changes: str, table: str) -> Iterable[str]:
    """The tables that an entry of ``tables`` names; a pattern is one over the tables that the capture names.

    Args:
        pipeline: the number of the pipeline that the node is in.
    """
    if not _PATTERN.search(table):
        return [table]
    captured = _captured(document, pipeline, changes)
    if any(_PATTERN.search(name) for name in captured):
        raise LookupError(f"`{changes}` names its tables by patterns, and they are not known here: list the tables")
    matching = [name for name in captured if fnmatchcase(name, table)]
    if not matching:
        raise LookupError(f"`{table}` is none of the tables that `{changes}` names: {', '.join(captured) or 'none'}")
    return matching


def _captured(document: YamlDocument, number: int, changes: str) -> list[str]:
    pipeline, _, name = changes.rpartition(".")
    sections = document.data["pipelines"]
    for section in sections if pipeline else sections[number : number + 1]:
        if not isinstance(section, Mapping) or (pipeline and section.get("pipeline") != pipeline):
            continue
        nodes = section.get("nodes")
        for node in nodes if isinstance(nodes, list) else ():
            if isinstance(node, Mapping) and node.get("name") == name and isinstance(node.get("read"), Mapping):
                tables = node["read"].get("tables")
                return [*kept_tables(map(str, tables))] if isinstance(tables, list) else []
    return []


def _filled(value: Any, words: Words) -> Any:
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(part, words) for key, part in value.items()}
    return [_filled(part, words) for part in value] if isinstance(value, list) else value
