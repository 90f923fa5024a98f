"""State as one JSON document: written by an export, checked as a whole before an import changes anything."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from odi_assets.errors import ConfigError
from odi_assets.state.records import HwmEntry, RunRecord, plain
from odi_assets.state.transfer.document_models import FORMAT, VERSION, StateDocument
from odi_assets.state.transfer.snapshot import EnvironmentState, KeyState, StateSnapshot
from odi_assets.state.values import is_utf8, to_json
from odi_assets.util.exact_json import JsonPath, key_text
from odi_assets.util.json_scan import Lines, is_deeper, read_strict, scan

_MAX_DEPTH = 200
"""Values may be nested 64 deep, and each dict with keys that are not text takes two levels of JSON."""


def to_document(snapshot: StateSnapshot, *, history: bool, runs: bool) -> dict[str, Any]:
    """The document of a snapshot, as JSON-ready data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "project": snapshot.project,
        "exported_at": datetime.now(UTC).isoformat(),
        "environments": [_environment(state, history, runs) for state in snapshot.environments],
    }


def to_text(document: dict[str, Any]) -> str:
    """The document as text that any JSON reader takes."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return text if is_utf8(text) else json.dumps(document, indent=2, allow_nan=False)


def parse(text: str, source: str) -> StateSnapshot:
    """The snapshot of a document.

    Args:
        text: the document.
        source: what it is called in messages: a file's name.

    Raises:
        ConfigError: everything that is wrong with it, each with line, column and path. Field: problems.
    """
    try:
        is_plain = not is_deeper(read_strict(text), _MAX_DEPTH)
    except (ValueError, ArithmeticError, RecursionError):
        is_plain = False
    flaws = [] if is_plain else scan(text, max_depth=_MAX_DEPTH).flaws
    if flaws:
        raise _refused(source, _placed(text, source, [(flaw.start, flaw.path, flaw.message) for flaw in flaws]))
    try:
        document = StateDocument.model_validate(json.loads(text))
    except ValidationError as error:
        starts = scan(text, max_depth=_MAX_DEPTH).starts
        problems = []
        for detail in error.errors(include_url=False, include_input=False):
            path = tuple(detail["loc"])
            known_path = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in starts)
            problems.append((starts[known_path], path, _message(detail)))
        raise _refused(source, _placed(text, source, problems)) from None
    return _snapshot(document)


def _environment(state: EnvironmentState, history: bool, runs: bool) -> dict[str, Any]:
    return {
        "environment": state.environment,
        "keys": [_key(key, history) for key in state.keys],
        **({"runs": [_run(record) for record in state.runs]} if runs else {}),
    }


def _key(key: KeyState, history: bool) -> dict[str, Any]:
    older = {"older": [_revision(entry) for entry in key.older]} if history else {}
    return {"key": key.entry.key, **_revision(key.entry), **older}


def _revision(entry: HwmEntry) -> dict[str, Any]:
    data, kind = to_json(entry.value)
    # A value of Odibi's has no type, unless JSON as the standard has it could not hold it: NaN.
    typed = entry.value_type is not None or (not entry.deleted and data != entry.value)
    kept = {name: getattr(entry, name) for name in ("revision", "deleted", "target_commit", "run_id", "origin")}
    shown = (entry.value_type or kind) if typed else None
    return {"value_type": shown, "value": data, "updated_at": entry.updated_at.isoformat(), **kept}


def _run(record: RunRecord) -> dict[str, Any]:
    attributes = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "environment"}
    moments = {name: value.isoformat() for name, value in attributes.items() if isinstance(value, datetime)}
    return {name: to_json(plain(value))[0] for name, value in {**attributes, **moments}.items()}


def _snapshot(document: StateDocument) -> StateSnapshot:
    return StateSnapshot(document.project, tuple(_state(item) for item in document.environments))


def _state(item: Any) -> EnvironmentState:
    keys = []
    for key in item.keys:
        older = tuple(entry.to_entry(key.key, item.environment) for entry in key.older)
        keys.append(KeyState(key.to_entry(key.key, item.environment), older))
    return EnvironmentState(item.environment, tuple(keys), tuple(run.to_record(item.environment) for run in item.runs))


# -- what is wrong, and where ------------------------------------------------------------------------------------------


def _placed(text: str, source: str, problems: list[tuple[int, JsonPath, str]]) -> list[str]:
    lines, placed = Lines(text), []
    for start, path, message in sorted(problems, key=lambda problem: problem[0]):
        line, column = lines.at(start)
        where = key_text(path)
        placed.append(f"{source}:{line}:{column}: {where + ': ' if where else ''}{message}")
    return placed


def _message(error: Any) -> str:
    kind = error["type"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a part of such a document"
    if kind == "model_type":
        return "is not a JSON object"
    text = str(error["msg"])
    return text.removeprefix("Value error, ").removeprefix("Input ")


def _refused(source: str, problems: list[str]) -> ConfigError:
    fix = "nothing was changed; correct the document, or export it again"
    if len(problems) == 1:
        return ConfigError(problems[0], fix=fix, problems=tuple(problems))
    listing = "\n".join(f"  {problem}" for problem in problems)
    return ConfigError(f"{source} has {len(problems)} mistakes:\n{listing}", fix=fix, problems=tuple(problems))
