"""Reads the state of a dlt pipeline: `state.json` of its working folder, or what `dlt pipeline … info` prints of it.

dlt marks the types of values by a first character of Unicode's private use area: a decimal, a time, a date …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import FINISHED, CursorDocument, CursorStream, StateType, Tool
from odi_assets.documents.values import Scalar, kind_of
from odi_assets.util.exact_json import JsonPath, write

LATEST_ENGINE = 4
"""The greatest ``_state_engine_version`` that dlt 1.31 writes."""

DECIMAL, DATETIME, DATE, UUID, HEX_BYTES, BASE64_BYTES, WEI, TIME = (chr(0xF026 + offset) for offset in range(8))
MARKS = frozenset((DECIMAL, DATETIME, DATE, UUID, HEX_BYTES, BASE64_BYTES, WEI, TIME))
"""The first characters that mark types."""

_KEYS = frozenset(
    {
        "_state_version",
        "_state_engine_version",
        "_version_hash",
        "_local",
        "pipeline_name",
        "schema_names",
        "dataset_name",
        "default_schema_name",
        "destination_type",
        "destination_name",
        "destination",
        "staging",
        "staging_type",
        "staging_name",
        "sources",
    }
)
_OWN = frozenset({"_state_version", "_state_engine_version", "_local", "_version_hash"})
_INCREMENTAL_KEYS = frozenset({"initial_value", "last_value", "unique_hashes", "start_value"})


class IncrementalPlace(NamedTuple):
    """Where the incremental of a resource is: ``at`` leads to the object that has ``last_value``."""

    stream: str
    column: str
    at: JsonPath


def form_of(content: Any) -> str | None:
    """``state`` if this looks like the state of a dlt pipeline, else None."""
    if not isinstance(content, dict):
        return None
    sources = content.get("sources")
    has_sources = isinstance(sources, dict) and (
        "pipeline_name" in content or any(map(_has_resources, sources.values()))
    )
    return "state" if has_sources or len(content.keys() & _OWN) >= 2 else None


def _has_resources(source: Any) -> bool:
    resources = source.get("resources") if isinstance(source, dict) else None
    return isinstance(resources, dict) and any(
        "incremental" in resource for resource in resources.values() if isinstance(resource, dict)
    )


def places(content: Mapping[str, Any]) -> Iterator[IncrementalPlace]:
    """Each cursor in a document without findings."""
    for source, source_state in (content.get("sources") or {}).items():
        for resource, state in (source_state.get("resources") or {}).items():
            for column in state.get("incremental") or {}:
                at = ("sources", source, "resources", resource, "incremental", column)
                yield IncrementalPlace(f"{source}.{resource}", column, at)


def read(content: Any, findings: Findings) -> CursorDocument | None:
    """The document of a JSON value; None if there is none to be seen in it. What is wrong goes to ``findings``."""
    if content != {} and form_of(content) is None:
        text = f"must be the state of a dlt pipeline, but is {kind_of(content)}"
        findings.add((), f"{text} of another shape" if isinstance(content, dict) else text, "give its state.json")
        return None
    findings.of_keys((), content, _KEYS)
    version = _version(content, "_state_version", findings)
    if _version(content, "_state_engine_version", findings) > LATEST_ENGINE:
        text = f"is above {LATEST_ENGINE}, the greatest that dlt 1.31 knows: it refuses such a state"
        findings.add(("_state_engine_version",), text, "use the dlt that wrote it, or restore an older copy")
    sources = content.get("sources", {})
    streams: dict[str, CursorStream] = {}
    if not isinstance(sources, dict):
        findings.add(("sources",), f"must be an object, but is {kind_of(sources)}", "restore it, or remove it")
        sources = {}
    for source, state in sources.items():
        for stream in _source(source, state, ("sources", source), findings):
            if stream.id in streams:
                text = f"two resources are called {stream.id}, with the names of their sources"
                findings.add(("sources", source, "resources", stream.name), text, "rename one of the sources")
            streams[stream.id] = stream
    ordered = tuple(streams[name] for name in sorted(streams))
    return CursorDocument(Tool.DLT, StateType.STREAM, version, ordered, None, content)


def _version(content: Mapping[str, Any], key: str, findings: Findings) -> int:
    value = content.get(key)
    if type(value) is int and value >= 0:
        return value
    if content and value is None and key not in content:
        findings.add((key,), "is missing, without which dlt cannot read the state", "restore it from a copy")
    elif content:
        findings.add((key,), f"must be a whole number, 0 or more, but is {kind_of(value)}", "restore it from a copy")
    return 0


def _source(source: str, state: Any, at: JsonPath, findings: Findings) -> list[CursorStream]:
    if not isinstance(state, dict):
        findings.add(at, f"must be an object, but is {kind_of(state)}", "restore it, or remove it")
        return []
    findings.of_keys(at, state, frozenset({"resources"}), free=True)
    resources = state.get("resources", {})
    if not isinstance(resources, dict):
        findings.add((*at, "resources"), f"must be an object, but is {kind_of(resources)}", "restore it")
        return []
    streams = [_resource(source, name, own, (*at, "resources", name), findings) for name, own in resources.items()]
    return [stream for stream in streams if stream is not None]


def _resource(source: str, name: str, state: Any, at: JsonPath, findings: Findings) -> CursorStream | None:
    if not isinstance(state, dict):
        findings.add(at, f"must be an object, but is {kind_of(state)}", "restore it, or remove it")
        return None
    findings.of_keys(at, state, frozenset({"incremental"}), free=True)
    cursors: dict[str, Scalar] = {}
    other = {key: write(value, sort=True) for key, value in state.items() if key != "incremental"}
    incremental = state.get("incremental", {})
    if not isinstance(incremental, dict):
        findings.add((*at, "incremental"), f"must be an object, but is {kind_of(incremental)}", "restore it")
        incremental = {}
    for column, cursor in incremental.items():
        path: JsonPath = (*at, "incremental", column)
        if not isinstance(cursor, dict):
            findings.add(path, f"must be an object, but is {kind_of(cursor)}", "restore it, or remove it")
            continue
        findings.of_keys(path, cursor, _INCREMENTAL_KEYS)
        hashes = cursor.get("unique_hashes", [])
        if not isinstance(hashes, list):
            text = f"must be a list, but is {kind_of(hashes)}: dlt loads rows again that are at the cursor"
            findings.add((*path, "unique_hashes"), text, "restore it, or write []")
        if "last_value" not in cursor:
            findings.warn((*path, "last_value"), "is missing: dlt reads the resource from its start", "restore it")
            continue
        value = cursor["last_value"]
        if isinstance(value, dict | list):
            other[f"incremental.{column}"] = write(value, sort=True)
        else:
            cursors[column] = _decoded(value, (*path, "last_value"), findings)
    return CursorStream(f"{source}.{name}", source, name, "", FINISHED, None, cursors, other)


def _decoded(value: Scalar, at: JsonPath, findings: Findings) -> Scalar:
    """A value without dlt's mark of its type; what the mark does not fit is a text like any other."""
    if not isinstance(value, str) or value[:1] not in MARKS:
        return value
    mark, text = value[0], value[1:]
    try:
        if mark in (DECIMAL, WEI):
            number = Decimal(text)
            return number if number.is_finite() else value
        if mark == DATETIME:
            datetime.fromisoformat(text)
        elif mark == DATE:
            date.fromisoformat(text)
        elif mark == TIME:
            time.fromisoformat(text)
    except (ValueError, InvalidOperation):
        findings.warn(at, "does not fit the type that its first character marks: dlt takes it for a text", "restore it")
        return value
    return text
