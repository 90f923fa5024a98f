"""A node's code version: it changes when what the node does may have changed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project

_LENGTH = 12
_DOES_NOT_MATTER = {"description", "owner", "tags"}


def code_version(project: Project, key: NodeKey) -> str:
    """A short hash of the node's configuration, its SQL, and the source of the module its function is in.

    The module is read, not imported: a code version costs no Spark and runs nobody's code.
    """
    node = project.node(key)
    digest = hashlib.sha256(json.dumps(node.model_dump(mode="json", exclude=_DOES_NOT_MATTER), sort_keys=True).encode())
    if node.transform is not None and node.transform.function is not None:
        source = _module_file(node.transform.function.partition(":")[0], project.root)
        digest.update(source.read_bytes() if source else b"")
    elif node.transform is not None:
        digest.update(node.transform.sql_text(project.root).encode())
    return digest.hexdigest()[:_LENGTH]


def _module_file(module: str, root: Path) -> Path | None:
    beside = root / Path(*module.split("."))
    for candidate in (beside.with_suffix(".py"), beside / "__init__.py"):
        if candidate.is_file():
            return candidate
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None
