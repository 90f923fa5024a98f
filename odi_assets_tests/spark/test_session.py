"""Spark sessions: settings that results depend on, and who stops them."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.errors import OdiError
from odi_assets.spark.session import classic_defaults, open_session, packages_conf, runs_tasks_once
from odi_assets.spark.shared_server import SERVER_VARIABLE, limit_retries


def test_settings_that_results_depend_on_hold_whatever_the_project_says(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    handle = open_session(SparkConfig())
    assert {key: spark.conf.get(key) for key in REQUIRED_CONF} == dict(REQUIRED_CONF)
    handle.stop()


def test_a_session_that_somebody_else_started_is_used_and_not_stopped(spark: SparkSession) -> None:
    handle = open_session()
    assert handle.spark is spark
    assert not handle.started_here
    handle.stop()
    assert spark.range(3).count() == 3


def test_a_server_that_does_not_answer_is_named_without_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(OdiError, match="sc://host:1/;token=…;") as raised:
        open_session(SparkConfig(remote="sc://host:1/;token=hidden;not_a_pair"))
    assert "hidden" not in f"{raised.value} {raised.value.fields}"


@pytest.mark.slow
def test_a_server_that_is_not_there_is_told_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr("odi_assets.spark.session._CONNECT_SECONDS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr("odi_assets.spark.session._AGAIN_SECONDS", 0.5)
        # Another node of the same run does not wait as long again.
        for seconds in (1, 0.5):
            words = f"sc://127.0.0.1:{port} does not answer: no connection within {seconds} seconds"
            with pytest.raises(OdiError, match=words):
                open_session(SparkConfig(remote=f"sc://127.0.0.1:{port}"))


def test_only_a_local_master_has_its_driver_listen_on_this_machine_alone() -> None:
    assert classic_defaults("local[4]")["spark.driver.host"] == "127.0.0.1"
    for master in ("spark://host:7077", "yarn", "k8s://https://host:443"):
        assert not {"spark.driver.host", "spark.driver.bindAddress"} & classic_defaults(master).keys()


def test_packages_join_those_of_the_configuration_and_are_fetched_only_if_named() -> None:
    assert packages_conf(SparkConfig(conf={"spark.jars.packages": "a:b:1"})) == {}
    config = SparkConfig(conf={"spark.jars.packages": "a:b:1"}, packages=["c:d:2", "a:b:1"])
    assert packages_conf(config) == {"spark.jars.packages": "a:b:1,c:d:2"}


def test_a_token_may_have_characters_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr("odi_assets.spark.session._CONNECT_SECONDS", 0.1)
    with pytest.raises(OdiError, match="no connection within"):
        open_session(SparkConfig(remote="sc://127.0.0.1:1/;token=a/b+c?d#e=;user_id=me"))


def test_packages_that_come_too_late_for_a_session_are_named(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.spark.session._said_missing", set())
    for _ in range(2):
        assert open_session(SparkConfig(packages=["org.postgresql:postgresql:42.7.8"])).spark is spark
    assert caplog.text.count("was not started with org.postgresql:postgresql:42.7.8") == 1


class _Gone(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("is_shared", [False, True])
def test_calls_to_a_server_that_has_gone_end_within_minutes_and_say_so_meanwhile(
    is_shared: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, "sc://localhost:1/;token=t" if is_shared else "")
    policies: list[Any] = []
    for _ in range(2):
        limit_retries(SimpleNamespace(set_retry_policies=policies.extend))
    policy, of_another_session = policies
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("odi_assets.spark.shared_server.time", SimpleNamespace(monotonic=lambda: clock.now))
    state = policy.to_state()
    while policy.can_retry(_Gone()):
        clock.now += state.next_attempt(None) / 1000
    assert caplog.text.count("does not answer; it is called again for two minutes") == (not is_shared)
    assert (clock.now == 1000) if is_shared else (1100 < clock.now < 1150)
    # The calls of other sessions, and those that end a run, do not wait again; a later run may.
    assert not of_another_session.can_retry(_Gone())
    clock.now += 300
    assert policy.can_retry(_Gone()) == (not is_shared)


@pytest.mark.parametrize(
    ("master", "once"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[4]", True),
        ("local[4,3]", False),
        ("local[*, 3]", False),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
    ],
)
def test_tasks_have_one_attempt_on_a_local_master_without_a_number_of_failures(master: str, once: bool) -> None:
    session = SimpleNamespace(_jsparkSession=object(), sparkContext=SimpleNamespace(master=master))
    assert runs_tasks_once(session) is once
    assert not runs_tasks_once(SimpleNamespace())
