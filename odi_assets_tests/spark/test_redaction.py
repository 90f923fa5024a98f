"""What sessions hide, and that the patterns of others stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.spark.redaction import OPTIONS, SETTINGS, TEXTS, hide_secrets
from odi_assets.spark.session import classic_conf
from odi_assets_tests.secret_connections import SECRET, reader_options

OF_A_PLAN = """
options {
  key: "fs.azure.account.key.me.dfs.core.windows.net"
  value: "a \\"quoted\\" hunter2"
}
options {
  key: "header"
  value: "true"
}
"""


@pytest.mark.parametrize("kind", reader_options())
def test_options_with_secrets_stand_in_no_plan(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n", encoding="utf-8")
    options = reader_options()[kind]
    rows = spark.read.options(**options).schema("id LONG").csv(str(tmp_path / "rows.csv"))
    rows.write.options(**options).parquet(str(tmp_path / "out"))
    plan = rows._jdf.queryExecution()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = "".join(executions.apply(number).physicalPlanDescription() for number in range(executions.size()))
    assert "rows.csv" in shown
    assert SECRET not in plan.toString() + shown


@pytest.fixture
def own_patterns(spark: SparkSession) -> Iterator[SparkSession]:
    """The suite's session as somebody else has set it up."""
    before = {name: spark.conf.get(name) for name in (OPTIONS, TEXTS)}
    spark.conf.set(OPTIONS, "(?i)url|own")
    spark.conf.set(TEXTS, "own-[a-z]+")
    yield spark
    for name, pattern in before.items():
        spark.conf.set(name, str(pattern))


def test_patterns_of_others_stay_and_ours_are_added_once(own_patterns: SparkSession) -> None:
    hide_secrets(own_patterns)
    once = [own_patterns.conf.get(name) for name in (OPTIONS, TEXTS)]
    hide_secrets(own_patterns)
    assert [own_patterns.conf.get(name) for name in (OPTIONS, TEXTS)] == once
    assert all("own" in str(pattern) for pattern in once)
    assert "own-text" not in str(own_patterns.sql("SELECT 'own-text' AS x")._jdf.queryExecution())


def test_what_a_project_hides_of_settings_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert re.search(classic_conf(SparkConfig(conf={SETTINGS: "mine"}))[SETTINGS], "mine")
    (tmp_path / "spark-defaults.conf").write_text(f"spark.x  y\n{SETTINGS}   theirs|others\n", encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert re.search(classic_conf(SparkConfig())[SETTINGS], "others")


@pytest.mark.parametrize("name", ["fs.azure.account.key.me", "fs.gs.auth.service.account.private.key", "sslPassword"])
def test_settings_that_name_a_secret_are_hidden(name: str) -> None:
    pattern = classic_conf(SparkConfig())[SETTINGS]
    assert re.search(pattern, name)
    assert not re.search(pattern, "spark.sql.shuffle.partitions")


def test_the_patterns_do_not_hide_themselves(spark: SparkSession) -> None:
    """Spark hides a setting whose value matches; nobody could read it then, and keep it."""
    pattern = classic_conf(SparkConfig())[SETTINGS]
    for name in (OPTIONS, TEXTS):
        found = str(spark.conf.get(name))
        assert not re.search("(?i)secret|password|token|access[.]?key", found)
        assert not re.search(pattern.partition(")|")[2], found)


def test_an_entry_of_a_plan_is_cut_out_of_a_text(spark: SparkSession) -> None:
    pattern = str(spark.conf.get(TEXTS))
    shown = spark.sparkContext._jvm.java.util.regex.Pattern.compile(pattern).matcher(OF_A_PLAN).replaceAll("…")
    assert "hunter2" not in shown
    assert 'key: "header"' in shown


@pytest.mark.parametrize("secret", ["hunter2", "a), b", "hunter2\nAAAA/BBB+=\nCCC", "x -> y, hunter2"])
@pytest.mark.parametrize("is_last", [False, True])
def test_options_of_a_stream_are_cut_out_of_a_plan(spark: SparkSession, secret: str, is_last: bool) -> None:
    pattern = str(spark.conf.get(TEXTS))
    options = ["path -> /in/*.csv", f"apiToken -> {secret}"]
    options = options if is_last else options[::-1]
    plan = f"StreamingRelation DataSource(csv,HashMap({', '.join(options)}),None), [id#1]\n+- Project [id#1]"
    shown = spark.sparkContext._jvm.java.util.regex.Pattern.compile(pattern).matcher(plan).replaceAll("…")
    assert "path -> /in" in shown
    assert "+- Project" in shown
    assert not any(part in shown for part in ("hunter2", "a), b", "BBB"))
