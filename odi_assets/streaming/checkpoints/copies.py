"""Checkpoints in stores: copied to this machine for as long as their files are read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from odi_assets.errors import CheckpointError

_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "created")
"""What the file systems of fsspec call the time of a file's last change."""

_DESCRIPTIONS = ("_metadata", "_stateSchema")
"""Folders below ``state/`` that describe the state and hold none of it."""


@contextmanager
def local_copy(uri: str, options: Mapping[str, Any] | None = None, *, logs_only: bool = False) -> Iterator[Path]:
    """A copy of the checkpoint at a URI, in a temporary folder. Errors raised in the block name the URI, not the copy.

    Args:
        uri: of any store that fsspec knows: ``s3://…``, ``abfss://…``, ``gs://…``, ``memory://…``.
        options: of fsspec's file system; what the environment says if None.
        logs_only: leave out the state and the logs of sources: enough for ``inspect`` and ``read_schemas``.

    Raises:
        CheckpointError: there is no checkpoint, or the store cannot be read.
    """
    with TemporaryDirectory(prefix="odi-checkpoint-") as folder:
        # The name of the folder is told in messages about what is near it.
        copy = Path(folder, uri.rstrip("/").rpartition("/")[2] or "checkpoint")
        _fetch(uri, options or {}, copy, logs_only)
        try:
            yield copy
        except CheckpointError as error:
            raise _named(error, copy, uri.rstrip("/")) from error


def _fetch(uri: str, options: Mapping[str, Any], copy: Path, logs_only: bool) -> None:
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(uri, **options)
        filesystem.invalidate_cache()
        root = root.rstrip("/")
        if _kind(filesystem, f"{root}/metadata") != "file":
            raise _no_checkpoint(uri, filesystem, root)
        found = filesystem.find(root, detail=True)
        names = {path: path.removeprefix(root).lstrip("/") for path in found}
        wanted = {path: copy / name for path, name in names.items() if not logs_only or _is_log(name)}
        for place in wanted.values():
            place.parent.mkdir(parents=True, exist_ok=True)
        filesystem.get(list(wanted), list(map(str, wanted.values())))
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
    for path, place in wanted.items():
        changed = next((found[path][name] for name in _CHANGED if found[path].get(name)), None)
        if changed is not None:
            seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
            os.utime(place, (seconds, seconds))


def _is_log(name: str) -> bool:
    top, *below = name.split("/")
    return top in ("metadata", "offsets", "commits") or (
        top == "state" and any(one in below[:-1] for one in _DESCRIPTIONS)
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
    def told(text: str) -> str:
        return text.replace(str(copy), uri)

    fields = {name: told(value) if isinstance(value, str) else value for name, value in error.fields.items()}
    return CheckpointError(told(error.message), fix=error.fix and told(error.fix), **fields)
