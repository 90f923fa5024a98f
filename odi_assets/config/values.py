"""A document as plain values: variables filled in, keys that mean nothing here left out."""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.yaml.document import Mapping, Node, Path, Scalar, Sequence
from odi_assets.config.yaml.variables import HOW, substitute

IGNORED_AT_ROOT = frozenset({"story", "lineage", "alerts", "logging", "semantic"})
IGNORED_IN_PIPELINES = frozenset({"layer"})
IGNORED_IN_NODES = frozenset({"explanation", "explanation_file", "runbook_url"})
"""Keys of Odibi that change nothing about what a project does, and so may stay in the file."""


@dataclass
class Values:
    """Plain values, what was wrong with their variables, and the paths of the keys that were left out."""

    data: Any = None
    findings: list[Finding] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)


def read_values(root: Node, environment: AnyMapping[str, str]) -> Values:
    """Return the plain values of a document."""
    values = Values()
    values.data = _plain(root, (), values, environment)
    return values


def _ignored_at(path: Path) -> frozenset[str]:
    if not path:
        return IGNORED_AT_ROOT
    if path[0] == "pipelines" and len(path) == 2:
        return IGNORED_IN_PIPELINES
    if path[0] == "pipelines" and len(path) == 4 and path[2] == "nodes":
        return IGNORED_IN_NODES
    return frozenset()


def _plain(node: Node, path: Path, values: Values, environment: AnyMapping[str, str]) -> Any:
    if isinstance(node, Scalar):
        return _filled(node, path, values, environment) if isinstance(node.value, str) else node.value
    if isinstance(node, Sequence):
        return [_plain(item, (*path, i), values, environment) for i, item in enumerate(node.items)]
    return _plain_mapping(node, path, values, environment)


def _plain_mapping(node: Mapping, path: Path, values: Values, environment: AnyMapping[str, str]) -> dict[str, Any]:
    ignored = _ignored_at(path)
    values.ignored.extend((*path, key) for key in node.values if key in ignored)
    return {
        key: _plain(value, (*path, key), values, environment)
        for key, value in node.values.items()
        if key not in ignored
    }


def _filled(node: Scalar, path: Path, values: Values, environment: AnyMapping[str, str]) -> str:
    result = substitute(node.text, environment)
    for name in result.unset:
        values.findings.append(Finding(path, Mistake(f"environment variable `{name}` is not set")))
    if result.malformed:
        values.findings.append(Finding(path, Mistake(f"a `${{` here starts no variable: {HOW}")))
    return result.text
