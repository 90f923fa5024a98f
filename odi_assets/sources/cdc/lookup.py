"""Looks rows of captured tables up at their server, by their keys."""

from __future__ import annotations

from collections.abc import Sequence

from odi_assets.sources.cdc.capture import types_of
from odi_assets.sources.cdc.source import LogSource
from odi_assets.sources.sql.chunks import key_columns
from odi_assets.sources.sql.keys import keys_of
from odi_assets.sources.sql.statements import Relation

_AT_ONCE = 500


def keys_there(source: LogSource, table: str, keys: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The ``keys`` that a table of the database has now.

    Args:
        keys: the texts of their values, in the order of the table's columns.

    Raises:
        ConfigError: the database has no such table.
        SourceError: the server cannot be reached, or a text is no value of its column.
    """
    there: set[tuple[str, ...]] = set()
    with source.opened() as log:
        (captured,) = log.tables([table]).values()
        shape = log.shapes([captured])[table]
        relation = Relation(source.dialect, captured.quoted, f"{source.label} {table}", captured.quoted, {})
        columns = key_columns(relation, shape.key, types_of(shape), log.rows)
        kinds = [column.type for column in shape.columns if column.key]
        written = keys_of(source.dialect)
        for first in range(0, len(keys), _AT_ONCE):
            batch = keys[first : first + _AT_ONCE]
            questions = [
                f"SELECT place FROM (SELECT {index} AS place) odi WHERE EXISTS (SELECT 1 FROM {relation.sql} WHERE "
                + " AND ".join(
                    f"{column.sql} = {written.constant(log.key_text(text, kind), column)}"
                    for column, text, kind in zip(columns, key, kinds, strict=True)
                )
                + ")"
                for index, key in enumerate(batch)
            ]
            there |= {batch[int(index)] for (index,) in log.rows(" UNION ALL ".join(questions))}
    return there
