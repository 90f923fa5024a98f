"""The project file, from disk to models, with everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from odi_assets.config import checks
from odi_assets.config.diagnostics.locations import Finding, Places
from odi_assets.config.diagnostics.partial_project import read_outline
from odi_assets.config.diagnostics.problems import ConfigErrors, Problem
from odi_assets.config.diagnostics.pydantic_errors import explain
from odi_assets.config.models import ProjectConfig
from odi_assets.config.values import Values, read_values
from odi_assets.config.yaml import document

LOCAL_STATE_WARNING = "⚠️ No system catalog configured. Using local JSON state backend (local-only mode)."


@dataclass(frozen=True)
class LoadedProject:
    """A project file that is right.

    Attributes:
        config: what it says.
        path: the file, absolute.
        root: its folder, which relative paths start from.
        warnings: what the reader should know of.
    """

    config: ProjectConfig
    path: Path
    root: Path
    warnings: tuple[str, ...] = ()


def load_config_from_file(path: str | Path) -> ProjectConfig:
    """Return the configuration in a project file; Odibi's name for :func:`load_project_file`.

    Raises:
        ConfigErrors: see there.
    """
    return load_project_file(path).config


def load_project_file(path: str | Path, *, env: Mapping[str, str] | None = None) -> LoadedProject:
    """Read and check a project file.

    Args:
        path: the file.
        env: what ``${VAR}`` is looked up in; the process's environment when None.

    Raises:
        ConfigErrors: with every mistake that could be found, each with its place. No message holds a secret, or what
            a variable holds.
    """
    file = Path(path)
    text = _read(file)
    read = document.read_document(text)
    environment = os.environ if env is None else env
    places = Places(str(path), read, environment)
    problems = [
        Problem(str(path), wrong.mark.line, wrong.mark.column, places.key(wrong.path), wrong.mistake.message)
        for wrong in read.problems
    ]
    if not isinstance(read.root, document.Mapping):
        raise ConfigErrors.of(str(path), problems or [_not_a_mapping(str(path), read.root)]) from None
    values = read_values(read.root, environment)
    config, structural = _validate(values.data, places)
    outline = read_outline(values.data, file.absolute().parent, places)
    found = _without_echoes(values.findings, structural, checks.check(outline), places)
    problems.extend(places.problems(found))
    if problems or config is None:
        raise ConfigErrors.of(str(path), problems)
    return LoadedProject(
        config=config,
        path=file.absolute(),
        root=file.absolute().parent,
        warnings=tuple(_warnings(config, values, places)),
    )


def _validate(data: Any, places: Places) -> tuple[ProjectConfig | None, list[Finding]]:
    try:
        return ProjectConfig.model_validate(data), []
    except ValidationError as error:
        return None, explain(error, places)


def _warnings(config: ProjectConfig, values: Values, places: Places) -> list[str]:
    warnings = [] if config.system is not None else [LOCAL_STATE_WARNING]
    return warnings + [
        f"`{places.key(path)}` is an Odibi key that odi_assets does not use; it is ignored" for path in values.ignored
    ]


def _without_echoes(
    first: list[Finding], structural: list[Finding], between: list[Finding], places: Places
) -> list[Finding]:
    """Drop findings that only follow from others: on an unset variable, or on something missing beside a mistake."""
    unset = {places.spot(finding.path).path for finding in first}
    kept = [*first, *(finding for finding in structural if places.spot(finding.path).path not in unset)]
    wrong = [places.spot(finding.path).path for finding in kept]
    for finding in between:
        path = places.spot(finding.path).path
        if path in wrong:
            continue
        section = path if finding.absence else None
        if section is not None and any(other[: len(section)] == section for other in wrong):
            continue
        kept.append(finding)
    return kept


def _not_a_mapping(file: str, root: document.Node | None) -> Problem:
    if root is None or (isinstance(root, document.Scalar) and root.value is None):
        return Problem(file, 1, 1, "", "the file is empty: a project file has `project`, `connections` and `pipelines`")
    message = "the file is not a mapping of keys and values: it starts with `project: …`"
    return Problem(file, root.mark.line, root.mark.column, "", message)


def _read(file: Path) -> str:
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise _unreadable(file, "there is no such file", _where_else(file)) from None
    except IsADirectoryError:
        raise _unreadable(
            file, "is a folder, not a project file", f"name the file in it: {file / 'odibi.yaml'}"
        ) from None
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror}", None) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = "is not UTF-8 text from here on: save it as UTF-8"
        raise ConfigErrors.of(str(file), [Problem(str(file), line, column, "", message)]) from None


def _unreadable(file: Path, message: str, fix: str | None) -> ConfigErrors:
    problem = Problem(str(file), 0, 0, "", message)
    return ConfigErrors(str(problem), fix=fix, problems=(problem,))


def _where_else(file: Path) -> str:
    other = file.with_suffix(".yml" if file.suffix == ".yaml" else ".yaml")
    if other.is_file():
        return f"there is {other}"
    return "name the project file with -c/--config or in ODI_PROJECT"
