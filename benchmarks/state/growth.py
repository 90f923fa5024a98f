"""What look-ups and writes cost as state grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from benchmarks.harness import Row, in_turn, timed_row
from benchmarks.state.lab import Contender, Driver, Lab, counted
from benchmarks.state.sizes import Sizes

_KEYS = 50
_NODES = 20
_WARM = 3


def commits(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """``get_hwm`` and ``set_hwm`` after few commits and after many."""
    wanted = {"few": (lab.ours, sizes.few_commits), "many": (lab.ours, sizes.many_commits)}
    if lab.odibi:
        wanted["odibi"] = (lab.odibi, sizes.odibi_commits)
    drivers = {name: _committing(lab, who, number) for name, (who, number) in wanted.items()}
    for driver in drivers.values():
        driver.answer()
    many, few = f"{sizes.many_commits:,}", f"{sizes.few_commits:,}"
    for name, call in (("get_hwm", _getter), ("set_hwm", _setter)):
        lab.say(f"{name} after {few} and {many} commits, {sizes.rounds} rounds")
        took = in_turn({who: call(driver) for who, driver in drivers.items()}, sizes.rounds, _WARM)
        what = f"{name} after {many} commits, seconds"
        yield timed_row(what, took["many"], took["few"], f"itself after {few}", 1.5)
        yield timed_row(what, took["many"], took.get("odibi"), f"{lab.against} after {sizes.odibi_commits:,}", 1)


def history(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """``get_last_run_status`` with little history and with much; what Odibi's grows by is shown beside it."""
    drivers = {
        "few": _with_runs(lab, lab.ours, sizes.few_runs),
        "many": _with_runs(lab, lab.ours, sizes.many_runs),
    }
    if lab.odibi:
        drivers["odibi few"] = _with_runs(lab, lab.odibi, sizes.odibi_few_runs)
        drivers["odibi"] = _with_runs(lab, lab.odibi, sizes.odibi_runs)
    many, few = f"{sizes.many_runs:,}", f"{sizes.few_runs:,}"
    lab.say(f"get_last_run_status with {few} and {many} rows of history, {sizes.rounds} rounds")
    took = in_turn({who: _asker(driver) for who, driver in drivers.items()}, sizes.rounds, _WARM)
    what = "get_last_run_status with {} rows of history, seconds".format
    yield timed_row(what(many), took["many"], took["few"], f"itself with {few}", 1.5)
    yield timed_row(what(many), took["many"], took.get("odibi"), f"{lab.against} with {sizes.odibi_runs:,}", 1)
    if lab.odibi:
        small = f"{lab.odibi.title} with {sizes.odibi_few_runs:,}"
        grown = timed_row(what(f"{sizes.odibi_runs:,}"), took["odibi"], took["odibi few"], small, 1)
        yield Row(f"Odibi: {grown.name}", grown.ours, grown.peer, small, grown.ratio, "for comparison", None)


def batch(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """``set_hwm_batch`` of many keys, new ones and present ones, against one ``set_hwm`` into the same table."""
    lab.say(f"set_hwm_batch of {sizes.keys:,} keys, {sizes.batch_rounds} rounds")
    fresh = in_turn(_fresh(lab, sizes), sizes.batch_rounds)
    ours = lab.driver(lab.ours, lab.project(lab.ours))
    versions: list[int] = []
    calls = {"set": _setter(ours), "batch": _noting(ours, versions, _batcher(ours, sizes.keys))}
    if lab.odibi:
        calls["odibi"] = _batcher(lab.driver(lab.odibi, lab.project(lab.odibi)), sizes.keys)
    again = in_turn(calls, sizes.batch_rounds)
    of = f"set_hwm_batch of {sizes.keys:,}"
    most = max(versions)
    yield counted(f"{of} keys: commits", most, None, "", "1", most == 1)
    yield timed_row(f"{of} new keys, seconds", fresh["batch"], fresh["set"], "one set_hwm", 10)
    yield timed_row(f"{of} present keys, seconds", again["batch"], again["set"], "one set_hwm", 10)
    odibi = again.get("odibi")
    shown = timed_row(f"{of} present keys, seconds", again["batch"], odibi, lab.against, 1)
    yield Row(shown.name, shown.ours, shown.peer, shown.against, shown.ratio, "for comparison", None)


def _committing(lab: Lab, who: Contender, number: int) -> Driver:
    """A driver that has begun to make so many commits; its answer comes when it is done."""
    lab.say(f"{who.title}: {number:,} commits of {_KEYS} keys")
    driver = lab.driver(who, lab.project(who))
    driver.send("fill", prefix="key", keys=_KEYS, commits=number)
    return driver


def _with_runs(lab: Lab, who: Contender, number: int) -> Driver:
    """A history whose last tenth was recorded run by run, as nodes end; what is older, several at once to save time."""
    lab.say(f"{who.title}: {number:,} rows of history")
    driver = lab.driver(who, lab.project(who))
    singly = number if number <= 300 else number // 10
    older = number - singly
    if older:
        driver.ask("record", first=0, count=older, nodes=_NODES, together=_NODES)
    driver.ask("record", first=older, count=singly, nodes=_NODES, together=1)
    return driver


def _getter(driver: Driver) -> Callable[[], float]:
    numbers = count()
    return lambda: driver.ask("get", key=f"key{next(numbers) % _KEYS}")


def _setter(driver: Driver) -> Callable[[], float]:
    numbers = count(1_000_000)
    return lambda: driver.ask("set", key=f"key{next(numbers) % _KEYS}", value=next(numbers))


def _asker(driver: Driver) -> Callable[[], float]:
    numbers = count()
    return lambda: driver.ask("status", node=f"node{next(numbers) % _NODES}")


def _batcher(driver: Driver, keys: int) -> Callable[[], float]:
    numbers = count()
    return lambda: driver.ask("batch", prefix="batch", count=keys, value=next(numbers))


def _fresh(lab: Lab, sizes: Sizes) -> dict[str, Callable[[], float]]:
    """One set, then a batch of new keys, in a new table each round."""
    driver = lab.driver(lab.ours, lab.project(lab.ours))

    def one() -> float:
        driver.ask("open", kind="catalog", folder=str(lab.project(lab.ours) / "lake" / "system"))
        driver.ask("fill", prefix="key", keys=_KEYS, commits=5)
        return driver.ask("set", key="key0", value=1_000_000)

    return {"set": one, "batch": _batcher(driver, sizes.keys)}


def _noting(driver: Driver, versions: list[int], call: Callable[[], float]) -> Callable[[], float]:
    def noting() -> float:
        before = driver.ask("version")
        seconds = call()
        versions.append(driver.ask("version") - before)
        return seconds

    return noting
