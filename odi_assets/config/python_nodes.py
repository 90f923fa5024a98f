"""Nodes written in Python: a function of DataFrames, with the options of a node in the project file.

A decorated function stays what it is, so that it can be called and tested. The project makes a node of it, which is
planned, committed and remembered like any other: one of a module that the project file's ``python`` names, or one that
is given to ``build_definitions``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from odi_assets.config.diagnostics.mistakes import FilePosition, Path
from odi_assets.config.yaml.document import PythonOrigin, ValuePlace, YamlDocument
from odi_assets.errors import ConfigError, TransformError
from odi_assets.util.user_code import error_with_place, named_from

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__odi_node__"
_functions: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class PythonNode:
    """What a decorated function says of its node.

    Attributes:
        options: the keys of the node, as they stand in a project file.
        file, line: where the function is decorated, for messages.
    """

    pipeline: str
    name: str
    function: str
    options: Mapping[str, Any]
    file: str
    line: int

    def to_node(self) -> dict[str, Any]:
        """The node as a project file has it."""
        options = {key: value for key, value in self.options.items() if value is not None}
        transform = {"function": self.function, "params": options.pop("params", {})}
        return {"name": self.name, **options, "transform": transform}


def node(
    *,
    pipeline: str,
    write: Mapping[str, Any],
    name: str | None = None,
    read: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str] | None = None,
    depends_on: Sequence[str] | None = None,
    partition: Mapping[str, Any] | None = None,
    automation: str | Mapping[str, Any] | None = None,
    freshness: Mapping[str, Any] | None = None,
    stream: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    checks: Sequence[Mapping[str, Any]] | None = None,
    quarantine: str | None = None,
    description: str | None = None,
    owner: str | None = None,
    tags: Sequence[str] | None = None,
) -> Callable[[F], F]:
    """Make a node of a function that takes Spark DataFrames and returns one.

    Its parameters are named after the node's inputs, ``df`` for its ``read``, ``spark``, ``store`` or ``params``. An
    input with ``incremental`` is what the input gained since the last run; another one is the whole table. With
    ``stream``, all of them are streams.

    Args:
        pipeline: the pipeline that the node belongs to. One that the project file does not have is added.
        write: where its rows go, and how: ``connection``, ``path``, ``mode``, ``keys``.
        name: by default, the name of the function.
        description: the first paragraph of the function's docstring unless given.

    The other arguments are keys of a node in the project file, and mean the same.
    """

    def decorate(function: F) -> F:
        text = description or (function.__doc__ or "").strip().split("\n\n")[0].strip() or None
        options = {
            "description": text,
            "owner": owner,
            "tags": tags or None,
            "read": read,
            "inputs": inputs,
            "depends_on": depends_on or None,
            "partition": partition,
            "automation": automation,
            "freshness": freshness,
            "stream": stream,
            "write": write,
            "params": params,
            "checks": checks or None,
            "quarantine": quarantine,
        }
        code = getattr(function, "__code__", None)
        file, line = (code.co_filename, code.co_firstlineno) if code is not None else (function.__module__, 0)
        # A function within another one is found among those that were decorated, not in its module.
        reference = f"{function.__module__}:{function.__qualname__.replace('.<locals>.', '__').replace('.', '__')}"
        made = PythonNode(pipeline, name or function.__name__, reference, _plain(options), file, line)
        setattr(function, _MARK, made)
        _functions[reference] = function
        return function

    return decorate


def decorated(reference: str) -> Callable[..., Any] | None:
    """The decorated function that ``module:name`` names, if this process has made it."""
    return _functions.get(reference)


def add_nodes(document: YamlDocument, functions: Iterable[Callable[..., Any]], root: FilePath) -> None:
    """Put the nodes of ``functions``, and of the modules that the document's ``python`` names, into its pipelines.

    Raises:
        ConfigError: a function is not decorated, or there is no such module.
        TransformError: a module fails when it is imported.
    """
    named = document.data.get("python") or []
    modules = [named] if isinstance(named, str) else [name for name in named if isinstance(name, str)]
    pipelines = document.data.get("pipelines") or []
    if not isinstance(pipelines, list):
        # The models say what is wrong with it.
        return
    document.data["pipelines"] = pipelines
    for python_node in [*nodes_of_modules(modules, root), *nodes_among(functions)]:
        origin = PythonOrigin(
            named_from(root, python_node.file), python_node.line, python_node.function.rpartition(":")[2]
        )
        index = _pipeline(document, pipelines, python_node.pipeline, origin)
        nodes = pipelines[index].setdefault("nodes", [])
        if isinstance(nodes, list):
            nodes.append(python_node.to_node())
            _place(document, ("pipelines", index, "nodes", len(nodes) - 1), nodes[-1], origin)


def _pipeline(document: YamlDocument, pipelines: list[Any], name: str, origin: PythonOrigin) -> int:
    for index, pipeline in enumerate(pipelines):
        if isinstance(pipeline, dict) and pipeline.get("pipeline") == name:
            return index
    pipelines.append({"pipeline": name, "nodes": []})
    _place(document, ("pipelines", len(pipelines) - 1), pipelines[-1], origin)
    return len(pipelines) - 1


def _place(document: YamlDocument, path: Path, value: Any, origin: PythonOrigin) -> None:
    """Say of what Python made where it was made."""
    document.origins[path] = origin
    for inner, text in _texts(path, value):
        document.places[inner] = ValuePlace(FilePosition(origin.line, 1), None, text)


def _texts(path: Path, value: Any) -> Iterator[tuple[Path, str | None]]:
    nested = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    yield path, str(value) if nested is None else None
    for key, inner in nested or ():
        yield from _texts((*path, key), inner)


def nodes_among(functions: Iterable[Callable[..., Any]]) -> list[PythonNode]:
    """The nodes of decorated functions.

    Raises:
        ConfigError: one is not decorated.
    """
    nodes = []
    for function in functions:
        python_node = getattr(function, _MARK, None)
        if not isinstance(python_node, PythonNode):
            raise ConfigError(f"{function!r} is no node", fix="decorate the function with `@odi_assets.node(…)`")
        nodes.append(python_node)
    return nodes


def nodes_of_modules(modules: Sequence[str], root: FilePath) -> list[PythonNode]:
    """The nodes of all decorated functions of modules, in the order of the modules; those beside the project file are
    found first.

    Raises:
        ConfigError: there is no such module.
        TransformError: a module fails when it is imported.
    """
    nodes: list[PythonNode] = []
    for name in modules:
        module = import_user_module(name, root)
        own = (value for value in vars(module).values() if isinstance(getattr(value, _MARK, None), PythonNode))
        nodes += nodes_among(value for value in own if value.__module__ == module.__name__)
    return nodes


def import_user_module(name: str, root: FilePath, node: str | None = None) -> Any:
    """Import a module of the user's; those beside the project file are found first.

    Args:
        node: the node that asks for it, for messages.

    Raises:
        ConfigError: there is no such module.
        TransformError: it fails when it is imported.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    label, fields = (f"{node}: ", {"node": node}) if node else ("`python`: ", {})
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and _is_within(name, error.name):
            raise ConfigError(
                f"{label}there is no module `{name}` (looked in {root} and the environment)",
                fix="put it beside the project file, or install it",
                **fields,
            ) from error
        failure = error_with_place(error, root)
        raise TransformError(f"{label}importing {name} failed: {failure}", **fields) from error


def _is_within(module: str, package: str) -> bool:
    """Whether a module is ``package`` itself or in it."""
    return f"{module}.".startswith(f"{package}.")


def _plain(value: Any) -> Any:
    """``value`` as a project file holds it: enumerations by their values, sequences as lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner) for inner in value]
    return value
