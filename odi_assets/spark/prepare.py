"""Makes class-data archives: starts a JVM, has it do what runs do, and keeps the classes that it has loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from odi_assets.errors import JavaError
from odi_assets.spark.archive import (
    ARCHIVE_VARIABLE,
    CLASSES,
    FACTS,
    FAILED,
    Archive,
    archive_key,
    base_archive,
    facts_of,
    find_archive,
    is_archive,
    is_ours,
    key_facts,
    made_cache_folder,
    read_facts,
    silenced,
    was_mapped,
    write_private,
)
from odi_assets.spark.java import Java, find_java
from odi_assets.spark.launch import LaunchCommand, launch_command, spark_home

_NEEDED_BYTES = 600 * 1024**2
_DUMP_SECONDS = 600
_KEPT_SECONDS = 30 * 86400
_PRIVATE = 0o077
"""The umask of a process that writes an archive."""
_MAKING = ".making-"
_IN_BACKGROUND = f"""\
import os, time
os.nice(19)
time.sleep(2)
from {__name__} import main
raise SystemExit(main())
"""
"""What makes an archive behind a command: it lets the command end first."""
_TRAINING = ("-m", "odi_assets.spark.training")
_DISK_FULL = "No space left on device"


def prepare(class_path: str | None = None, *, insist: bool = False) -> Archive:
    """Make the archive for this Java and a class path, unless there is one; return what there is afterwards.

    Archives that no JVM has used for a month, or whose Java or JARs are gone, are deleted.

    Args:
        class_path: of the JVMs that are to use it; the one of a project without JARs of its own unless given.
        insist: try even if it failed within the last hour.

    Raises:
        JavaError: there is no Java that Spark can use.
        OSError: the archive cannot be written.
    """
    made_cache_folder()
    java = find_java()
    command = launch_command(java, {"spark.driver.memory": "1g"})
    class_path = class_path or command.class_path
    archive = _tried(find_archive(java, class_path), java, class_path)
    if insist and archive.has_failed:
        archive = replace(archive, can_be_made=True)
    if not archive.can_be_made or archive.folder is None:
        return archive
    free = shutil.disk_usage(archive.folder.parent).free
    if free < _NEEDED_BYTES:
        raise OSError(f"{archive.folder.parent} has {free / 1024**2:,.0f} MB left; an archive takes some 200")
    try:
        with FileLock(archive.folder.parent / "making.lock", timeout=0, mode=0o600):
            # The process that held the lock may have made it.
            archive = _tried(find_archive(java, class_path), java, class_path)
            if not archive.is_usable and archive.folder is not None:
                _make(java, command, class_path, archive.folder)
    except Timeout:
        return Archive(archive.folder, "another process is making it")
    return find_archive(java, class_path)


def prepare_in_background(archive: Archive) -> None:
    """Make an archive in a process of its own, which nobody waits for and which takes only idle time."""
    if archive.folder is None:
        return
    command = [sys.executable, "-c", _IN_BACKGROUND, archive.class_path]
    with suppress(OSError):
        subprocess.Popen(
            command,
            cwd="/",
            # What is relative here is elsewhere there.
            env={**os.environ, ARCHIVE_VARIABLE: str(archive.folder.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _tried(archive: Archive, java: Java, class_path: str) -> Archive:
    """``archive``, if a JVM takes it; else the news that it is damaged."""
    if not archive.is_usable:
        return archive
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        line = [str(java.executable), *archive.options(log), "-cp", class_path, "-version"]
        subprocess.run(line, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return archive if was_mapped(log) else replace(archive, reason="it is damaged", can_be_made=True)


def _make(java: Java, command: LaunchCommand, class_path: str, folder: Path) -> None:
    """Make an archive beside its place, and put it there whole."""
    _remove_leftovers(folder.parent)
    making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=folder.parent))
    try:
        base = base_archive(java, folder.parent)
        if base is not None and not (is_ours(base) and _is_whole(java, base)):
            _make_base(java, base, making)
        upon = [f"-XX:SharedArchiveFile={base}"] if base else []
        options = [*upon, f"-XX:ArchiveClassesAtExit={making / CLASSES}", *silenced(java)]
        failure = _trained(command, class_path, options, making)
        facts: dict[str, object] = {
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "java": str(java.executable),
            "version": java.version,
            "build": java.build,
            "class_path": class_path,
            "key": key_facts(java, class_path),
        }
        if failure is None:
            name, facts["files"] = FACTS, facts_of(making / CLASSES, base)
        else:
            for file in making.iterdir():
                file.unlink()
            name, facts["reason"] = FAILED, failure
        write_private(making / name, json.dumps(facts, indent=2))
        _put(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _remove_older(folder)


def _trained(command: LaunchCommand, class_path: str, options: list[str], making: Path) -> str | None:
    """Run the work of :mod:`odi_assets.spark.training` in a JVM that leaves an archive; why it did not, or None."""
    line = LaunchCommand(command.java, class_path, command.options, ("pyspark-shell",))
    work = making / "work"
    work.mkdir()
    python = [sys.executable, *_TRAINING, str(work)]
    done = subprocess.run(
        python,
        input=json.dumps(line.line("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options)),
        env={**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_CONNECT_MODE": "0"},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=_DUMP_SECONDS,
        umask=_PRIVATE,
        check=False,
    )
    shutil.rmtree(work, ignore_errors=True)
    last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if done.returncode < 0 or _DISK_FULL in done.stderr:
        # The next attempt may succeed.
        raise OSError(last_line)
    if done.returncode:
        return last_line
    return None if (making / CLASSES).exists() else "the JVM wrote no archive"


def _is_whole(java: Java, base: Path) -> bool:
    """Whether a JVM takes the archive of its own classes. Others may be made upon it, so a whole one stays."""
    options = [f"-XX:SharedArchiveFile={base}", "-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifySharedSpaces"]
    command = [str(java.executable), "-Xshare:on", *options, "-version"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def _make_base(java: Java, base: Path, making: Path) -> None:
    aside = making / base.name
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={aside}", *silenced(java)]
    subprocess.run(
        command,
        cwd=making,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DUMP_SECONDS,
        umask=_PRIVATE,
        check=True,
    )
    aside.replace(base)


def _put(making: Path, folder: Path) -> None:
    """Put a finished folder in its place. JVMs that have mapped a former one keep it."""
    if folder.exists():
        folder.rename(making.with_name(f"{making.name}.former"))
    making.rename(folder)
    shutil.rmtree(making.with_name(f"{making.name}.former"), ignore_errors=True)


def _remove_leftovers(cache: Path) -> None:
    """Remove what makers left behind that were killed. The caller holds the lock, so no other maker is alive."""
    for left in cache.glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_older(current: Path) -> None:
    """Remove archives that no JVM uses any more. The user's folder may hold other things: they stay."""
    for facts_file in current.parent.glob(f"*/{FACTS}"):
        folder = facts_file.parent
        try:
            known = read_facts(facts_file)
            is_recent = time.time() - facts_file.stat().st_mtime < _KEPT_SECONDS
        except (OSError, ValueError):
            continue
        is_current = _is_current(known, folder)
        is_certainly_ours = is_current or is_archive(folder, known)
        if folder != current and is_certainly_ours and not (is_current and is_recent):
            shutil.rmtree(folder, ignore_errors=True)


def _is_current(known: dict[str, Any], folder: Path) -> bool:
    """Whether the Java and the JARs of an archive are still what they were."""
    executable, version, build, class_path = (str(known.get(key)) for key in ("java", "version", "build", "class_path"))
    java = Path(executable)
    if not java.exists():
        return False
    found = Java(java, java.resolve().parent.parent, version, build, "")
    return archive_key(found, class_path) == folder.name


def main() -> int:
    """Make the archive for the class path that the command line names; silent."""
    try:
        prepare(sys.argv[1])
    except (JavaError, OSError, subprocess.SubprocessError):
        # The next run tries again, and `odi java prepare` says why.
        return 1
    return 0
