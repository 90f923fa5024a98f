"""What a project file takes of other packages: kinds of sources and table engines, and the packages that it names."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models.connections import StoreConnection
from odi_assets.config.models.reads import SOURCES
from odi_assets.config.table_engines import TABLE_ENGINES
from odi_assets.errors import ConfigError
from odi_assets.util.extensions import Extension, ExtensionPoint, is_installed, normalized


def missing_packages(project: ProjectView) -> Iterator[Mistake]:
    """Find packages of ``requires`` that are not installed."""
    for i, name in enumerate(project.config.requires):
        if not is_installed(name):
            text = f"is not installed here, and the project needs it: install it (`pip install {name}`)"
            yield about(name, text, at=("requires", i))


def taken_of_packages(project: ProjectView) -> Iterator[Mistake]:
    """Find table engines that nobody has, and what comes with a package that ``requires`` does not name."""
    for name, connection in (project.connections or {}).items():
        if isinstance(connection, StoreConnection):
            at: Path = ("connections", name, "table_engine")
            yield from _taken(project, TABLE_ENGINES, connection.table_engine, at)
    for node in project.nodes:
        for path, read in node.config.reads.items():
            # The model of a `read` says that nobody has its format. The names of this package are no metadata to read.
            if read.format not in SOURCES.built_in and read.format in SOURCES.names():
                yield from _taken(project, SOURCES, read.format, (*node.path, *path, "format"))


def _taken(project: ProjectView, point: ExtensionPoint, name: str, at: Path) -> Iterator[Mistake]:
    try:
        extension: Extension | None = point.find(name)
    except ConfigError as error:
        yield Mistake(f"{error.message}; {error.fix}", at=at)
        return
    if extension is None:
        yield about(name, f"is no {point.what} that is installed here; there are: {', '.join(point.names())}", at=at)
    elif extension.package is not None and normalized(extension.package) not in map(
        normalized, project.config.requires
    ):
        text = (
            f"comes with the package `{extension.package}`: add `requires: [{extension.package}]` at the top of the "
            "file, so "
        )
        text += "that a machine without the package says what is missing"
        yield about(name, text, at=at)
