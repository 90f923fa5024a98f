"""JSON Schema of the project file, for editors: completion, hover texts, and red lines while typing."""

from __future__ import annotations

import copy
from typing import Any

from odi_assets.config.models import ProjectConfig
from odi_assets.config.shape import DISCRIMINATORS
from odi_assets.config.values import IGNORED_AT_ROOT, IGNORED_IN_NODES, IGNORED_IN_PIPELINES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{", "description": "An environment variable: `${NAME}`."}
_NUMBER = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*$|\$\{", "description": _VARIABLE["description"]}
_SHORT = "Short for `{mode: …}`."


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the project file.

    It accepts all that the loader accepts, short forms and ``${VAR}`` included. What only the loader knows it lets
    through: names that lead nowhere, cycles, schedules, schemas, SQL.
    """
    schema = ProjectConfig.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    _add_short_forms(definitions)
    for model in (schema, *definitions.values()):
        if model.get("type") == "object" and "properties" in model:
            _loosen(model)
    _ignore(schema, IGNORED_AT_ROOT)
    _ignore(definitions["PipelineConfig"], IGNORED_IN_PIPELINES)
    _ignore(definitions["NodeConfig"], IGNORED_IN_NODES)
    definitions["InputConfig"] = {"anyOf": [{"type": "string", "minLength": 1}, definitions["InputConfig"]]}
    return {
        "$schema": DIALECT,
        **schema,
        "title": "odi_assets project file",
        "description": "Pipelines of nodes that Spark computes and Delta Lake holds.",
    }


def _add_short_forms(definitions: dict[str, Any]) -> None:
    write = definitions["WriteConfig"]["properties"]
    write["merge_keys"] = {**copy.deepcopy(write["keys"]), "description": "Odibi's name of `keys`."}
    write["options"] = {
        "type": "object",
        "properties": {"keys": copy.deepcopy(write["keys"])},
        "additionalProperties": False,
        "description": "Another way of Odibi's to write `keys`.",
    }
    inputs = definitions["NodeConfig"]["properties"]["inputs"]
    by_name = {"type": "object", "additionalProperties": inputs.pop("additionalProperties")}
    listed = {"type": "array", "items": {"$ref": "#/$defs/InputConfig"}}
    del inputs["type"]
    inputs["anyOf"] = [listed, by_name]
    for model, members in (
        ("ReadConfig", ["stateful", "rolling_window", "files", "version"]),
        ("InputConfig", ["stateful", "rolling_window", "version"]),
    ):
        increment = definitions[model]["properties"]["incremental"]
        increment["anyOf"].append(
            {"enum": [mode for mode in members if mode in ("files", "version")], "description": _SHORT}
        )


def _loosen(model: dict[str, Any]) -> None:
    """Let variables stand for what is not text, and let keys without a value stand for keys left out."""
    required = model.setdefault("required", [])
    for name, value in model["properties"].items():
        value.pop("title", None)
        if "const" in value and name in DISCRIMINATORS:
            required.extend({name} - {*required})
            continue
        _accept_variables(value)
        if name not in required and not _takes_null(value):
            model["properties"][name] = {"anyOf": [value, {"type": "null"}], **_notes(value)}


def _accept_variables(value: dict[str, Any]) -> None:
    if "$ref" in value and _is_enum(value["$ref"]):
        reference = value.pop("$ref")
        value["anyOf"] = [{"$ref": reference}, dict(_VARIABLE)]
    elif value.get("type") in ("integer", "number") or "enum" in value or value.get("format") == "date":
        kept = {key: value.pop(key) for key in list(value) if key not in ("description", "default", "title")}
        value["anyOf"] = [kept, dict(_NUMBER if kept.get("type") in ("integer", "number") else _VARIABLE)]
    elif "pattern" in value:
        value["pattern"] = rf"{value['pattern']}|\$\{{"
    for member in value.get("anyOf", []):
        if member not in (_VARIABLE, _NUMBER):
            _accept_variables_of_member(member)
    items = value.get("items")
    if isinstance(items, dict):
        _accept_variables(items)


def _accept_variables_of_member(member: dict[str, Any]) -> None:
    if "pattern" in member and not member["pattern"].endswith(r"\$\{"):
        member["pattern"] = rf"{member['pattern']}|\$\{{"
    elif member.get("format") == "date":
        kept = dict(member)
        member.clear()
        member["anyOf"] = [kept, dict(_VARIABLE)]


def _is_enum(reference: str) -> bool:
    return reference.rpartition("/")[2] in {"FileFormat", "WriteMode"}


def _takes_null(value: dict[str, Any]) -> bool:
    return any(member.get("type") == "null" for member in value.get("anyOf", []))


def _notes(value: dict[str, Any]) -> dict[str, Any]:
    return {key: value.pop(key) for key in ("description", "default") if key in value}


def _ignore(model: dict[str, Any], keys: frozenset[str]) -> None:
    for key in sorted(keys):
        model["properties"][key] = {"description": "A key of Odibi; accepted and ignored.", "deprecated": True}
