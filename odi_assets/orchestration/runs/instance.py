"""The Dagster instance that runs started from the shell are recorded in, so that the UI shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import yaml
from dagster._core.instance import InstanceRef
from dagster._serdes import ConfigurableClassData
from filelock import FileLock
from sqlalchemy.exc import SQLAlchemyError

from odi_assets.errors import ConfigError
from odi_assets.util.durable import write_file
from odi_assets.util.extras import install_command, pip_install

CONFIG_FILE = "dagster.yaml"
HOME_VARIABLE = "DAGSTER_HOME"
_POSTGRES_STORAGE = "dagster_postgres"
_LOCK = ".odi.lock"
_UNSET_VARIABLE = re.compile(r'environment variable "(\w+)" which is not set')
_FOLDER_KEYS = ("base_dir", "local_dir")

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
        ConfigError: ``$DAGSTER_HOME`` is not a folder, or dagster.yaml is wrong.
        OSError: the folder of the project cannot be written.
    """
    if (existing_home := home(root)) is not None:
        require_absolute_folders(existing_home / CONFIG_FILE)
        instance_ref(existing_home)
        return existing_home.resolve()
    folder = root.resolve() / FOLDER
    folder.mkdir(exist_ok=True)
    write_file(folder / CONFIG_FILE, (files(__package__) / "dagster.yaml").read_text(encoding="utf-8"))
    with _persistent(folder):
        # Now it is made, before the processes of Dagster that are started together come to it.
        return folder


def _persistent(folder: Path) -> dg.DagsterInstance:
    require_absolute_folders(folder / CONFIG_FILE)
    ref = instance_ref(folder)
    try:
        # Dagster's SQLite storage is not made twice at once: the later one of two processes would fail.
        with FileLock(folder / _LOCK) if os.access(folder, os.W_OK) else nullcontext():
            return dg.DagsterInstance.from_ref(ref)
    except dg.DagsterInvalidConfigError as error:
        raise wrong_settings(folder, error) from error
    except Exception as error:
        if not is_of_database(error):
            raise
        raise ConfigError(
            f"{folder / CONFIG_FILE}: Dagster's storage cannot be opened: {database_error(error)}",
            fix="odi doctor --deployment says where it is looked for",
        ) from error


def instance_ref(folder: Path) -> InstanceRef:
    """What the dagster.yaml of ``folder`` says; no storage is opened.

    Raises:
        ConfigError: dagster.yaml is wrong, or the package of its storage is not installed.
    """
    path = folder / CONFIG_FILE
    try:
        ref = InstanceRef.from_dir(str(folder))
    except (dg.DagsterError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}", fix=f"correct it, or unset {HOME_VARIABLE}") from error
    package = storage_data(ref).module_name.partition(".")[0]
    if find_spec(package) is None:
        shown = package.replace("_", "-")
        raise ConfigError(
            f"{path}: its storage needs the package {shown}, and it is not installed",
            fix=install_command("postgres-storage") if package == _POSTGRES_STORAGE else pip_install(shown),
        )
    return ref


def wrong_settings(folder: Path, error: dg.DagsterInvalidConfigError) -> ConfigError:
    """The dagster.yaml of ``folder`` has settings that its classes do not take."""
    unset = sorted({name for mistake in error.errors for name in _UNSET_VARIABLE.findall(mistake.message)})
    if unset:
        return ConfigError(
            f"{folder / CONFIG_FILE}: it takes {' and '.join(unset)} from the environment, where nothing has that name",
            fix=f"export {unset[0]}=…, as for the processes of Dagster",
        )
    lines = "; ".join(mistake.message.partition("\n")[0] for mistake in error.errors)
    return ConfigError(f"{folder / CONFIG_FILE}: {lines}", fix=f"correct it, or unset {HOME_VARIABLE}")


def storage_data(ref: InstanceRef) -> ConfigurableClassData:
    """What an instance's storage is: class and settings. Only instances of Dagster's cloud have none."""
    if ref.storage_data is None:
        raise ConfigError(f"{CONFIG_FILE} has no storage", fix="leave `storage` out, or name one")
    return ref.storage_data


def is_of_database(error: Exception) -> bool:
    """Whether a database said so, or nobody answered in its place; Dagster's storages wrap such errors in their own."""
    return isinstance(error, SQLAlchemyError) or isinstance(error.__cause__, SQLAlchemyError)


def database_error(error: BaseException) -> str:
    """The first line of what a database said, which has no stack and no address with a password."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def require_absolute_folders(path: Path) -> None:
    """Refuse a dagster.yaml with folders that are relative: two processes may keep different runs.

    Raises:
        ConfigError: there is one, or the file is no YAML.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        relative_folder = next(_relative_folders(yaml.compose(text, Loader=yaml.SafeLoader)), None)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}", fix=f"correct it, or unset {HOME_VARIABLE}") from error
    if relative_folder is not None:
        line, key, folder = relative_folder
        raise ConfigError(
            f"{path}:{line}: `{key}: {folder}` is relative, and Dagster takes it in relation to the folder in which "
            "each of its processes is started: they would keep runs in different places",
            fix=f"write `{key}: {path.parent / folder}`; without the section, Dagster writes beside {CONFIG_FILE}",
        )


def _relative_folders(node: yaml.Node | None) -> Iterator[tuple[int, str, str]]:
    """Line, key and value of each."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield from _relative_folders(value)
        is_folder = key.value in _FOLDER_KEYS and isinstance(value, yaml.ScalarNode)
        if is_folder and not Path(value.value).is_absolute():
            yield key.start_mark.line + 1, key.value, value.value
