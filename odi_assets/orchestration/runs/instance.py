"""The Dagster instance that runs started from the shell are recorded in, so that the UI shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance import InstanceRef

from odi_assets.errors import ConfigError
from odi_assets.util.durable import write_file

CONFIG_FILE = "dagster.yaml"
HOME_VARIABLE = "DAGSTER_HOME"


FOLDER = ".dagster"
"""In the folder of a project: the home that ``odi dev`` makes where there is no other one."""


@contextmanager
def open_instance(root: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of :func:`home`; one in memory if there is none.

    Raises:
        ConfigError: ``$DAGSTER_HOME`` is not a folder, or dagster.yaml is wrong.
    """
    folder = home(root)
    with _persistent(folder) if folder is not None else dg.DagsterInstance.ephemeral() as instance:
        yield instance


def home(root: Path) -> Path | None:
    """``$DAGSTER_HOME``; without it, ``root`` or its folder :data:`FOLDER`, whichever holds a dagster.yaml; else None.

    Raises:
        ConfigError: ``$DAGSTER_HOME`` is not a folder.
    """
    named = os.environ.get(HOME_VARIABLE)
    if not named:
        return next((folder for folder in (root, root / FOLDER) if (folder / CONFIG_FILE).is_file()), None)
    folder = Path(named).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(
            f"{HOME_VARIABLE} is {named}, and there is no such folder",
            fix=f"make it, or unset {HOME_VARIABLE} to use the folder of the project file",
        )
    return folder


def lasting_home(root: Path) -> Path:
    """:func:`home`, which is made in the folder of the project if there is none: absolute.

    Raises:
        ConfigError: ``$DAGSTER_HOME`` is not a folder.
        OSError: the folder of the project cannot be written.
    """
    if (found := home(root)) is not None:
        return found.resolve()
    folder = root.resolve() / FOLDER
    folder.mkdir(exist_ok=True)
    write_file(folder / CONFIG_FILE, (files(__package__) / "dagster.yaml").read_text(encoding="utf-8"))
    return folder


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
