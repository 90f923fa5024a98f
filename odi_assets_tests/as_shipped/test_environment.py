"""The suite's environment has the wheel alone, and the wheel asks for all that it imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.pages import ROOT

NOT_REQUIRED = {"polars": "imported for functions that ask for its frames, so for those who have it"}


def test_the_package_comes_from_the_wheel_and_the_repository_is_not_seen(installed: Installed, tmp_path: Path) -> None:
    script = "import odi_assets, sys, importlib.util as u; print(odi_assets.__file__, u.find_spec('odi_assets_tests'))"
    file, tests = installed.done(f'python -c "{script}"', tmp_path).split()
    assert Path(file).is_relative_to(installed.programs.parent)
    assert tests == "None"
    assert str(ROOT / "odi_assets") not in installed.done("python -c 'import sys; print(sys.path)'", tmp_path)
    assert installed.done("odi --version", tmp_path).startswith("odi_assets ")


def imported(module: ast.Module) -> Iterator[str]:
    """The packages that a module imports, anywhere in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def installed_for(lines: Iterable[str]) -> set[str]:
    """The distributions that pip installs for requirements: these, and what they require."""
    waiting, known = [*map(Requirement, lines)], set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        for extra in {"", *wanted.extras}:
            if (pair := (str(canonicalize_name(wanted.name)), extra)) not in known:
                known.add(pair)
                waiting += [one for one in _required_by(wanted.name) if _applies(one, extra)]
    return {name for name, _ in known}


def _required_by(name: str) -> list[Requirement]:
    try:
        return [*map(Requirement, requires(name) or [])]
    except PackageNotFoundError:
        return []


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_all_that_the_package_imports_is_among_what_it_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "dev"}
    required = installed_for([*project["dependencies"], *(line for lines in extras.values() for line in lines)])
    files = (ROOT / "odi_assets").rglob("*.py")
    names = {name for file in files for name in imported(ast.parse(file.read_text(encoding="utf-8")))}
    of_package = packages_distributions()
    foreign = {
        name
        for name in names - set(sys.stdlib_module_names) - {"odi_assets"}
        if required.isdisjoint(map(canonicalize_name, of_package.get(name, [])))
    }
    assert foreign == set(NOT_REQUIRED)
