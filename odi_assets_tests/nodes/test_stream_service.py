"""The signals that end a service of a stream node."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from odi_assets.nodes.stream_service import _stop_signals

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are handled in the main thread"
)


def test_sigterm_waits_for_the_session_and_does_not_reach_what_the_service_starts() -> None:
    """As systemd sends it: to the service and to the JVM at once."""
    before = signal.getsignal(signal.SIGTERM)
    stopped: list[str] = []
    with _stop_signals() as handled_by:
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
