"""Errors of the rooms below in the words of assets: they are written for nodes, and name ways on that nodes have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.errors import OdiError
from odi_assets.nodes.request import FULL_REFRESH_TAG

_REFRESH = f"materialize the asset with the run tag `{FULL_REFRESH_TAG}: true`, which replaces its table"
_CAST = re.compile(r"cast it in the transform, for example CAST\((.+?) AS (.+?)\)(?=$|[,;])")
_CAST_TO = re.compile(r"cast it in the transform(?: \([^)]*\))?: CAST\((.+?) AS (.+?)\)(?=$|, or|; or)")
_TO_TIMESTAMP = re.compile(r"cast `([^`]+)` to TIMESTAMP in the asset's function")
_TO_NAIVE = re.compile(r"cast `([^`]+)` to TIMESTAMP_NTZ in the asset's function")
_ABSENT = re.compile(r"select it in the transform \(CAST\(NULL AS (.+?)\) AS (.+?) if it is gone for good\)")
WORDS_OF_ASSETS = (
    ("rebuild the table with its new schema: odi run --full-refresh", _REFRESH),
    ("rebuild the table with the new type: odi run --full-refresh", _REFRESH),
    ("read the table whole once: odi run --node NODE --full-refresh", _REFRESH),
    ("read it whole once: odi run --node NODE --full-refresh", _REFRESH),
    ("run the node with --full-refresh", _REFRESH),
    ("`write.schema: evolve`", '`metadata={"schema": "evolve"}`'),
    ("in `write.keys`", 'in the metadata of the asset: metadata={"keys": […]}'),
    ("set `partition` or `write.partition_by` on the node", 'add `"partition_column": "day"` to the asset\'s metadata'),
    ("make `partition_by` agree, or write", "make `partition_by` in the asset's metadata agree, or write"),
    ("correct their names in the project file", "correct their names in the asset's metadata"),
    ("let the transform keep the partition column of its input", "return only rows of the partitions that are run"),
    ("came out of an increment that covers", "came in a frame of a run that covers"),
    ("rows of one increment", "rows of one frame"),
    ("; or say in `write.only_if_newer` which row is the newest", ""),
    ("leave them out there (WHERE)", "leave them out there"),
    ("the transform", "the asset's function"),
    ("run the node again", "materialize the asset again"),
    ("before running the node again", "before materializing the asset again"),
    ("the node asks for", "the asset asks for"),
    ("the next run goes on from where the winner stopped", "materialize the asset again if its rows are other ones"),
)
"""Phrases of the errors of nodes, and what an asset says instead. Each phrase stands in an error."""

MADE_BY_ASSET = (("run the node that writes it first", "materialize the asset that writes it first"),)
"""The same, where an asset writes the table that is read."""


@contextmanager
def words_of_assets(*, by_node: bool = False) -> Iterator[None]:
    """Say errors of the block in the words of assets.

    Args:
        by_node: a node writes the table that the block reads.
    """
    words = WORDS_OF_ASSETS if by_node else (*WORDS_OF_ASSETS, *MADE_BY_ASSET)
    try:
        yield
    except OdiError as error:
        error.message = _said(error.message, words)
        error.args = (error.message,)
        error.fix = None if error.fix is None else _said(error.fix, words)
        raise


def _said(text: str, words: tuple[tuple[str, str], ...]) -> str:
    text = _CAST.sub(r"cast `\1` to \2 in the asset's function", text)
    text = _CAST_TO.sub(r"cast `\1` to \2 in the asset's function", text)
    text = _TO_TIMESTAMP.sub(r"\g<0> (in pandas: frame['\1'] = frame['\1'].dt.tz_localize('UTC'))", text)
    text = _TO_NAIVE.sub(
        r"\g<0> (in pandas: frame['\1'] = frame['\1'].dt.tz_convert('UTC').dt.tz_localize(None))", text
    )
    text = _ABSENT.sub(r"return it (`\2` as NULL of type \1 if it is gone for good)", text)
    for node, asset in words:
        text = text.replace(node, asset)
    return text
