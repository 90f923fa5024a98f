"""Spark sessions: settings that results depend on, and who stops them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import REQUIRED_CONF, classic_defaults, open_session


def test_settings_that_results_depend_on_hold_whatever_the_project_says(spark: SparkSession) -> None:
    handle = open_session(SparkConfig(conf={"spark.sql.session.timeZone": "Asia/Tokyo"}))
    assert {key: spark.conf.get(key) for key in REQUIRED_CONF} == dict(REQUIRED_CONF)
    handle.stop()


def test_a_session_that_somebody_else_started_is_used_and_not_stopped(spark: SparkSession) -> None:
    handle = open_session()
    assert handle.spark is spark
    assert not handle.started_here
    handle.stop()
    assert spark.range(3).count() == 3


def test_only_a_local_master_has_its_driver_listen_on_this_machine_alone() -> None:
    assert classic_defaults("local[4]")["spark.driver.host"] == "127.0.0.1"
    for master in ("spark://host:7077", "yarn", "k8s://https://host:443"):
        assert not {"spark.driver.host", "spark.driver.bindAddress"} & classic_defaults(master).keys()
