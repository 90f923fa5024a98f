"""Functions that a transform names and that are not there, or do not take what the node has: found without their code
being run."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, about, closest
from odi_assets.config.known_columns import READ
from odi_assets.config.python_nodes import decorated

_GIVEN = frozenset({"spark", "store"})
"""Arguments that each function may ask for."""


@dataclass(frozen=True)
class _Function:
    """A function as its source has it.

    Attributes:
        parameters: their names.
        required: those without a default.
        takes_all: it takes any argument.
    """

    parameters: tuple[str, ...]
    required: tuple[str, ...]
    takes_all: bool


def wrong_functions(project: ProjectView) -> Iterator[Mistake]:
    """Find functions, and arguments of them, that are not there."""
    for node in project.nodes:
        reference = node.config.transform.function if node.config.transform is not None else None
        if reference is not None and decorated(reference) is None:
            yield from _mistakes(node, reference, project.root)


def _mistakes(node: NodeView, reference: str, root: FilePath) -> Iterator[Mistake]:
    module, _, name = reference.partition(":")
    at = (*node.path, "transform", "function")
    file = _file_of(module, root)
    if file is None:
        if not _is_installed(module.partition(".")[0]):
            stems = [
                *(path.stem for path in root.glob("*.py")),
                *(path.parent.name for path in root.glob("*/__init__.py")),
            ]
            meant = closest(module, stems)
            text = (
                "names a module that does not exist: it is looked for beside the project file, and in the environment"
            )
            yield about(reference, text, at=at, suggestion=f"{meant}:{name}" if meant else None)
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The run says what is wrong with the module.
        return
    names = _names_of(tree)
    if names is None:
        return
    if name not in names:
        meant = closest(name, names)
        known = ", ".join(public_name for public_name in names if not public_name.startswith("_")) or "none"
        text = f"names no function of {file.name}; it has {known}"
        yield about(reference, text, at=at, suggestion=f"{module}:{meant}" if meant else None)
    elif (function := names[name]) is not None:
        yield from _arguments(node, function, reference)


def _arguments(node: NodeView, function: _Function, reference: str) -> Iterator[Mistake]:
    transform, at = node.config.transform, (*node.path, "transform")
    if transform is None or function.takes_all:
        return
    sources = {*([READ] if node.config.read is not None else []), *node.config.inputs}
    known = {*sources, *_GIVEN, *transform.params}
    for name in transform.params:
        meant = closest(name, [parameter for parameter in function.parameters if parameter not in known])
        if name not in function.parameters and meant is not None:
            text = f"is no parameter of {reference}, which takes {', '.join(function.parameters)}"
            yield Mistake(f"`{name}` {text}", plain=text, at=(*at, "params", name), suggestion=meant, where="key")
            known.add(meant)
    unknown = [name for name in function.required if name not in known]
    if len(sources) == 1 and len(unknown) == 1 and not sources & set(function.required):
        # One source and one parameter that nothing else fills: the parameter may have any name.
        return
    if unknown:
        text = f"wants {', '.join(f'`{name}`' for name in unknown)}; the node offers {', '.join(sorted(known))}"
        yield about(reference, text, at=(*at, "function"))


def _file_of(module: str, root: FilePath) -> FilePath | None:
    """The source of a module beside the project file; None if it is not there, or imported from elsewhere."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    path = root.joinpath(*module.split("."))
    source_file = next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)
    if source_file is None or (loaded is not None and FilePath(loaded).resolve() != source_file.resolve()):
        return None
    return source_file


def _is_installed(package: str) -> bool:
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return True


def _names_of(tree: ast.Module) -> dict[str, _Function | None] | None:
    """What a module has by name, functions with their parameters; None if its text does not tell."""
    names: dict[str, _Function | None] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            names[statement.name] = None if statement.decorator_list else _function(statement.args)
        elif isinstance(statement, ast.AsyncFunctionDef | ast.ClassDef):
            names[statement.name] = None
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0]: None for alias in statement.names}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names |= {node.id: None for node in ast.walk(statement) if isinstance(node, ast.Name)}
        elif not _does_nothing(statement):
            # It may make names, as `if` and `try` do.
            return None
    return None if "*" in names or "__getattr__" in names or _is_written_to(tree) else names


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _is_written_to(tree: ast.Module) -> bool:
    """Whether code of the module may give it names: by ``global``, or through ``globals()``."""
    words = {"globals", "setattr", "exec", "vars", "modules"}
    return any(
        isinstance(node, ast.Global)
        or (isinstance(node, ast.Name) and node.id in words)
        or (isinstance(node, ast.Attribute) and node.attr in words)
        for node in ast.walk(tree)
    )


def _function(arguments: ast.arguments) -> _Function:
    plain = [*arguments.posonlyargs, *arguments.args]
    required = plain[: len(plain) - len(arguments.defaults)]
    required += [
        argument
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    names = tuple(argument.arg for argument in [*plain, *arguments.kwonlyargs])
    return _Function(names, tuple(argument.arg for argument in required), arguments.kwarg is not None)
