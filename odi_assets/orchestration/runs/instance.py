"""The Dagster instance that runs started from the shell are recorded in, so that the UI shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance import InstanceRef

from odi_assets.errors import ConfigError

CONFIG_FILE = "dagster.yaml"
HOME_VARIABLE = "DAGSTER_HOME"


@contextmanager
def open_instance(root: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of ``$DAGSTER_HOME``; without it, that of ``root`` if it holds a dagster.yaml; else one in memory.

    Raises:
        ConfigError: ``$DAGSTER_HOME`` is not a folder, or dagster.yaml is wrong.
    """
    home = os.environ.get(HOME_VARIABLE)
    folder = Path(home).expanduser().resolve() if home else root
    if home and not folder.is_dir():
        raise ConfigError(
            f"{HOME_VARIABLE} is {home}, and there is no such folder",
            fix=f"make it, or unset {HOME_VARIABLE} to use the folder of the project file",
        )
    lasts = bool(home) or (folder / CONFIG_FILE).is_file()
    with _persistent(folder) if lasts else dg.DagsterInstance.ephemeral() as instance:
        yield instance


def _persistent(folder: Path) -> dg.DagsterInstance:
    try:
        ref = InstanceRef.from_dir(str(folder), overrides=_absolute_folders(folder))
        return dg.DagsterInstance.from_ref(ref)
    except dg.DagsterError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {error}", fix="correct it, or unset DAGSTER_HOME") from error


def _absolute_folders(folder: Path) -> dict[str, Any]:
    """Sections of dagster.yaml with folders relative to that file; to Dagster, they are relative to where it runs."""
    path = folder / CONFIG_FILE
    config = (yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}
    sections = {
        name: deepcopy(config[name]) for name in ("storage", "local_artifact_storage", "compute_logs") if name in config
    }
    for section in sections.values():
        for part in (section.get("sqlite"), section.get("config")):
            if isinstance(part, dict) and isinstance(part.get("base_dir"), str):
                part["base_dir"] = str(folder / part["base_dir"])
    return sections
