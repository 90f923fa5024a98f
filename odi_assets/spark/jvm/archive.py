"""Class-data archives: the classes of Spark as a JVM has loaded them once, which later JVMs map into memory.

A JVM with an archive starts in half the time. An archive belongs to one Java and one class path. It lies in the user's
cache, or in the folder that :data:`ARCHIVE_VARIABLE` names. It is code, so nobody else may be able to write it.

Source of the rules: the JVM's class data sharing (JEP 350), and what it refuses: other JARs, folders in the class path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from odi_assets.spark.jvm.java import Java, major_version

ARCHIVE_VARIABLE = "ODI_JAVA_ARCHIVE"
"""``off`` for no archive, or the folder that holds archives."""
CLASSES, FACTS, FAILED = "classes.jsa", "archive.json", "failed.json"
MAKING, LOCK = ".making-", "making.lock"
"""The folder of an archive that is being made, which has the archive's name and the second in its own; and the lock
that its maker holds."""
_REMEDY = f"unset {ARCHIVE_VARIABLE}, or set it to a folder that nobody else may write"
_BASE_OF_JAVA = Path("lib/server/classes.jsa")
JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Where each JVM looks for options, beside its command line."""
_OFF = {"off", "0", "false", "no"}
_ENDS = 65536
"""Bytes at both ends of an archive that are compared with what was written. The JVM itself looks at the others."""
_RETRY_SECONDS = 3600
_REFUSED_SECONDS = 86400
"""How long a JVM that refused a whole archive is not asked again: the reason may have been one of the moment."""
_RENAMED_LOG_SINCE = 24
_KEY = re.compile(r"[0-9a-f]{16}")
_LOG_LINE = re.compile(r"^\[[^/\n]*?\] ([^/\n]*)", re.MULTILINE)
"""What the JVM logs, as far as no path is in it: a path may hold any words, and begins with a slash."""
_MAPPED, _REFUSED = re.compile(r"Mapped dynamic\s+region"), re.compile(r"failed|Unable to use")

_WHY = re.compile(r"does not equal|different from runtime|disabled due to|verification failed|mismatch")


@dataclass(frozen=True)
class CacheFolder:
    """Where archives lie.

    Attributes:
        path: the folder; None if there is none.
        reason: why it is not used; None if it is.
        is_unsafe: somebody else may write it.
    """

    path: Path | None
    reason: str | None = None
    is_unsafe: bool = False


@dataclass(frozen=True)
class Archive:
    """The archive of one Java and one class path, or the reason why a JVM starts without one.

    Attributes:
        folder: its folder; None where archives are turned off or the cache cannot be used.
        reason: why it is not used; None if it is used.
        can_be_made: none is there, or a damaged one, and a new one would be used.
        is_unsafe: it is not used because somebody else may write it.
        made_at: when it was made, in UTC.
        size: its bytes.
        class_path: of the JVMs that it is for.
        has_failed: the last attempt to make it failed; the next one comes after an hour.
        jvm_options: of the JVMs that it is for; with some options, a JVM takes no archive.
        remedy: what to do where none can be made; None if the reason says it.
    """

    folder: Path | None = None
    reason: str | None = None
    can_be_made: bool = False
    is_unsafe: bool = False
    made_at: datetime | None = None
    size: int = 0
    class_path: str = ""
    has_failed: bool = False
    jvm_options: tuple[str, ...] = field(default=(), repr=False)
    remedy: str | None = None
    _java: Java | None = field(default=None, repr=False)

    @property
    def is_usable(self) -> bool:
        return self.folder is not None and self.reason is None

    def options(self, log: Path | None) -> list[str]:
        """Options of a JVM that uses the archive, and writes to ``log``, if any, what it thinks of the archive."""
        if self.folder is None or self.reason is not None or self._java is None:
            return []
        base = base_archive(self._java, self.folder.parent)
        files = [*([base] if base else []), self.folder / CLASSES]
        return [
            f"-XX:SharedArchiveFile={os.pathsep.join(map(str, files))}",
            "-XX:+UnlockDiagnosticVMOptions",
            # Reads the whole file, in less than a tenth of a second: a byte that changed would crash the JVM later.
            "-XX:+VerifySharedSpaces",
            # Newer Javas put the archive at a random address, and then correct each pointer in it.
            "-XX:ArchiveRelocationMode=0",
            *silenced(self._java),
            *([] if log is None else [f'-Xlog:cds=info:file="{log}"']),
        ]


def was_mapped(log: Path) -> bool:
    """Whether a JVM that wrote ``log`` took the classes of its archive."""
    try:
        lines = _LOG_LINE.findall(log.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False
    return any(map(_MAPPED.match, lines)) and not any(map(_REFUSED.search, lines))


def refusal(log: Path) -> str:
    """Why a JVM that wrote ``log`` took no archive, in its own words where it has some."""
    try:
        said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if _WHY.search(line)]
    except OSError:
        said = []
    return said[-1].rpartition("] ")[2].removeprefix("UseSharedSpaces: ") if said else "the JVM does not say why"


def silenced(java: Java, level: str = "off") -> list[str]:
    """Options that keep what a JVM says of archives out of the terminal, up to a level."""
    tags = ["cds", "cds+dynamic", *(["aot"] if major_version(java.version) >= _RENAMED_LOG_SINCE else [])]
    return [f"-Xlog:{tag}={level}" for tag in tags]


def cache_folder() -> CacheFolder:
    """The folder of archives, an absolute path. It is not made here: see :func:`made_cache_folder`."""
    setting = os.environ.get(ARCHIVE_VARIABLE, "")
    if setting.lower() in _OFF:
        return CacheFolder(None, f"turned off by {ARCHIVE_VARIABLE}={setting}")
    try:
        path = Path(setting).expanduser().absolute() if setting else user_cache_path("odi_assets").absolute() / "java"
        if any(os.pathsep in str(spelling) for spelling in (path, path.resolve())):
            return CacheFolder(None, f"the JVM takes no folder with {os.pathsep!r} in its name: {path}")
        there = next(part for part in (path, *path.parents) if os.path.lexists(part))
        unsafe = _unsafe_part(there)
    except (OSError, RuntimeError) as error:
        return CacheFolder(None, f"the cache cannot be used: {error}")
    if not there.is_dir():
        return CacheFolder(None, f"the cache cannot be used: {there} is not a folder")
    if unsafe is not None:
        return CacheFolder(path, f"{unsafe}; an archive is code", is_unsafe=True)
    if not os.access(there, os.W_OK):
        return CacheFolder(path, f"{there} cannot be written")
    return CacheFolder(path)


def made_cache_folder() -> CacheFolder:
    """:func:`cache_folder`, made if it is not there."""
    cache = cache_folder()
    if cache.path is None or cache.reason is not None:
        return cache
    try:
        make_private(cache.path)
    except OSError as error:
        return CacheFolder(None, f"the cache cannot be used: {error}")
    return cache


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are not there. Nobody else may write them, whatever the umask.

    Raises:
        OSError: it cannot be made.
    """
    for part in (*reversed(folder.parents), folder):
        if not part.is_dir():
            part.mkdir(mode=0o700, exist_ok=True)


def write_private(file: Path, text: str) -> None:
    """Write a file that only this user may read or write, whatever the umask."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)


def read_facts(file: Path) -> dict[str, Any]:
    """The JSON object in a file of the cache.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no JSON object.
    """
    facts = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise ValueError(f"{file} holds no JSON object")
    return facts


def is_ours(path: Path) -> bool:
    """Whether a file or a folder is there that belongs to this user or to root, and that nobody else may write."""
    try:
        return _unsafe(path) is None
    except OSError:
        return False


def find_archive(java: Java, class_path: str, options: Sequence[str] = ()) -> Archive:
    """The archive of a Java and a class path, or why there is none that can be used.

    Relative parts of the class path are of this process's folder; the archive's has none.

    Args:
        options: of the JVM that is to use it.
    """
    class_path = os.pathsep.join(map(_absolute, class_path.split(os.pathsep)))
    cache = cache_folder()
    if cache.path is None or cache.is_unsafe:
        return Archive(reason=cache.reason, is_unsafe=cache.is_unsafe, remedy=_REMEDY)
    full = next((part for part in class_path.split(os.pathsep) if _is_full_folder(part)), None)
    if full is not None:
        return Archive(reason=f"the class path has a folder that is not empty: {full}")
    folder = cache.path / archive_key(java, class_path)
    if cache.reason is not None and not folder.exists():
        return Archive(reason=cache.reason, remedy=_REMEDY)
    archive = replace(_examined(folder, java), class_path=class_path, jvm_options=tuple(options))
    if archive.is_usable and (refused := _noted_refusal(folder, options)) is not None:
        return replace(archive, reason=f"the JVM refuses it with these options: {refused}")
    if archive.can_be_made and (since := _being_made_since(folder)) is not None:
        return replace(archive, reason=f"it is being made now, since {since:%H:%M:%S} UTC", can_be_made=False)
    return archive


def refusal_file(folder: Path, options: Sequence[str]) -> Path:
    """Where it is noted that a JVM with ``options`` and the environment's options refuses the archive in a folder."""
    of_environment = (os.environ.get(name, "") for name in JVM_VARIABLES)
    return folder / f"refused-{hash_of([*options, *of_environment])}.json"


def _noted_refusal(folder: Path, options: Sequence[str]) -> str | None:
    file = refusal_file(folder, options)
    try:
        reason = str(read_facts(file)["reason"])
        return reason if time.time() - file.stat().st_mtime < _REFUSED_SECONDS else None
    except (OSError, ValueError, KeyError):
        # Nothing is noted, or the file is torn.
        return None


def _being_made_since(folder: Path) -> datetime | None:
    """When the process began that makes an archive; None if none is alive."""
    begun = [path.name.split("-")[2] for path in folder.parent.glob(f"{MAKING}{folder.name}-*-*")]
    if not begun:
        return None
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder.parent / LOCK, timeout=0, mode=0o600):
            return None
    except Timeout:
        return datetime.fromtimestamp(int(max(begun)), UTC)


def archive_key(java: Java, class_path: str) -> str:
    """A name for a Java and a class path; another one if a JAR of it changed."""
    return hash_of(key_facts(java, class_path))


def key_facts(java: Java, class_path: str) -> list[str]:
    """What :func:`archive_key` is the hash of."""
    facts = [str(java.executable), str(java.home), java.build, _seen(java.home / "lib" / "server" / "libjvm.so")]
    return facts + [fact for part in class_path.split(os.pathsep) for fact in (part, *_jars(part))]


def hash_of(facts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def is_archive(folder: Path, known: dict[str, Any]) -> bool:
    """Whether a folder of the cache is certainly an archive of ours: its name is the hash of what its file says."""
    facts = known.get("key")
    if not _KEY.fullmatch(folder.name) or not isinstance(facts, list):
        return False
    return hash_of(map(str, facts)) == folder.name


def base_archive(java: Java, cache: Path) -> Path | None:
    """The archive of the JVM's own classes, for a Java that comes without one; None for others.

    An archive of Spark's classes names the file that it was made upon. So this file stays where it is.
    """
    if (java.home / _BASE_OF_JAVA).exists():
        return None
    facts = [str(java.home), java.build, _seen(java.home / "lib" / "server" / "libjvm.so")]
    return cache.resolve() / f"base-{hash_of(facts)}.jsa"


def facts_of(classes: Path, base: Path | None) -> dict[str, object]:
    """What is to be known of the files of an archive: their sizes and their ends."""
    return {file.name: [file.stat().st_size, _ends(file)] for file in (classes, base) if file is not None}


def _examined(folder: Path, java: Java) -> Archive:
    facts_file, base = folder / FACTS, base_archive(java, folder.parent)
    if not folder.is_dir():
        return Archive(folder, "none has been made yet", can_be_made=True)
    try:
        used = (folder, *folder.iterdir(), *([base] if base is not None and base.exists() else []))
        if (unsafe := next(filter(None, map(_unsafe, used)), None)) is not None:
            return Archive(folder, f"{unsafe}; an archive is code", is_unsafe=True)
        failed = folder / FAILED
        if failed.exists():
            reason = f"none could be made: {read_facts(failed)['reason']}"
            is_recent = time.time() - failed.stat().st_mtime < _RETRY_SECONDS
            return Archive(folder, reason, can_be_made=not is_recent, has_failed=True)
        known = read_facts(facts_file)
        made_at = datetime.fromisoformat(known["made_at"])
        if known["files"] != facts_of(folder / CLASSES, base):
            return Archive(folder, "it is damaged", can_be_made=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Archive(folder, f"it is damaged: {error}", can_be_made=True)
    size = sum(entry[0] for entry in known["files"].values())
    _note_use(facts_file)
    return Archive(folder, made_at=made_at, size=size, _java=java)


def _note_use(facts_file: Path) -> None:
    """The time of the file is the time of the last use, to the day."""
    with suppress(OSError):
        if datetime.now(UTC).timestamp() - facts_file.stat().st_mtime > 86400:
            os.utime(facts_file)


def _ends(file: Path) -> str:
    with file.open("rb") as stream:
        head = stream.read(_ENDS)
        stream.seek(max(file.stat().st_size - _ENDS, 0))
        return hashlib.sha256(head + stream.read(_ENDS)).hexdigest()


def _absolute(part: str) -> str:
    return os.path.join(Path.cwd(), part) if part else part  # noqa: PTH118  text of a class path


def _is_full_folder(part: str) -> bool:
    return not part.endswith("*") and os.path.isdir(part) and any(os.scandir(part))  # noqa: PTH112  text of a class path


def _jars(part: str) -> Iterator[str]:
    if part.endswith("*"):
        with suppress(OSError):
            yield from sorted(_seen(Path(entry.path)) for entry in os.scandir(part[:-1]))
    else:
        yield _seen(Path(part))


def _seen(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return ""
    return f"{file.name} {status.st_size} {status.st_mtime_ns}"


def _unsafe_part(path: Path) -> str | None:
    """Which part of a path somebody else may write, in words; None if nobody may."""
    own = _unsafe(path)
    return own or next(filter(None, (_unsafe(parent) for parent in path.resolve().parents)), None)


def _unsafe(path: Path) -> str | None:
    if os.name != "posix":
        return None
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user"
    # In a folder like /tmp, nobody can rename or remove what belongs to others.
    is_protected = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_protected:
        return f"{path} can be written by others (chmod go-w {path})"
    return None
