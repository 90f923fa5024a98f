"""``python -m benchmarks list``, ``python -m benchmarks NAME [--only PART] [--without-peers] [--kills N] [--steps N]
[--seed S] [--minutes N] [--json]``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.catalog import BENCHMARKS
from benchmarks.harness import Benchmark, Options, Row
from benchmarks.peers import PeerUnavailable

progress = Console(stderr=True, highlight=False)
_VERDICTS = {True: "holds", False: "falls short", None: "not judged"}


def main(
    name: Annotated[str, typer.Argument(help="a benchmark, `list`, or `all`")] = "all",
    only: Annotated[list[str] | None, typer.Option(metavar="PART", help="only this part of it; repeatable")] = None,
    without_peers: Annotated[
        bool, typer.Option("--without-peers", help="leave out the peers that need an environment of their own")
    ] = False,
    kills: Annotated[int, typer.Option(min=50, help="how many kills `kill-sweep` makes")] = 2000,
    steps: Annotated[int, typer.Option(min=1, help="how many steps `change-sweep` makes")] = 3000,
    seed: Annotated[int, typer.Option(help="where the draws of `change-sweep` begin")] = 2013,
    minutes: Annotated[float, typer.Option(min=1, help="how long the soak of `dagster` goes on")] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as a JSON list")] = False,
) -> None:
    """Measure ours and its peers in one run. Exit 1 if a measure falls short of its bar."""
    if name == "list":
        _print_list(as_json)
        return
    if name != "all" and name not in BENCHMARKS:
        progress.print(f"there is no benchmark `{name}`; there are: {', '.join(BENCHMARKS)}")
        raise typer.Exit(2)
    chosen = [b for b in BENCHMARKS.values() if b.in_all] if name == "all" else [BENCHMARKS[name]]
    parts = {part for benchmark in chosen for part in benchmark.parts}
    for part in only or ():
        if part not in parts:
            progress.print(f"`{name}` has no part `{part}`; it has: {', '.join(sorted(parts))}")
            raise typer.Exit(2)
    say = lambda line: progress.print(line, style="dim", markup=False)  # noqa: E731
    options = Options(say, peers=not without_peers, kills=kills, steps=steps, seed=seed, minutes=minutes)
    try:
        rows = [row for benchmark in chosen for row in _measure(benchmark, only, options)]
    except PeerUnavailable as error:
        progress.print(str(error), markup=False)
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        for benchmark in chosen:
            if benchmark.headline is not None and (line := benchmark.headline(rows)):
                print(line)
        _print_rows(rows)
    raise typer.Exit(1 if any(row.holds is False for row in rows) else 0)


def _measure(benchmark: Benchmark, only: list[str] | None, options: Options) -> list[Row]:
    chosen = [measure for part, measure in benchmark.parts.items() if only is None or part in only]
    rows = []
    for measure in chosen:
        for row in measure(options):
            # Said at once: whoever interrupts a long run keeps what it found.
            options.say(f"  {row.name}: {_number(row.ours)}, {row.against}: {_number(row.peer)} {_VERDICTS[row.holds]}")
            rows.append(row)
    return rows


def _print_list(as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                [{"name": b.name, "about": b.about, "parts": list(b.parts)} for b in BENCHMARKS.values()], indent=2
            )
        )
        return
    for benchmark in BENCHMARKS.values():
        print(f"{benchmark.name}\t{benchmark.about}\tparts: {', '.join(benchmark.parts)}")


def _print_rows(rows: list[Row]) -> None:
    table = Table("measure", "ours", "peer", "against", "ratio", "bar", "")
    for row in rows:
        table.add_row(
            row.name,
            _number(row.ours),
            _number(row.peer),
            row.against,
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.bar,
            _VERDICTS[row.holds],
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"


if __name__ == "__main__":
    typer.run(main)
