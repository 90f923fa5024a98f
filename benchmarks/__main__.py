"""``python -m benchmarks list`` and ``python -m benchmarks NAME [--json]``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.catalog import BENCHMARKS
from benchmarks.harness import Row

progress = Console(stderr=True, highlight=False)


def main(
    name: Annotated[str, typer.Argument(help="a benchmark, `list`, or `all`")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as a JSON list")] = False,
) -> None:
    """Measure ours and its peers in one run. Exit 1 if a measure falls short of its bar."""
    if name == "list":
        _print_list(as_json)
        return
    if name != "all" and name not in BENCHMARKS:
        progress.print(f"there is no benchmark `{name}`; there are: {', '.join(BENCHMARKS)}")
        raise typer.Exit(2)
    chosen = BENCHMARKS.values() if name == "all" else [BENCHMARKS[name]]
    rows = [row for benchmark in chosen for row in benchmark.run(lambda line: progress.print(line, style="dim"))]
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        _print_rows(rows)
    raise typer.Exit(0 if all(row.holds for row in rows) else 1)


def _print_list(as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": b.name, "about": b.about} for b in BENCHMARKS.values()], indent=2))
        return
    for benchmark in BENCHMARKS.values():
        print(f"{benchmark.name}\t{benchmark.about}")


def _print_rows(rows: list[Row]) -> None:
    table = Table("measure", "ours", "peer", "against", "ratio", "bar", "")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.ours:.3f}",
            f"{row.peer:.3f}",
            row.against,
            f"{row.ratio:.2f}",
            row.bar,
            "holds" if row.holds else "falls short",
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    typer.run(main)
