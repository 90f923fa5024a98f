"""``environments``: what a project file says differently in one of several environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odi_assets.config.diagnostics.mistakes import Mistake, Path, closest
from odi_assets.config.yaml.document import YamlDocument

ENVIRONMENTS, VARIABLES = "environments", "variables"
NOT_FILLED_IN = frozenset({ENVIRONMENTS, VARIABLES})
"""Keys at the top of a file in which ``${NAME}`` stays as it is."""


def choose(document: YamlDocument, name: str | None) -> list[Mistake]:
    """Put what the environment ``name`` says in place of what the rest of the file says, with the places of its values.

    Mappings are merged key by key. A connection with a ``type`` replaces the other one as a whole. State and run
    history belong to ``name``, unless the environment names another ``environment``.

    Args:
        name: None leaves the file as it is.
    """
    if name is None:
        return []
    data = document.data
    known = data.get(ENVIRONMENTS)
    environment = known.get(name) if isinstance(known, Mapping) else None
    if environment is None and not (isinstance(known, Mapping) and name in known):
        return [] if data.get("environment") == name else [_unknown(name, known)]
    if isinstance(environment, Mapping):
        for key, value in environment.items():
            _put(document, (ENVIRONMENTS, name, key), (key,), value)
    own = environment if isinstance(environment, Mapping) else {}
    system = own.get("system")
    if own.get("environment") is None:
        data["environment"] = name
    names_its_own = isinstance(system, Mapping) and system.get("environment")
    if isinstance(data.get("system"), dict) and not names_its_own:
        # The file's `system.environment` would override `environment`, and means another environment.
        data["system"].pop("environment", None)
    return []


def variables(document: YamlDocument, environment: Mapping[str, str]) -> dict[str, str]:
    """What ``${NAME}`` is looked up in: the file's ``variables``, and before them the process's environment."""
    named = document.data.get(VARIABLES)
    texts = {} if not isinstance(named, Mapping) else {name: document.places[VARIABLES, name].text for name in named}
    return {**{name: text for name, text in texts.items() if text is not None}, **environment}


def _put(document: YamlDocument, source: Path, target: Path, value: Any) -> None:
    section = document.section(target)
    present = section.get(target[-1])
    whole = len(target) == 2 and target[0] == "connections" and isinstance(value, Mapping) and "type" in value
    if isinstance(value, Mapping) and isinstance(present, dict) and not whole:
        for key, inner in value.items():
            _put(document, (*source, key), (*target, key), inner)
        return
    if target[-1] in section:
        document.take_out(target)
    section[target[-1]] = value
    size = len(source)
    moved = {(*target, *path[size:]): place for path, place in document.places.items() if path[:size] == source}
    document.places |= moved


def _unknown(name: str, known: Any) -> Mistake:
    names = [str(known_name) for known_name in known] if isinstance(known, Mapping) else []
    meant = closest(name, names)
    if meant:
        hint = f"did you mean `{meant}`?"
    else:
        hint = f"there are: {', '.join(names)}" if names else "the file has no `environments`"
    return Mistake(f"there is no environment `{name}`: {hint}", at=(ENVIRONMENTS,) if names else ())
