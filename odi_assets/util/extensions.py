"""Extension points: what other packages can add, and what this package has of the same kind, in one table.

A package declares what it adds as entry points of the point's group. Nothing of a package is imported before its name
is used: that a name exists is read from the metadata of installed packages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any, NamedTuple

from odi_assets.errors import ConfigError


class Extension(NamedTuple):
    """What a name of an extension point stands for.

    Attributes:
        point: where the object is: ``module:object``.
        package: the distribution that declares it; None for this package.
    """

    name: str
    point: EntryPoint
    package: str | None

    @property
    def shown(self) -> str:
        """The entry point and its distribution, for messages."""
        whose = "this package" if self.package is None else f"the package `{self.package}`"
        return f"the entry point `{self.name} = {self.point.value}` of {whose}"


@dataclass(frozen=True)
class ExtensionPoint:
    """A kind of thing that has names, some of this package and some of others.

    Attributes:
        group: the group of entry points.
        what: one of the things, in words: ``table engine``.
        built_in: the names of this package: ``module:object`` by name.
        wanted: what an entry point has to name, in words.

    Example:
        >>> engines = ExtensionPoint("my.engines", "engine", {"plain": "builtins:dict"}, "class")
        >>> engines.names(), engines.load("plain", lambda found: isinstance(found, type))
        (['plain'], <class 'dict'>)
    """

    group: str
    what: str
    built_in: Mapping[str, str]
    wanted: str

    def names(self) -> list[str]:
        """All names: the names of this package first."""
        return [*self.built_in, *sorted(_installed(self.group, tuple(sys.path)).keys() - self.built_in.keys())]

    def find(self, name: str) -> Extension | None:
        """What ``name`` stands for; None if nobody declares it. Other packages are looked at for other names alone.

        Raises:
            ConfigError: two packages declare it.
        """
        if name in self.built_in:
            return Extension(name, EntryPoint(name, self.built_in[name], self.group), None)
        extensions = _installed(self.group, tuple(sys.path)).get(name, ())
        if len(extensions) > 1:
            raise self._taken_twice(extensions)
        return extensions[0] if extensions else None

    def require_unique(self) -> None:
        """Raises ConfigError for a name that two packages declare, or that this package has too."""
        for name, extensions in _installed(self.group, tuple(sys.path)).items():
            own = self.find(name) if name in self.built_in else None
            if own is not None or len(extensions) > 1:
                raise self._taken_twice([*extensions] if own is None else [own, *extensions])

    def _taken_twice(self, extensions: list[Extension] | tuple[Extension, ...]) -> ConfigError:
        name = extensions[0].name
        others = " and ".join(extension.package for extension in extensions if extension.package is not None)
        return ConfigError(
            f"the {self.what} `{name}` is declared twice: by "
            f"{' and by '.join(extension.shown for extension in extensions)}",
            fix=f"uninstall {others if len(extensions) == 1 or extensions[0].package is None else 'one of ' + others}, "
            f"or take a version of it that has another name in its entry points of `{self.group}`",
            name=name,
        )

    def load(self, name: str, fits: Callable[[Any], bool]) -> Any:
        """The object that ``name`` stands for.

        Args:
            fits: whether an object is what the entry points of this point have to name.

        Raises:
            ConfigError: nobody declares it, two packages do, it cannot be imported, or it is of a wrong type.
        """
        extension = self.find(name)
        if extension is None:
            raise ConfigError(
                f"there is no {self.what} `{name}`",
                fix=f"there are: {', '.join(self.names())}; a package registers others as entry points of "
                f"`{self.group}`: install it, if one of its is meant",
                name=name,
            )
        imported = self.imported(extension, extension.point.value)
        if not fits(imported):
            raise ConfigError(
                f"`{name}` is no {self.what}: {extension.shown} names no {self.wanted}, but "
                f"{_an(type(imported).__name__)}",
                fix=f"its package is wrong: let its entry point in `{self.group}` name {_an(self.wanted)}",
                name=name,
            )
        return imported

    def imported(self, extension: Extension, reference: str) -> Any:
        """The object at ``reference``, ``module:object``, that ``extension`` names.

        Raises:
            ConfigError: it cannot be imported, whatever its module raises.
        """
        try:
            return EntryPoint(extension.name, reference, self.group).load()
        except Exception as error:
            own = extension.package is None
            raise ConfigError(
                f"the {self.what} `{extension.name}` cannot be loaded from `{reference}`, {extension.shown}: "
                f"{type(error).__name__}: {error}",
                fix="install odi_assets again"
                if own
                else f"install `{extension.package}` again, with what it needs, in a version for this odi_assets; or "
                "uninstall it",
                name=extension.name,
            ) from error


def is_installed(package: str) -> bool:
    """Whether a distribution of this name is installed."""
    try:
        distribution(package)
    except (PackageNotFoundError, ValueError):
        return False
    return True


def normalized(package: str) -> str:
    """The name of a distribution in the one spelling that stands for all of them: ``odi-sqlite`` for ``Odi_SQLite``."""
    return "-".join(part for part in package.lower().replace("_", "-").replace(".", "-").split("-") if part)


@lru_cache(maxsize=16)
def _installed(group: str, path: tuple[str, ...]) -> Mapping[str, tuple[Extension, ...]]:
    """What other packages declare in a group, by name. ``path`` is where packages are looked for."""
    del path
    extensions_by_name: dict[str, tuple[Extension, ...]] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else "unknown"
        extensions_by_name[point.name] = (
            *extensions_by_name.get(point.name, ()),
            Extension(point.name, point, package),
        )
    return extensions_by_name


def _an(text: str) -> str:
    return f"{'an' if text.lstrip('`')[0].lower() in 'aeiou' else 'a'} {text}"
