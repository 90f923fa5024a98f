"""The project file, from disk to models, with everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from odi_assets.config.checks import CHECKS
from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import ConfigErrors, FilePosition, Mistake, Problem, render_path
from odi_assets.config.models import NodeConfig, PipelineConfig, ProjectConfig, Strict
from odi_assets.config.yaml.document import YamlDocument, read_document

LOCAL_STATE_WARNING = "⚠️ No system catalog configured. Using local JSON state backend (local-only mode)."


@dataclass(frozen=True)
class LoadedProject:
    """A project file without mistakes.

    Attributes:
        config: the file as models.
        path: the file, absolute.
        root: its folder; relative paths start here.
        warnings: messages for the user.
        places: by pipeline and node, the file and the line where the node is defined: of the project file, or of the
            decorated function.
    """

    config: ProjectConfig
    path: Path
    root: Path
    warnings: tuple[str, ...] = ()
    places: Mapping[tuple[str, str], tuple[Path, int]] = field(default_factory=dict)


def load_config_from_file(path: str | Path) -> ProjectConfig:
    """Return the models of a project file. This is Odibi's name for :func:`load_project_file`.

    Raises:
        ConfigErrors: as there.
    """
    return load_project_file(path).config


def load_project_file(
    path: str | Path,
    *,
    env: Mapping[str, str] | None = None,
    environment: str | None = None,
    functions: Sequence[Callable[..., Any]] = (),
) -> LoadedProject:
    """Read and check a project file.

    Args:
        path: the file.
        env: what ``${VAR}`` is looked up in; the process's environment when None.
        environment: which of the file's ``environments`` to take; what it says goes before the rest of the file.
        functions: decorated functions that are nodes in addition to the nodes of the file.

    Raises:
        ConfigErrors: with every mistake that could be found, each with its place. No message holds a secret, or what
            a variable holds.
    """
    file = Path(path)
    root = file.absolute().parent
    text = _read(file)
    document = read_document(text)
    if not isinstance(document.data, dict):
        document.mistakes = document.mistakes or [_not_a_mapping(document)]
        raise _errors(path, document)
    ignored = _take_out_ignored(document)
    known: Mapping[str, str] = os.environ if env is None else env
    if environment is not None or "variables" in document.data:
        from odi_assets.config.yaml.environments import choose, variables

        if unknown := choose(document, environment):
            raise _errors(path, document, unknown)
        known = variables(document, known)
    unset = _write_out(document, text, known)
    if functions or "python" in document.data:
        from odi_assets.config.python_nodes import add_nodes

        add_nodes(document, functions, root)
    invalid: ValidationError | None = None
    try:
        config = ProjectConfig.model_validate(document.data)
    except ValidationError as error:
        from odi_assets.config.checks.partial_project import read_partial

        config, invalid = read_partial(document.data), error
    view = ProjectView(config, document, root)
    checked = [mistake for check in CHECKS for mistake in check(view)]
    if document.mistakes or unset or invalid or checked:
        raise _errors(path, document, unset, invalid, checked)
    warnings = [] if config.system is not None else [LOCAL_STATE_WARNING]
    warnings += [f"`{key}` is an Odibi key that odi_assets does not use; it is ignored" for key in ignored]
    return LoadedProject(config, file.absolute(), root, tuple(warnings), _places(config, document, file.absolute()))


def _places(config: ProjectConfig, document: YamlDocument, file: Path) -> dict[tuple[str, str], tuple[Path, int]]:
    positions: dict[tuple[str, str], tuple[Path, int]] = {}
    for of, pipeline in enumerate(config.pipelines):
        for number, node in enumerate(pipeline.nodes):
            path = ("pipelines", of, "nodes", number)
            origin = document.origins.get(path)
            position = (file.parent / origin.file, origin.line) if origin else (file, document.places[path].mark.line)
            positions[pipeline.pipeline, node.name] = position
    return positions


def _write_out(document: YamlDocument, text: str, known: Mapping[str, str]) -> list[Mistake]:
    """Put what a document's short forms stand for in their place; the variables that are not known."""
    unset: list[Mistake] = []
    if "${" in text:
        from odi_assets.config.yaml.variables import fill_in

        unset = fill_in(document, known)
    if "{table}" in text:
        from odi_assets.config.yaml.applied_tables import write_out_tables

        write_out_tables(document)
    return unset


def _take_out_ignored(document: YamlDocument) -> list[str]:
    """Take the keys that mean nothing here out of a document, and return their paths as messages write them."""
    models: dict[int, type[Strict]] = {1: ProjectConfig, 3: PipelineConfig, 5: NodeConfig}
    paths = [
        path
        for path in document.places
        if len(path) in models
        and path[-1] in models[len(path)].IGNORED
        and path[:-1:2] == ("pipelines", "nodes")[: len(path) // 2]
    ]
    for path in paths:
        document.take_out(path)
    return [render_path(path) for path in paths]


def _errors(
    path: str | Path,
    document: YamlDocument,
    unset: Sequence[Mistake] = (),
    invalid: ValidationError | None = None,
    checked: Sequence[Mistake] = (),
) -> ConfigErrors:
    """Return the error for all that is wrong with a project file.

    Args:
        path: the file.
        document: what is in it.
        unset: mistakes about variables.
        invalid: what the models refuse.
        checked: what the checks found. A mistake that only follows from another one is left out.
    """
    from odi_assets.config.diagnostics.locations import Locations
    from odi_assets.config.diagnostics.pydantic_errors import explain

    locations = Locations(str(path), document)
    at_unset = {mistake.at for mistake in unset}
    wrong = explain(invalid, locations) if invalid is not None else []
    kept = [*unset, *(mistake for mistake in wrong if locations.find(mistake.at).path not in at_unset)]
    reported = [locations.find(mistake.at).path for mistake in kept]
    for mistake in checked:
        at = locations.find(mistake.at).path
        explained = any(other[: len(at)] == at for other in reported) if mistake.absence else at in reported
        if not explained:
            kept.append(mistake)
    return ConfigErrors.of(str(path), map(locations.problem, [*document.mistakes, *kept]))


def _not_a_mapping(document: YamlDocument) -> Mistake:
    if document.data is None:
        message = "the file is empty: a project file has `project`, `connections` and `pipelines`"
        return Mistake(message, mark=FilePosition(1, 1))
    message = "the file is not a mapping of keys and values: it starts with `project: …`"
    return Mistake(message, mark=document.places[()].mark)


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
