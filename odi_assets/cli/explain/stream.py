"""``odi stream explain``: what became of the rows of a key in a stream node, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.cli.explain.keys import KeysFromOption, KeysOption, asked
from odi_assets.cli.explain.node import NodeArgument, node_named
from odi_assets.cli.options import JsonOption, Settings
from odi_assets.cli.output import data, data_json, note, stdout_kept_for_data

if TYPE_CHECKING:
    from odi_assets.streaming.explain.verdicts import KeyExplanation


def explain(
    settings: Settings,
    node: NodeArgument,
    key: KeysOption = None,
    keys_from: KeysFromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what became of the rows of a key: matched, counted, waiting, too late, filtered out, or never there."""
    from odi_assets.nodes.explain.stream import StreamExplainer, key_text
    from odi_assets.spark.session import open_session

    project = settings.project()
    named = node_named(project, node)
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
            answers = [*explainer.explain(keys), *answers] if keys else answers
        finally:
            handle.stop()
    if as_json:
        data_json([one.to_json() for one in answers])
    else:
        for number, one in enumerate(answers):
            _show(one, first=not number)


def _show(one: KeyExplanation, first: bool) -> None:
    if not first:
        data("")
    data(f"{one.shown_key}  {one.verdict}")
    data(f"  {one.sentence}")
    for row in one.rows:
        where = f" ({row.file})" if row.file else ""
        data(f"  {row.input}  {row.fate}{where}: {row.text}")
    for text in one.similar:
        data(f"  almost the same key: {text}")
    for text in one.lost:
        data(f"  evidence that is gone: {text}")
    for text in one.disagreements:
        data(f"  DISAGREES: {text}")
