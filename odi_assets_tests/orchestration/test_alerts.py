"""Alerts: what is said, to whom, how often, and that no secret is in it."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes.history.attempts import record
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.orchestration.automation.alert_levels import why_failed
from odi_assets.orchestration.automation.alerts import tick
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.runs.reconcile import reconcile
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets_tests.orchestration.receivers import Mail, Web, certificate_for_localhost, mail, web
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, make_project

SECRET = "hook-hunter2"
HOUR = 3600.0


@pytest.fixture
def hook() -> Iterator[Web]:
    with web() as server:
        yield server


@pytest.fixture
def post_office() -> Iterator[Mail]:
    with mail() as server:
        yield server


class Location:
    """A code location with alerts, beside an instance; the landing is gone, so that a run fails without Spark."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, alerts: str, text: str = PROJECT_FILE) -> None:
        self.project = make_project(folder, "2024-01-01", text=f"{text}alerts:\n{alerts}")
        self.instance = instance
        self.cursor: str | None = None
        self.definitions = build_definitions(self.project)
        self.now = time.time()
        self.log: list[str] = []

    def fail(self) -> str:
        """Run the job, which fails."""
        shutil.rmtree(self.project.root / "landing", ignore_errors=True)
        job = self.definitions.resolve_job_def("shop")
        return job.execute_in_process(instance=self.instance, raise_on_error=False).run_id

    def tick(self, later: float = 0.0) -> str:
        """A tick, some seconds later; what it says."""
        self.now += later
        watches = [Watch(self.project, "shop")]
        with dg.build_sensor_context(
            self.instance, cursor=self.cursor, repository_def=self.definitions.get_repository_def()
        ) as context:
            context.log.addHandler(_Kept(self.log))
            said = tick(context, self.project, watches, self.now).skip_message or ""
            self.cursor = context.cursor
        return said


class _Kept(logging.Handler):
    def __init__(self, kept: list[str]) -> None:
        super().__init__()
        self.kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(self.format(record))


def to(kind: str, server: Web, events: str = "on_failure", more: str = "") -> str:
    url = f"http://127.0.0.1:{server.port}/{SECRET}"
    return f'  - {{type: {kind}, url: "{url}", on_events: [{events}]{more}}}\n'


class TestARunThatFailed:
    def test_is_posted_once_with_what_was_wrong(self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.fail()
        assert "Nothing to say" in there.tick(), "what ended before the first look is no news"
        run = there.fail()
        there.tick(HOUR)
        there.tick(HOUR)
        ((path, alert),) = hook.posts
        assert path == f"/{SECRET}"
        assert (alert["event_type"], alert["status"], alert["pipeline"]) == ("on_failure", "FAILURE", "shop")
        assert "raw_sales: " in alert["message"]
        assert "landing" in alert["message"]
        assert alert["facts"]["run"] == run

    def test_before_its_first_node_says_what_is_to_be_done(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.tick()
        run = instance.create_run_for_job(there.definitions.resolve_job_def("shop"))
        instance.report_run_failed(run, "its process is gone")
        there.tick()
        ((_, alert),) = hook.posts
        assert alert["message"] == "its process is gone\n→ the next run takes in what this one left: odi run shop"

    def test_whose_process_was_killed_names_the_node_though_history_has_no_row_yet(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.tick()
        job = there.definitions.resolve_job_def("shop")
        run = instance.create_run_for_job(job, tags=job.run_tags)
        step = dg.DagsterEvent(dg.DagsterEventType.STEP_START.value, "shop", step_key="shop__raw_sales")
        instance.report_dagster_event(step, run.run_id)
        instance.report_run_failed(run, "its process is gone")
        there.tick()
        ((_, alert),) = hook.posts
        assert alert["message"] == "raw_sales: the run vanished before this node ended; it had committed nothing"

    def test_of_somebody_else_is_not_posted(self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.tick()

        @dg.op
        def broken() -> None:
            raise ValueError("theirs")

        @dg.job
        def other() -> None:
            broken()

        other.execute_in_process(instance=instance, raise_on_error=False)
        there.tick()
        assert not hook.posts

    def test_comes_in_the_form_of_slack_and_of_teams(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        metadata = ', metadata: {channel: "#data", mention_on_failure: on-call@shop.example}'
        there = Location(tmp_path, instance, to("slack", hook, more=metadata) + to("teams", hook, more=metadata))
        there.tick()
        there.fail()
        there.tick()
        slack, teams = hook.bodies
        assert slack["channel"] == "#data"
        assert slack["text"].startswith("FAILURE: shop of shop_analytics\nraw_sales: ")
        (card,) = teams["attachments"]
        assert card["content"]["body"][0]["text"] == "FAILURE: shop of shop_analytics"
        assert card["content"]["msteams"]["entities"][0]["mentioned"]["id"] == "on-call@shop.example"

    def test_is_mailed(self, tmp_path: Path, instance: dg.DagsterInstance, post_office: Mail) -> None:
        alert = (
            f"  - {{type: email, host: 127.0.0.1, port: {post_office.port}, security: none, "
            "from: odi@shop.example, to: [data@shop.example, ops@shop.example]}\n"
        )
        there = Location(tmp_path, instance, alert)
        there.tick()
        there.fail()
        there.tick()
        (message,) = post_office.messages
        assert message["Subject"] == "FAILURE: shop of shop_analytics"
        assert message["To"] == "data@shop.example, ops@shop.example"
        assert "raw_sales: " in message.get_content()
        assert parsedate_to_datetime(message["Date"]).timestamp() == pytest.approx(time.time(), abs=600)
        assert message["Message-ID"].endswith("@shop.example>")

    @pytest.mark.slow
    def test_is_not_repeated_within_a_quarter_of_an_hour_and_the_next_alert_counts_those_held_back(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.tick()
        for _ in range(3):
            there.fail()
        there.tick()
        assert len(hook.posts) == 1
        there.fail()
        there.tick(16 * 60)
        assert [body["facts"].get("held back before") for body in hook.bodies] == [None, "2"]

    def test_waits_for_a_server_that_does_not_take_it(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook))
        there.tick()
        there.fail()
        for status, phrase in ((503, "503 Service Unavailable"), (302, "302 Found")):
            hook.status = status
            assert f"alerts[0] (webhook): the server answered {phrase}" in there.tick()
        hook.status = 200
        assert "1 alert waits for another try" in there.tick()
        assert not hook.posts
        assert "1 alert delivered" in there.tick(60)
        assert len(hook.posts) == 1
        there.tick()
        assert len(hook.posts) == 1


class TestWhatLasts:
    def test_is_said_when_it_begins_and_when_it_is_over(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook, "on_given_up"))
        there.fail()
        check = {"asset_key": dg.AssetKey(["shop", "raw_sales"]), "check_name": "up_to_date"}
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                **check, passed=False, severity=dg.AssetCheckSeverity.ERROR, description="given up: 10 runs failed"
            )
        )
        there.tick()
        instance.create_run_for_job(there.definitions.resolve_job_def("shop"))
        there.tick()
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(**check, passed=True))
        there.tick()
        begun, over = hook.bodies
        assert (begun["status"], begun["subject"]) == ("GIVEN UP", "shop.raw_sales")
        assert begun["message"].startswith("10 runs failed. The last run failed at shop.raw_sales: ")
        assert "→" in begun["message"]
        assert (over["status"], over["message"]) == ("OVER", "`GIVEN UP` is over.")

    def test_a_node_that_was_given_up_names_what_failed_above_it_or_that_history_cannot_be_read(
        self, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = Location(tmp_path, instance, "  - {type: log}\n")
        there.fail()
        why = why_failed(there.project, NodeKey("shop", "sales"))
        assert why.startswith("The last run failed at shop.raw_sales: ")
        with monkeypatch.context() as broken:
            broken.setattr(Project, "open_state", lambda _: (_ for _ in ()).throw(StateError("state is gone")))
            assert "cannot be read: state is gone" in why_failed(there.project, NodeKey("shop", "sales"))
        job = there.definitions.resolve_job_def("shop")
        instance.report_run_failed(instance.create_run_for_job(job, tags=job.run_tags), "its container did not start")
        reconcile(there.project, instance)
        why = why_failed(there.project, NodeKey("shop", "sales"))
        assert why == "The last run did not come to it: the run ended before it began"

    def test_a_node_lags_once_its_sources_have_had_something_new_for_too_long(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook, "on_lag"))
        there.tick()
        there.tick(0.9 * HOUR)
        assert not hook.posts
        there.tick(0.2 * HOUR)
        assert [(one["status"], one["subject"]) for one in hook.bodies] == [("LAG", "shop.raw_sales")]

    def test_a_node_that_has_just_read_does_not_lag(
        self, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        there = Location(tmp_path, instance, to("webhook", hook, "on_lag"))
        there.tick()
        there.now += 2 * HOUR
        ran(there.project, "raw_sales", there.now - 60)
        there.tick()
        assert "shop.raw_sales" not in {one["subject"] for one in hook.bodies}


def ran(project: Project, node: str, at: float, run_id: str = "r", **metrics: int) -> None:
    """A run of a node that ended well, in history alone."""
    moment = datetime.fromtimestamp(at, UTC)
    project.open_state().record_runs(
        [RunRecord(run_id, project.config.project, "shop", node, RunStatus.SUCCESS, 1, 1, moment, metrics)]
    )


@pytest.mark.slow
def test_a_table_without_new_rows_is_stale_until_it_gains_some(
    tmp_path: Path, instance: dg.DagsterInstance, hook: Web
) -> None:
    text = PROJECT_FILE.replace("      - name: shops\n", "      - name: shops\n        freshness: {within: 26h}\n")
    there = Location(tmp_path, instance, to("webhook", hook, "on_stale"), text)
    there.tick()
    job = there.definitions.resolve_implicit_global_asset_job_def()
    for hours in (27, 28):
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(["shop", "shops"])]).success
        there.now = time.time()
        there.tick()
        there.tick(hours * HOUR)
    assert [(one["status"], one["subject"]) for one in hook.bodies] == [
        ("STALE", "shop.shops"),
        ("OVER", "shop.shops"),
        ("STALE", "shop.shops"),
    ]


def test_a_run_with_bad_rows_is_said_by_node(tmp_path: Path, instance: dg.DagsterInstance, hook: Web) -> None:
    there = Location(tmp_path, instance, to("webhook", hook, "on_quarantine, on_success"))
    there.tick()
    run = instance.create_run_for_job(there.definitions.resolve_job_def("shop"))
    first = RunInfo(run.run_id)
    record(
        there.project,
        there.project.open_state(),
        NodeResult(NodeKey("shop", "sales"), RunStatus.FAILURE, 0.0, ""),
        first,
    )
    ran(there.project, "sales", there.now, run.run_id, rows_quarantined=3)
    instance.report_dagster_event(
        dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name, message="well"), run.run_id, logging.INFO
    )
    there.tick()
    assert [(one["event_type"], one["subject"], one["message"]) for one in hook.bodies] == [
        ("on_success", "shop", "1 node ran; 1 row written."),
        ("on_quarantine", "shop.sales", "3 rows went to its quarantine."),
    ]


@pytest.mark.slow
def test_an_alert_may_go_to_the_log(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    there = Location(tmp_path, instance, "  - {type: log}\n")
    there.tick()
    there.fail()
    there.tick()
    assert any(line.startswith("FAILURE: shop of shop_analytics\nraw_sales: ") for line in there.log)


class TestNoSecret:
    """Not in what Dagster stores and shows of the sensor, not in its cursor, text and log, not in its errors."""

    def said(self, there: Location) -> str:
        there.tick()
        there.fail()
        said = [there.tick()]
        shown = serialize_value(RepositorySnap.from_def(there.definitions.get_repository_def()))
        assert "shop_analytics_alerts" in shown
        return "\n".join([*said, *there.log, there.cursor or "", shown, repr(there.project.config)])

    @pytest.mark.parametrize("status", [301, 404, 500])
    def test_of_a_webhook_that_refuses(
        self, status: int, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        hook.status = status
        said = self.said(Location(tmp_path, instance, to("webhook", hook) + to("slack", hook)))
        assert f"the server answered {status}" in said
        assert SECRET not in said

    @pytest.mark.parametrize(
        "url",
        [f"http://127.0.0.1:1/{SECRET}", f"https://127.0.0.1:{{port}}/{SECRET}", f"http://127.0.0.1:{{port}}/ {SECRET}",
         f"http://{SECRET}.invalid/", f"http://127.0.0.1:{SECRET}/"],
    )  # fmt: skip
    def test_of_a_webhook_that_cannot_be_reached(
        self, url: str, tmp_path: Path, instance: dg.DagsterInstance, hook: Web
    ) -> None:
        alert = f'  - {{type: webhook, url: "{url.format(port=hook.port)}"}}\n'
        said = self.said(Location(tmp_path, instance, alert))
        assert "alerts[0] (webhook): the server cannot be reached" in said
        assert SECRET not in said

    def test_of_a_mail_server(
        self, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = certificate_for_localhost(tmp_path)
        with mail(file) as server:
            alert = (
                f"  - {{type: email, host: localhost, port: {server.port}, security: tls, user: odi, "
                f"password: {SECRET}, from: odi@shop.example, to: data@shop.example}}\n"
            )
            there = Location(tmp_path / "project", instance, alert)
            said = self.said(there)
            assert "its certificate is not valid" in said
            monkeypatch.setenv("SSL_CERT_FILE", str(file))
            said += there.tick()
            assert "the mail server answered 535" in said
            server.passwords.add(SECRET)
            assert "1 alert delivered" in there.tick(60)
            assert len(server.messages) == 1
        assert SECRET not in said + str(there.log)


@pytest.mark.parametrize(
    ("alert", "mistake"),
    [
        ("{type: pager, url: x}", "`slack`, `teams`, `teams_workflow`, `webhook`, `email` or `log`"),
        ("{type: slack}", "url"),
        ("{type: slack, url: hooks.slack.example}", "begins with `https://`"),
        ("{type: slack, url: https://x, on_events: [on_gate_block]}", "take `on_failure`"),
        ("{type: slack, url: https://x, on_events: [on_fire]}", "is no event: write `on_failure`"),
        ("{type: slack, url: https://x, metadata: {loud: true}}", "unknown key `loud`"),
        ("{type: email, host: h, from: a@b, to: a@b, user: me}", "needs the other one"),
        ("{type: email, host: h, from: a@b, to: a@b, user: me, password: p, security: none}", "in clear text"),
        ("{type: email, host: h, from: a@b, to: nobody}", "alerts[0].to"),
    ],
)
def test_a_mistake_in_an_alert_is_named(alert: str, mistake: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        make_project(tmp_path, text=f"{PROJECT_FILE}alerts:\n  - {alert}\n")
    assert mistake in str(caught.value)


def test_an_environment_has_alerts_of_its_own(tmp_path: Path) -> None:
    more = "environments: {prod: {alerts: [{type: log, on_events: [on_stale]}]}}\n"
    project = make_project(tmp_path, text=PROJECT_FILE + more)
    assert not project.config.alerts
    (alert,) = Project.load(project.path, "prod").config.alerts
    assert alert.on_events == ("on_stale",)
    assert not [one for one in build_definitions(project).sensors or () if one.name.endswith("_alerts")]
