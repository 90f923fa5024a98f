"""The signals that end a service of a stream node."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.stop_signals import stop_signals
from odi_assets.streams.service import serve

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are handled in the main thread"
)


def test_sigterm_waits_for_the_session_and_does_not_reach_what_the_service_starts() -> None:
    """As systemd sends it: to the service and to the JVM at once."""
    before = signal.getsignal(signal.SIGTERM)
    stopped: list[str] = []
    with stop_signals() as handled_by:
        os.kill(os.getpid(), signal.SIGTERM)
        # Spark starts its JVM with a preexec_fn, too.
        command = ["sh", "-c", "kill -TERM $$; echo lives"]
        started = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=lambda: None)
        assert started.stdout == "lives\n"
        assert stopped == []
        handled_by(lambda: stopped.append("after the batch"))
        assert stopped == ["after the batch"]
        # A second one would end the process: it is left to what was there before.
        assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGTERM) == before
    ended = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=lambda: None)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")


STREAM = """
project: test
connections: {lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - name: events
    read: {connection: lake, format: json, path: landing, schema: "id BIGINT"}
    stream: {}
    write: {connection: lake, path: events, mode: append}
"""


def test_a_signal_ends_a_service_at_once_as_long_as_there_is_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not answer keeps the plan waiting."""

    class Ended(BaseException):
        pass

    def ended(*_: object) -> None:
        raise Ended

    (tmp_path / "odibi.yaml").write_text(STREAM, encoding="utf-8")
    project = Project.load(tmp_path / "odibi.yaml")
    monkeypatch.setattr("odi_assets.nodes.run_node.plan_node", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, ended)
    try:
        with pytest.raises(Ended):
            serve(project, NodeKey("p", "events"), "1 second")
    finally:
        signal.signal(signal.SIGTERM, before)
