"""Makes class-data archives: starts a JVM, has it do what runs do, and keeps the classes that it has loaded."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from odi_assets.errors import JavaError
from odi_assets.spark.jvm.archive import (
    ARCHIVE_VARIABLE,
    CLASSES,
    FACTS,
    FAILED,
    LOCK,
    MAKING,
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
    refusal,
    refusal_file,
    silenced,
    was_mapped,
    write_private,
)
from odi_assets.spark.jvm.java import Java, find_java
from odi_assets.spark.jvm.launch import LaunchCommand, launch_command, options_of_size, spark_home

_NEEDED_BYTES = 600 * 1024**2
_DUMP_SECONDS = 600
_KEPT_SECONDS = 30 * 86400
_PRIVATE = 0o077
"""The umask of a process that writes an archive."""
_IN_BACKGROUND = f"""\
import os, time
os.nice(19)
time.sleep(2)
from {__name__} import main
raise SystemExit(main())
"""
"""What makes an archive behind a command: it lets the command end first."""
_TRAINING = ("-m", "odi_assets.spark.jvm.training")
_DISK_FULL = re.compile("No space left on device|Disk quota exceeded|Unable to write to shared archive")
_SPARE_BYTES = 64 * 1024**2
_NO_REASON = re.compile(
    r"\s|Picked up |WARNING:|\[Stage |Using |Error occurred during|Error: (Could not create|A fatal)"
)
"""Lines of a process that say nothing of why it failed: among them the lines of stacks, which are indented."""


def prepare(class_path: str | None = None, options: Sequence[str] = (), *, insist: bool = False) -> Archive:
    """Make the archive for this Java and a class path, unless there is one; return what there is afterwards.

    Archives that no JVM has used for a month, or whose Java or JARs are gone, are deleted.

    Args:
        class_path: of the JVMs that are to use it; the one of a project without JARs of its own unless given.
        options: of those JVMs. If they take no archive with their options, that is noted beside the archive.
        insist: try even if it failed within the last hour.

    Raises:
        JavaError: there is no Java that Spark can use.
        OSError: the archive cannot be written.
    """
    made_cache_folder()
    java = find_java()
    command = launch_command(java, {"spark.driver.memory": "1g"})
    class_path = class_path or command.class_path
    archive = _tried(find_archive(java, class_path, options), java)
    if insist and archive.has_failed:
        archive = replace(archive, can_be_made=True)
    if not archive.can_be_made or archive.folder is None:
        return archive
    free = shutil.disk_usage(archive.folder.parent).free
    if free < _NEEDED_BYTES:
        raise OSError(f"{archive.folder.parent} has {free / 1024**2:,.0f} MB left; an archive takes some 200")
    try:
        with FileLock(archive.folder.parent / LOCK, timeout=0, mode=0o600):
            _remove_leftovers(archive.folder.parent)
            # The process that held the lock may have made it.
            archive = _tried(find_archive(java, class_path, options), java)
            if archive.folder is not None and (archive.can_be_made or (insist and archive.has_failed)):
                _make(java, command, archive.class_path, archive.folder)
                archive = find_archive(java, class_path, options)
                if archive.is_usable:
                    _note_refusal(archive, java)
    except Timeout:
        return Archive(archive.folder, "another process is making it")
    return find_archive(java, class_path, options)


def prepare_in_background(archive: Archive) -> None:
    """Make an archive in a process of its own, which nobody waits for and which takes only idle time."""
    if archive.folder is None:
        return
    command = [sys.executable, "-c", _IN_BACKGROUND, archive.class_path]
    with suppress(OSError):
        process = subprocess.Popen(
            command,
            cwd="/",
            # What is relative here is elsewhere there.
            env={**os.environ, ARCHIVE_VARIABLE: str(archive.folder.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        # Not by the command line, which others may read: options may hold passwords.
        with process.stdin as stream:
            stream.write(json.dumps(archive.jvm_options).encode())


def _tried(archive: Archive, java: Java) -> Archive:
    """``archive``, if a JVM takes it; else the news that it is damaged, or that the options are in its way."""
    if not archive.is_usable:
        return archive
    if _refusal(archive, java, ()) is not None:
        return replace(archive, reason="it is damaged", can_be_made=True)
    _note_refusal(archive, java)
    return find_archive(java, archive.class_path, archive.jvm_options)


def _note_refusal(archive: Archive, java: Java) -> None:
    """Keep the next runs from a whole archive that JVMs with their options do not take."""
    assert archive.folder is not None
    reason = _refusal(archive, java, archive.jvm_options)
    if reason is not None:
        # Where it cannot be written, the next run asks again.
        with suppress(OSError):
            write_private(refusal_file(archive.folder, archive.jvm_options), json.dumps({"reason": reason}))


def _refusal(archive: Archive, java: Java, options: Sequence[str]) -> str | None:
    """Why a JVM with ``options`` does not take an archive; None if it does."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        line = [str(java.executable), *archive.options(log), *options, "-cp", archive.class_path, "-version"]
        subprocess.run(line, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return None if was_mapped(log) else refusal(log)


def _make(java: Java, command: LaunchCommand, class_path: str, folder: Path) -> None:
    """Make an archive beside its place, and put it there whole."""
    making = Path(tempfile.mkdtemp(prefix=f"{MAKING}{folder.name}-{time.time():.0f}-", dir=folder.parent))
    try:
        base = base_archive(java, folder.parent)
        if base is not None and not (is_ours(base) and _is_whole(java, base)):
            _make_base(java, base, making)
        upon = [f"-XX:SharedArchiveFile={base}"] if base else []
        options = [*upon, f"-XX:ArchiveClassesAtExit={making / CLASSES}", *silenced(java, "error")]
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
    """Run the work of :mod:`odi_assets.spark.jvm.training` in a JVM that leaves an archive; why it did not, or None."""
    line = LaunchCommand(command.java, class_path, command.options, ("pyspark-shell",))
    work = making / "work"
    work.mkdir()
    python = [sys.executable, *_TRAINING, str(work)]
    done = subprocess.run(
        python,
        input=json.dumps(line.line(*options_of_size(line, is_small=True), *options)),
        env={**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_CONNECT_MODE": "0"},
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=_DUMP_SECONDS,
        umask=_PRIVATE,
        check=False,
    )
    if not done.returncode and (making / CLASSES).exists():
        shutil.rmtree(work, ignore_errors=True)
        return None
    reason = _reason(done.stdout) or (f"exit code {done.returncode}" if done.returncode else "the JVM wrote no archive")
    full = next(filter(None, map(_lack_of_space, (making, Path(tempfile.gettempdir())))), None)
    shutil.rmtree(work, ignore_errors=True)
    if done.returncode < 0 or full is not None or _DISK_FULL.search(done.stdout):
        # The next attempt may succeed.
        raise OSError(f"{full}: {reason}" if full else reason)
    return reason


def _reason(output: str) -> str | None:
    """The line of a process's output that says why it failed."""
    lines = [line for line in re.split(r"[\r\n]+", output) if line and not _NO_REASON.match(line)]
    return lines[-1] if lines else None


def _lack_of_space(folder: Path) -> str | None:
    free = shutil.disk_usage(folder).free
    return f"{folder.parent} has {free / 1024**2:,.0f} MB left" if free < _SPARE_BYTES else None


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
    for left in cache.glob(f"{MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_older(current: Path) -> None:
    """Remove archives that no JVM uses any more. The user's folder may hold other things: they stay."""
    for facts_file in current.parent.glob(f"*/{FACTS}"):
        folder = facts_file.parent
        try:
            facts = read_facts(facts_file)
            is_recent = time.time() - facts_file.stat().st_mtime < _KEPT_SECONDS
        except (OSError, ValueError):
            continue
        is_current = _is_current(facts, folder)
        is_certainly_ours = is_current or is_archive(folder, facts)
        if folder != current and is_certainly_ours and not (is_current and is_recent):
            shutil.rmtree(folder, ignore_errors=True)


def _is_current(facts: dict[str, Any], folder: Path) -> bool:
    """Whether the Java and the JARs of an archive are still what they were."""
    executable, version, build, class_path = (str(facts.get(key)) for key in ("java", "version", "build", "class_path"))
    java = Path(executable)
    if not java.exists():
        return False
    noted_java = Java(java, java.resolve().parent.parent, version, build, "")
    return archive_key(noted_java, class_path) == folder.name


def main() -> int:
    """Make the archive for the class path that the command line names; silent."""
    try:
        prepare(sys.argv[1], json.load(sys.stdin))
    except (JavaError, OSError, subprocess.SubprocessError):
        # The next run tries again, and `odi java prepare` says why.
        return 1
    return 0
