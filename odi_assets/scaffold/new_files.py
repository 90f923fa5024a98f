"""New files in a folder that may have others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from odi_assets.errors import ConfigError


def require_new(folder: Path, paths: Iterable[Path]) -> None:
    """Raises ConfigError if one of ``paths`` below ``folder`` is there already, or cannot be made."""
    listed = list(paths)
    there = [path for path in listed if path.exists() or path.is_symlink()]
    if there:
        named = ", ".join(str(path.relative_to(folder)) for path in there[:3]) + (" …" if len(there) > 3 else "")
        raise ConfigError(
            f"{folder.resolve()} has {named} already, and nothing was written",
            fix="name another folder: odi init FOLDER",
            path=str(there[0]),
        )
    blocked = next((path for path in listed for above in path.parents if above.is_file()), None)
    if blocked is not None:
        raise ConfigError(f"{blocked.parent} cannot be made: a file is in the way", fix="name another folder")


def write_new(contents: Mapping[Path, str]) -> None:
    """Write files, and make their folders."""
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
