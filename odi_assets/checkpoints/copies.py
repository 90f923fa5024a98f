"""Checkpoints in stores: copied to this machine for as long as their files are read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from odi_assets.checkpoints.inspect import inspect, local_path
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.util.lazy import fsspec

_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "created")
"""What the file systems of fsspec call the time of a file's last change."""

ABANDONED = 3600
"""Seconds after which nobody plans into a scratch checkpoint any more."""

_DESCRIPTIONS = ("_metadata", "_stateSchema")
"""Folders below ``state/`` that describe the state and hold none of it."""


@contextmanager
def local_copy(uri: str, options: Mapping[str, Any] | None = None, *, logs_only: bool = False) -> Iterator[Path]:
    """A copy of the checkpoint at a URI, in a temporary folder. Errors raised in the block name the URI, not the copy.

    Args:
        uri: of any store that fsspec knows: ``s3://…``, ``abfss://…``, ``gs://…``, ``memory://…``.
        options: of fsspec's file system; what the environment says if None.
        logs_only: leave out the logs of sources, and of the files of the state all but their names: enough for
            ``inspect`` and ``read_schemas``, and to know which changes are kept.

    Raises:
        CheckpointError: there is no checkpoint, or the store cannot be read.
    """
    with TemporaryDirectory(prefix="odi-checkpoint-") as folder:
        # Messages about files near the checkpoint contain the name of its folder.
        copy = Path(folder, uri.rstrip("/").rpartition("/")[2] or "checkpoint")
        _fetch(uri, options or {}, copy, logs_only)
        try:
            yield copy
        except CheckpointError as error:
            raise _named(error, copy, uri.rstrip("/")) from error


@contextmanager
def copy_of_remote(location: Location, *, logs_only: bool = True, since: int = 0) -> Iterator[Path | None]:
    """A :func:`local_copy` of a checkpoint in a store; None for one on this machine.

    Args:
        since: the first batch that counts, as ``inspect`` has it.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged, or the store cannot be read.
    """
    here = local_path(location.uri)
    if here is not None:
        inspect(here, since=since)
        yield None
        return
    with local_copy(location.uri, location.fsspec_options, logs_only=logs_only) as copy:
        yield copy


@contextmanager
def scratch_in_store(uri: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The URI of a folder beside the checkpoint at ``uri`` that is not there yet, and is removed after the block.

    Raises:
        CheckpointError: the store cannot be read, or nothing be removed from it.
    """
    parent, _, name = uri.rstrip("/").rpartition("/")
    with _errors_named(parent):
        filesystem, folder = fsspec.core.url_to_fs(parent, **options)
        _remove_left_behind(filesystem, folder, scratch_prefix(name))
    scratch = f"{scratch_prefix(name)}{uuid4().hex}"
    try:
        yield f"{parent}/{scratch}"
    finally:
        with _errors_named(f"{parent}/{scratch}"):
            _remove(filesystem, f"{folder}/{scratch}")


def scratch_prefix(checkpoint: str) -> str:
    """What the names of scratch checkpoints beside a checkpoint begin with. Vacuum and readers pass over them."""
    return f".{checkpoint}-"


def _remove_left_behind(filesystem: Any, folder: str, prefix: str) -> None:
    """Remove what processes that were killed while they compared have left beside the checkpoint."""
    filesystem.invalidate_cache()
    for path in filesystem.ls(folder, detail=False):
        if re.fullmatch(rf"{re.escape(prefix)}[0-9a-f]{{32}}", path.rstrip("/").rpartition("/")[2]):
            times = [_changed(file) for file in filesystem.find(path, detail=True).values()]
            if all(seconds is not None and time.time() - seconds > ABANDONED for seconds in times):
                _remove(filesystem, path)


def _remove(filesystem: Any, path: str) -> None:
    filesystem.invalidate_cache()
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)


def _fetch(uri: str, options: Mapping[str, Any], copy: Path, logs_only: bool) -> None:
    with _errors_named(uri):
        filesystem, root = fsspec.core.url_to_fs(uri, **options)
        filesystem.invalidate_cache()
        root = root.rstrip("/")
        if _kind(filesystem, f"{root}/metadata") != "file":
            raise _no_checkpoint(uri, filesystem, root)
        details_by_path = filesystem.find(root, detail=True)
        names = {path: path.removeprefix(root).lstrip("/") for path in details_by_path}
        targets = {path: copy / name for path, name in names.items() if not logs_only or _is_log(name)}
        empty_targets = [
            copy / name for path, name in names.items() if path not in targets and name.startswith("state/")
        ]
        for target in (*targets.values(), *empty_targets):
            target.parent.mkdir(parents=True, exist_ok=True)
        for target in empty_targets:
            target.touch()
        filesystem.get(list(targets), list(map(str, targets.values())))
    for path, target in targets.items():
        seconds = _changed(details_by_path[path])
        if seconds is not None:
            os.utime(target, (seconds, seconds))


@contextmanager
def _errors_named(uri: str) -> Iterator[None]:
    try:
        yield
    except (CheckpointError, KeyboardInterrupt):
        raise
    # Each store has errors of its own, and of the libraries that it is reached with.
    except Exception as error:
        raise CheckpointError(
            f"{uri} cannot be read: {type(error).__name__}: {error}",
            fix="check the URI, its credentials and that the package of its store is installed (s3fs, adlfs, gcsfs); "
            "or name it as CONNECTION:PATH, with a connection of the project file",
            path=uri,
        ) from error


def _changed(file: Mapping[str, Any]) -> float | None:
    """When a file was changed last, in seconds since 1970; None if its store does not tell."""
    changed = next((file[name] for name in _CHANGED if file.get(name)), None)
    return changed.timestamp() if isinstance(changed, datetime) else None if changed is None else float(changed)


def _is_log(name: str) -> bool:
    top, *below = name.split("/")
    return top in ("metadata", "offsets", "commits") or (
        top == "state" and any(description in below[:-1] for description in _DESCRIPTIONS)
    )


def _kind(filesystem: Any, path: str) -> str | None:
    """What is at a path; None if nothing is. `exists` and `isfile` say no as well where the store refuses to look."""
    try:
        return str(filesystem.info(path)["type"])
    except FileNotFoundError:
        return None


def _no_checkpoint(uri: str, filesystem: Any, root: str) -> CheckpointError:
    if _kind(filesystem, root) is None:
        return CheckpointError(f"{uri} does not exist.", fix="give the query's checkpointLocation", path=uri)
    inside = sorted(filesystem.glob(f"{root}/*/metadata"))
    below = inside[0].rpartition("/")[0].rpartition("/")[2] if inside else ""
    return CheckpointError(
        f"{uri} is not a checkpoint: it has no file called metadata.",
        fix=f"did you mean {uri.rstrip('/')}/{below}?" if below else "give the query's checkpointLocation",
        path=uri,
    )


def _named(error: CheckpointError, copy: Path, uri: str) -> CheckpointError:
    def with_uri(text: str) -> str:
        return text.replace(str(copy), uri)

    fields = {name: with_uri(value) if isinstance(value, str) else value for name, value in error.fields.items()}
    return CheckpointError(with_uri(error.message), fix=error.fix and with_uri(error.fix), **fields)
