"""The state from the shell, whole processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.harness import Row, alternate, timed_row
from benchmarks.state.lab import Contender, Lab
from benchmarks.state.sizes import Sizes

_KEYS = 20


def whole_process(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """From the call to the exit of the process that shows state in Delta tables."""
    calls = {who.library: _call(lab, who) for who in lab.contenders}
    lab.say(f"the state from the shell, {sizes.shell_rounds} rounds")
    took = alternate(calls, sizes.shell_rounds)
    against = f"`odibi catalog state`, {lab.against}"
    yield timed_row("`odi state get`, whole process, seconds", took["odi_assets"], took.get("odibi"), against, 1 / 3)


def _call(lab: Lab, who: Contender) -> Callable[[], object]:
    project = lab.project(who)
    lab.driver(who, project).ask("fill", prefix="key", keys=_KEYS, commits=_KEYS)

    def call() -> None:
        if not who.show_state(project).strip():
            raise RuntimeError(f"{who.title} showed no state")

    return call
