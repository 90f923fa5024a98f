"""Processes that race for the versions of one state store, and processes that are killed as they commit."""

from __future__ import annotations

import random
import time
from pathlib import Path

from odi_assets.store import StateStoreProvider
from odi_assets_tests.state.writers import go
from odi_assets_tests.store.test_store import held
from odi_assets_tests.store.writers import start


def test_of_processes_that_race_for_a_version_exactly_one_wins_and_the_others_name_it(tmp_path: Path) -> None:
    """The first version makes the table, too."""
    for attempt, (until, racing) in enumerate([(1, ["w0", "w1", "w2"]), (12, ["w0", "w1"])]):
        folder = tmp_path / str(attempt)
        running = start(folder, "race", until, racing)
        go(running)
        told = [writer.communicate(timeout=120) for writer in running]
        assert [writer.returncode for writer in running] == [0] * len(racing), told
        lines = [[line.split() for line in out.splitlines()] for out, _ in told]
        won = {int(v): name for name, mine in zip(racing, lines, strict=True) for word, v in mine if word == "won"}
        assert sum(word == "won" for mine in lines for word, _ in mine) == until
        assert sorted(won) == list(range(1, until + 1))
        assert all(won[int(v)] == word for mine in lines for word, v in mine if word != "won")
        assert held(folder, until) == {b"%d" % version: name.encode() for version, name in won.items()}


def test_a_process_killed_as_it_commits_leaves_every_acknowledged_version_and_nothing_half_done(tmp_path: Path) -> None:
    draw = random.Random(2013)
    for _ in range(3):
        (writer,) = start(tmp_path, "forever", 0, ["killed"])
        go([writer])
        assert writer.stdout is not None
        told = int(writer.stdout.readline().split()[1])
        time.sleep(draw.random() / 3)
        writer.kill()
        whole = writer.stdout.read().split("\n")[:-1]
        writer.communicate(timeout=60)
        told = max([told, *(int(line.split()[1]) for line in whole)])
        provider = StateStoreProvider(tmp_path / "store")
        latest = provider.latest_version()
        # A commit may have landed without the word of it.
        assert 0 <= latest - told <= 1
        assert provider.versions()[-1] == latest
        for version in (told, latest):
            assert held(tmp_path, version) == {
                b"%d" % (n % 5): b"%d" % (n + 1) for n in range(version) if n >= version - 5
            }
