"""What docs/streaming.md says of checkpoints and of health goes as it is printed there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.models.stream import HealthLimits
from odi_assets.spark.session import DEFAULT_CONF
from odi_assets_tests.checkpoints.queries import orders_with_payments, settings
from odi_assets_tests.pages import ROOT, is_as_printed

SECTIONS = ("Checkpoints: looking inside", "Health")


def blocks(*languages: str) -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    own = "".join(part for part in parts if part.startswith(SECTIONS))
    found = re.findall(r"```(\w+)\n(.*?)```", own, flags=re.DOTALL)
    return [(language, block) for language, block in found if language in languages]


def test_commands_and_python_go_as_they_are_printed(
    spark: SparkSession,
    join_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("ODI_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(join_checkpoint, tmp_path / "checkpoint")
    names: dict[str, object] = {"frame": orders_with_payments(spark, join_checkpoint.parent)}
    for language, block in blocks("console", "python"):
        capfd.readouterr()
        if language == "python":
            exec(compile(block, "docs/streaming.md", "exec"), names)
            continue
        for command, printed in re.findall(r"^\$ odi (.*)\n((?:[^$].*\n|\n)*)", block, flags=re.MULTILINE):
            # The page was written with a session of the shell.
            with settings(spark, {"spark.sql.shuffle.partitions": DEFAULT_CONF["spark.sql.shuffle.partitions"]}):
                assert main(shlex.split(command)) == 0, command
            shown = capfd.readouterr()
            assert is_as_printed(shown.out + shown.err, printed), f"$ odi {command}\n{shown.out + shown.err}"
    assert sorted(row.value.id for row in names["waiting"].collect()) == [1, 2, 7, 8, 9]  # type: ignore[attr-defined]
    assert names["purged"].count() == 2  # type: ignore[attr-defined]
    assert "spark.sql.shuffle.partitions: 2 in the checkpoint, 64 in the query" in str(names["difference"])


def test_the_limits_of_the_document_are_all_there_are() -> None:
    ((_, block),) = blocks("yaml")
    given = yaml.safe_load(block)["stream"]["health"]
    assert set(HealthLimits.model_validate(given).model_dump()) == set(given)
