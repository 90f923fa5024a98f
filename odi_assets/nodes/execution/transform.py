"""A node's own logic: Spark SQL over views of its sources, or a Python function of DataFrames."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from odi_assets.config.models import NodeConfig, TransformConfig
from odi_assets.config.python_nodes import decorated, import_user_module
from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.errors import ConfigError, OdiError, TransformError
from odi_assets.nodes.execution.errors import CORRECT, description_of
from odi_assets.spark.call_sites import with_call_sites
from odi_assets.spark.session import apply_conf
from odi_assets.util.user_code import named_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "store"
"""The parameter by which a function asks for its node's state store."""


def transformed(
    spark: SparkSession,
    node: NodeConfig,
    root: Path,
    sources: Mapping[str, DataFrame],
    label: str,
    open_store: Callable[[], object] | None = None,
) -> DataFrame:
    """The node's rows, lazily.

    Args:
        open_store: opens the node's state store, for a function with a parameter named ``store``.

    Raises:
        ConfigError: the SQL file or the function does not exist, or the node has several sources and no transform.
        TransformError: the SQL is not valid, or the function fails or does not return a DataFrame.
    """
    transform = node.transform
    if transform is None:
        if len(sources) == 1:
            return next(iter(sources.values()))
        raise ConfigError(
            f"{label} has {len(sources)} sources ({', '.join(sources)}) and no transform that makes one table of them",
            fix="add `transform: {sql: …}` to the node",
            node=label,
        )
    if transform.function is not None:
        function = load_function(transform.function, root, label)
        if not _workers_import_from(root, spark):
            _send_by_value(sys.modules.get(getattr(function, "__module__", "")), root)
        known: dict[str, Any] = {**sources, "spark": spark, **transform.params}
        if open_store is not None and STORE not in known and STORE in inspect.signature(function).parameters:
            known[STORE] = open_store()
        result = _call(function, known, transform, sources, label, root)
        # What is computed from here on, and written, does not depend on what the function set.
        apply_conf(spark, REQUIRED_CONF)
        return result
    for name, frame in sources.items():
        frame.createOrReplaceTempView(name)
    try:
        return spark.sql(transform.sql_text(root))
    except Exception as error:
        raise TransformError(f"the SQL of {label} is not right: {error}", fix=CORRECT, node=label) from error


def load_function(reference: str, root: Path, label: str) -> Callable[..., Any]:
    """The function that ``module:name`` names; modules beside the project file are found first.

    Raises:
        ConfigError: there is no such module or function in it.
        TransformError: the module fails when it is imported.
    """
    if (made := decorated(reference)) is not None:
        return made
    module_name, _, name = reference.partition(":")
    module = import_user_module(module_name, root, label)
    function = getattr(module, name, None)
    if not callable(function):
        known = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        raise ConfigError(
            f"{label}: module `{module_name}` has no function `{name}`",
            fix=f"it has: {', '.join(known) or 'none'}",
            node=label,
        )
    return function  # type: ignore[no-any-return]


def _workers_import_from(root: Path, spark: SparkSession) -> bool:
    """Whether Spark's Python workers find the modules beside the project file. Workers of a session in this process
    search the folder where it was started, and PYTHONPATH."""
    if not hasattr(spark, "_jsparkSession") or not str(spark.sparkContext.master).startswith("local"):
        return False
    folders = [Path.cwd(), *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
    return any(folder.resolve() == root.resolve() for folder in folders)


def _send_by_value(module: ModuleType | None, root: Path) -> None:
    """Let functions and classes of a module beside the project file go to Spark's workers as code. What such a module
    keeps between calls, a cache for instance, begins empty in each task."""
    file, name = getattr(module, "__file__", None), getattr(module, "__name__", "")
    if module is None or file is None or name.partition(".")[0] == "odi_assets":
        return
    if Path(file).resolve().is_relative_to(root.resolve()) and "site-packages" not in Path(file).parts:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _call(
    function: Callable[..., Any],
    known: Mapping[str, Any],
    transform: TransformConfig,
    sources: Mapping[str, DataFrame],
    label: str,
    root: Path,
) -> DataFrame:
    named = f"{label}: {transform.function}{_place(function, root)}"
    arguments = _arguments(function, known, sources, transform, label, named)
    try:
        with with_call_sites():
            result = function(**arguments)
    except OdiError:
        raise
    except Exception as error:
        raise TransformError(
            f"{label}: {transform.function} failed: {description_of(error, root)}", fix=CORRECT, node=label
        ) from error
    if not isinstance(result, DataFrame):
        raise TransformError(
            f"{named} returned {type(result).__name__}, not a Spark DataFrame",
            fix="return the DataFrame that the node's table is to hold",
            node=label,
        )
    return result


def _place(function: Callable[..., Any], root: Path) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({named_from(root, code.co_filename)}:{code.co_firstlineno})" if code is not None else ""


def _arguments(
    function: Callable[..., Any],
    known: Mapping[str, Any],
    sources: Mapping[str, DataFrame],
    transform: TransformConfig,
    label: str,
    named: str,
) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return {
            name: value
            for name, value in known.items()
            if name not in ("spark", STORE) or name in {**sources, **transform.params}
        }
    names = [parameter.name for parameter in parameters]
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    unknown = [name for name in required if name not in known]
    if len(sources) == 1 and len(unknown) == 1 and not sources.keys() & set(required):
        # One source and one parameter that nothing else fills: the parameter may have any name.
        return {unknown[0]: next(iter(sources.values())), **{n: known[n] for n in names if n in known}}
    if unknown:
        raise TransformError(
            f"{named} wants {', '.join(f'`{name}`' for name in unknown)}; the node offers {', '.join(sorted(known))}",
            fix="name its parameters after the node's inputs, `df` for its `read`, `spark` or `transform.params`",
            node=label,
        )
    return {name: known[name] for name in names if name in known}
