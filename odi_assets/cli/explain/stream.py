"""``odi stream explain``: what became of the rows of a key in a stream node, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.explain.keys import asked
from odi_assets.cli.explain.options import KeysFromOption, KeysOption
from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, moment, note, stdout_kept_for_data
from odi_assets.errors import CheckpointError
from odi_assets.spark.session import open_session

if TYPE_CHECKING:
    from odi_assets.explain.evidence.verdicts import KeyExplanation
    from odi_assets.explain.stream import StreamExplainer

_COMPARED = 100
_ROWS = (
    Column("  input", lambda row: f"  {row.input}"),
    Column("fate", lambda row: row.fate),
    Column("event time (UTC)", lambda row: row.time and moment(row.time)),
    Column("read in batch", lambda row: _number(row.read_in), "right"),
    Column("fate in batch", lambda row: _number(row.batch), "right"),
    Column("watermark", lambda row: row.watermark and moment(row.watermark)),
    Column("file", lambda row: row.file, wrap=True),
)


def explain(
    settings: Settings,
    node: NodeArgument,
    key: KeysOption = None,
    keys_from: KeysFromOption = None,
    state: Annotated[
        bool | None,
        typer.Option(
            "--state/--no-state",
            help="Compare the answers with the query's state; by default, for up to 100 keys.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what became of the rows of a key: matched, counted, waiting, too late, filtered out, or never there."""
    from odi_assets.explain.stream import StreamExplainer, key_text

    quiet_libraries()
    project = settings.project()
    named = project.node_named(node)
    with stdout_kept_for_data():
        handle = open_session(project.config.spark)
        try:
            explainer = StreamExplainer.of(project, named, handle.spark)
            wanted = asked(project, key or (), keys_from, explainer.definition.key_names, explainer.columns)
            keys, answers = [key_text(parts) for parts in wanted.keys], []
            for column, value in wanted.by_column:
                of_rows, without_key = explainer.keys_where(column, value)
                keys += of_rows
                answers += without_key
                if not of_rows and not without_key:
                    note(f"No row that has landed has {column} = {value}.")
            found = list(explainer.explain(keys)) if keys else []
            if state or (state is None and len(found) <= _COMPARED):
                found = _confirmed(explainer, found, wanted=bool(state))
            answers = [*found, *answers]
        finally:
            handle.stop()
    if as_json:
        data_json([one.to_json() for one in answers])
    else:
        for number, one in enumerate(answers):
            _show(one, first=not number)


def _confirmed(explainer: StreamExplainer, found: list[KeyExplanation], *, wanted: bool) -> list[KeyExplanation]:
    """The answers as the state confirms them. They need none: one that cannot be read is an error only if its word is
    ``wanted``."""
    try:
        return explainer.confirmed(found)
    except CheckpointError as error:
        if wanted:
            raise
        note(f"These answers are not compared with the query's state: {error.message}")
        return found


def _number(batch: int | None) -> str | None:
    return None if batch is None else str(batch)


def _show(one: KeyExplanation, first: bool) -> None:
    if not first:
        data("")
    data(f"{one.shown_key}: {one.verdict}")
    data(f"  {one.sentence}")
    for text in one.lost:
        data(f"  Evidence that is gone: {text}")
    for text in one.disagreements:
        data(f"  This does not agree: {text}")
    data("")
    data_table(_ROWS, one.rows)
