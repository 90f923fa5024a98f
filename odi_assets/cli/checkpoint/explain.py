"""``odi checkpoint explain``: why a join has not returned a row, by its checkpoint alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from odi_assets.checkpoints import explain_key
from odi_assets.cli.checkpoint.options import OperatorOption, PathArgument
from odi_assets.cli.checkpoint.place import find_place, open_reader
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, note
from odi_assets.errors import ConfigError

_SIDES = (
    Column("side", lambda side: side.side),
    Column("fate", lambda side: side.fate.value.upper()),
    Column("stored in batch", lambda side: ", ".join(map(str, side.arrived_in))),
    Column("purged in batch", lambda side: ", ".join(map(str, side.purged_in))),
    Column("matched", lambda side: {True: "yes", False: "no", None: None}[side.matched]),
    Column("rows in the state", lambda side: len(side.rows), "right"),
)


def explain(
    settings: Settings,
    path: PathArgument,
    key: Annotated[
        list[str],
        typer.Option(
            "--key", "-k", metavar="VALUE", help="The key's value; given again for each further condition of the join."
        ),
    ],
    operator: OperatorOption = 0,
    since: Annotated[
        int | None, typer.Option("--since", metavar="N", min=0, help="Look at the changes from this batch on.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a key of a stream-stream join waits on either side, was purged, or was never stored.

    A checkpoint alone does not know what arrived: of a stream node, `odi stream explain` says more.
    """
    with open_reader(find_place(settings, path)) as reader:
        found = explain_key(reader, _named(key), operator=operator, since_batch=since)
    if as_json:
        report: dict[str, Any] = asdict(found)
        report["watermark"] = found.watermark and found.watermark.isoformat()
        for side in ("left", "right"):
            report[side]["rows"] = [
                {name: _plain(value) for name, value in row.items()} for row in report[side]["rows"]
            ]
        data_json(report)
        return
    data_table(_SIDES, (found.left, found.right))
    note(f"{found.verdict.value.upper()}: {found.reason}")
    if found.missing_evidence:
        note(f"  → {found.missing_evidence}.")


def _named(values: list[str]) -> dict[str, str]:
    """The values by the names that the state gives its conditions: field0, field1 …

    Raises:
        ConfigError: none is given.
    """
    if not values:
        raise ConfigError("no key is given", fix="give its value: --key ord-574")
    return {f"field{number}": value for number, value in enumerate(values)}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
