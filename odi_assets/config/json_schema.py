"""JSON Schema of the project file, for editors: completion, hover texts, and red lines while typing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.config.models import NodeConfig, PipelineConfig, ProjectConfig
from odi_assets.config.models.fields import DISCRIMINATORS, Strict
from odi_assets.config.models.reads import SOURCES, ReadConfig, kind_of

SCHEMA_FILE = "odibi.schema.json"
"""The file that new project files name in their first line; it is beside them."""
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
    _add_kinds(definitions)
    _add_short_forms(definitions)
    for model in (schema, *definitions.values()):
        if model.get("type") == "object" and "properties" in model:
            _accept_nothing(model)
    _ignore(schema, ProjectConfig.IGNORED)
    _ignore(definitions["PipelineConfig"], PipelineConfig.IGNORED)
    _ignore(definitions["NodeConfig"], NodeConfig.IGNORED)
    for kind in _kinds(Strict):
        if kind is ProjectConfig:
            _accept_defaults(schema, kind.DEFAULTS)
        elif kind.__name__ in definitions and kind is not ReadConfig and kind.__module__.startswith("odi_assets."):
            _accept_defaults(definitions[kind.__name__], kind.DEFAULTS)
    for name in SOURCES.names():
        if _prefix(name):
            settings = kind_of(name).settings
            _accept_defaults(definitions[f"{_prefix(name)}{settings.__name__}"], settings.DEFAULTS)
    definitions["InputConfig"] = {"anyOf": [{"type": "string", "minLength": 1}, definitions["InputConfig"]]}
    return {
        "$schema": DIALECT,
        **_accept_variables(schema),
        "title": "odi_assets project file",
        "description": "Pipelines of nodes that Spark computes and Delta Lake holds.",
    }


def schema_text() -> str:
    """The schema as ``odi config schema`` prints it, and as files hold it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _add_short_forms(definitions: dict[str, Any]) -> None:
    write = definitions["WriteConfig"]["properties"]
    write["merge_keys"] = {**copy.deepcopy(write["keys"]), "description": "Odibi's name of `keys`."}
    write["options"] = {
        "type": "object",
        "properties": {"keys": copy.deepcopy(write["keys"])},
        "additionalProperties": False,
        "description": "Another way of Odibi's to write `keys`.",
    }
    # What they may say, the loader knows; they become `checks`.
    definitions["NodeConfig"]["properties"] |= {"validation": {"type": "object"}, "contracts": {"type": "array"}}
    # `eager` is a word, and no mapping.
    on_cron = definitions["NodeAutomation"]["properties"]["on_cron"]
    definitions["NodeAutomation"]["required"] = ["on_cron"]
    definitions["NodeAutomation"]["properties"]["on_cron"] = {**on_cron.pop("anyOf")[0], "description": "Cron."}
    automation = definitions["NodeConfig"]["properties"]["automation"]
    automation["anyOf"].append({"type": "string", "pattern": "^(eager$|on_cron )"})
    inputs = definitions["NodeConfig"]["properties"]["inputs"]
    by_name = {"type": "object", "additionalProperties": inputs.pop("additionalProperties")}
    listed = {"type": "array", "items": {"$ref": "#/$defs/InputConfig"}}
    del inputs["type"]
    inputs["anyOf"] = [listed, by_name]
    for model, modes in [("InputConfig", ["version"]), *((kind, ["files", "version"]) for kind in _kinds_of_sources())]:
        definitions[model]["properties"]["incremental"]["anyOf"].append({"enum": modes, "description": _SHORT})


def _kinds_of_sources() -> dict[str, list[str]]:
    """The formats by the name that the settings of their kind have in the schema."""
    formats_by_model: dict[str, list[str]] = {}
    for name in SOURCES.names():
        model = kind_of(name).settings
        formats_by_model.setdefault(f"{_prefix(name)}{model.__name__}", []).append(name)
    return formats_by_model


def _prefix(name: str) -> str:
    """What comes before the names of models of a kind; other packages may have models of the same names."""
    return "" if name in SOURCES.built_in else f"{name}."


def _add_kinds(definitions: dict[str, Any]) -> None:
    """Add the settings of each kind of source, of other packages too. The ``format`` says which of them count."""
    kinds = _kinds_of_sources()
    for model, (name, *_) in kinds.items():
        prefix = _prefix(name)
        settings = kind_of(name).settings.model_json_schema(by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}")
        definitions.update({f"{prefix}{nested}": schema for nested, schema in settings.pop("$defs", {}).items()})
        definitions[model] = settings
    known = {"description": str(ReadConfig.model_fields["format"].description), "enum": SOURCES.names()}
    definitions["ReadConfig"] = {
        "type": "object",
        "description": "A source outside the pipeline.",
        "properties": {"format": known},
        "required": ["format"],
        "allOf": [
            {"if": {"properties": {"format": {"enum": names}}}, "then": {"$ref": f"#/$defs/{model}"}}
            for model, names in kinds.items()
        ],
    }


def _accept_nothing(model: dict[str, Any]) -> None:
    """Let keys without a value stand for keys left out; a union's members need the key by which they differ."""
    required = model.setdefault("required", [])
    for name, value in model["properties"].items():
        value.pop("title", None)
        if "const" in value and name in DISCRIMINATORS:
            required.extend({name} - {*required})
        elif name not in required and not _takes_null(value):
            model["properties"][name] = {"anyOf": [value, {"type": "null"}], **_notes(value)}


def _accept_variables(schema: Any) -> Any:
    """Let ``${VAR}`` stand where not any text may: for numbers, dates, words of a list, and texts of a pattern."""
    if isinstance(schema, list):
        return [_accept_variables(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value if key in _LITERAL else _accept_variables(value) for key, value in schema.items()}
    if isinstance(schema.get("pattern"), str):
        schema["pattern"] = rf"{schema['pattern']}|\$\{{"
    is_number = schema.get("type") in ("integer", "number")
    if is_number or isinstance(schema.get("enum"), list) or schema.get("format") == "date":
        notes = _notes(schema)
        return {"anyOf": [schema, dict(_NUMBER if is_number else _VARIABLE)], **notes}
    return schema


_LITERAL = frozenset({"if", "default", "examples", "enum", "required", "discriminator"})


def _takes_null(value: dict[str, Any]) -> bool:
    return any(member.get("type") == "null" for member in value.get("anyOf", []))


def _notes(value: dict[str, Any]) -> dict[str, Any]:
    return {key: value.pop(key) for key in ("description", "default") if key in value}


def _ignore(model: dict[str, Any], keys: frozenset[str]) -> None:
    for key in sorted(keys):
        model["properties"][key] = {"description": "A key of Odibi; accepted and ignored.", "deprecated": True}


def _kinds(model: type[Strict]) -> Iterator[type[Strict]]:
    for kind in model.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _accept_defaults(model: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    for key, default in defaults.items():
        value = {"type": "object"} if isinstance(default, Mapping) and default else {"const": default}
        taken = [model["properties"].pop(key, value), {"type": "null"}, *([value] if default == {} else [])]
        notes = {"description": "A key of Odibi; accepted where it changes nothing.", "deprecated": True}
        model["properties"][key] = {"anyOf": taken, **notes}
