"""Nodes written in Python: a function of DataFrames, with the options of a node in the project file.

A decorated function stays what it is, so that it can be called and tested. The project makes a node of it, which is
planned, committed and remembered like any other: one of a module that the project file's ``python`` names, or one that
is given to ``build_definitions``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from odi_assets.config.diagnostics.mistakes import Path
from odi_assets.config.yaml.document import Document, Place
from odi_assets.errors import ConfigError, TransformError

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__odi_node__"
_functions: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class PythonNode:
    """What a decorated function says of its node.

    Attributes:
        options: the keys of the node, as they stand in a project file.
        where: file and line of the function, for messages.
    """

    pipeline: str
    name: str
    function: str
    options: Mapping[str, Any]
    where: str

    def to_node(self) -> dict[str, Any]:
        """The node as a project file has it."""
        params = dict(self.options.get("params") or {})
        given = {key: value for key, value in self.options.items() if key != "params" and value is not None}
        return {"name": self.name, **given, "transform": {"function": self.function, "params": params}}


def node(
    *,
    pipeline: str,
    write: Mapping[str, Any],
    name: str | None = None,
    read: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str] | None = None,
    depends_on: Sequence[str] | None = None,
    partition: Mapping[str, Any] | None = None,
    stream: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
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
        name: that of the function unless given.
        description: the first paragraph of the function's docstring unless given.

    The other arguments are keys of a node in the project file, and mean the same.
    """

    def decorate(function: F) -> F:
        text = description or (function.__doc__ or "").strip().split("\n\n")[0].strip() or None
        options = {
            "description": text,
            "owner": owner,
            "tags": list(tags) if tags else None,
            "read": read,
            "inputs": inputs,
            "depends_on": list(depends_on) if depends_on else None,
            "partition": partition,
            "stream": stream,
            "write": write,
            "params": params,
        }
        code = getattr(function, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else function.__module__
        # A function within another one is found among those that were decorated, not in its module.
        reference = f"{function.__module__}:{function.__qualname__.replace('.<locals>.', '__').replace('.', '__')}"
        made = PythonNode(pipeline, name or function.__name__, reference, _plain(options), where)
        setattr(function, _MARK, made)
        _functions[reference] = function
        return function

    return decorate


def decorated(reference: str) -> Callable[..., Any] | None:
    """The decorated function that ``module:name`` names, if this process has made it."""
    return _functions.get(reference)


def add_nodes(document: Document, functions: Iterable[Callable[..., Any]], root: FilePath) -> None:
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
    for made in [*nodes_of_modules(modules, root), *nodes_among(functions)]:
        place = _pipeline(document, pipelines, made.pipeline)
        nodes = pipelines[place].setdefault("nodes", [])
        if isinstance(nodes, list):
            nodes.append(made.to_node())
            _place(document, ("pipelines", place, "nodes", len(nodes) - 1), nodes[-1])


def _pipeline(document: Document, pipelines: list[Any], name: str) -> int:
    for place, pipeline in enumerate(pipelines):
        if isinstance(pipeline, dict) and pipeline.get("pipeline") == name:
            return place
    pipelines.append({"pipeline": name, "nodes": []})
    _place(document, ("pipelines", len(pipelines) - 1), pipelines[-1])
    return len(pipelines) - 1


def _place(document: Document, path: Path, value: Any) -> None:
    """Say of what Python made that it stands where the file names its modules."""
    mark = document.places.get(("python",), document.places[()]).mark
    nested = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    document.places[path] = Place(mark, None, str(value) if nested is None else None)
    for key, inner in nested or ():
        _place(document, (*path, key), inner)


def nodes_among(functions: Iterable[Callable[..., Any]]) -> list[PythonNode]:
    """The nodes of decorated functions.

    Raises:
        ConfigError: one is not decorated.
    """
    found = []
    for function in functions:
        made = getattr(function, _MARK, None)
        if not isinstance(made, PythonNode):
            raise ConfigError(f"{function!r} is no node", fix="decorate the function with `@odi_assets.node(…)`")
        found.append(made)
    return found


def nodes_of_modules(modules: Sequence[str], root: FilePath) -> list[PythonNode]:
    """The nodes of all decorated functions of modules, in the order of the modules; those beside the project file are
    found first.

    Raises:
        ConfigError: there is no such module.
        TransformError: a module fails when it is imported.
    """
    if modules and str(root) not in sys.path:
        sys.path.insert(0, str(root))
    found: list[PythonNode] = []
    for name in modules:
        module = _imported(name, root)
        own = (value for value in vars(module).values() if isinstance(getattr(value, _MARK, None), PythonNode))
        found += nodes_among(value for value in own if value.__module__ == module.__name__)
    return found


def _imported(name: str, root: FilePath) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not name.startswith(error.name):
            raise TransformError(f"importing {name} failed: {error}") from error
        raise ConfigError(
            f"`python` names the module `{name}`, and there is none (looked in {root} and the environment)",
            fix="put it beside the project file, or install it",
        ) from error
    except Exception as error:
        raise TransformError(f"importing {name} failed: {type(error).__name__}: {error}") from error


def _plain(value: Any) -> Any:
    """``value`` as a project file holds it: enumerations by their values, sequences as lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner) for inner in value]
    return value
