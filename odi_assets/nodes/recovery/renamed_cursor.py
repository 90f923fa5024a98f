"""A source whose cursor column has another name now: its mark goes on by the new name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import StatefulIncrement
from odi_assets.errors import IdentityMismatchError, IncrementError, NoCursorColumnError
from odi_assets.nodes.node import Node
from odi_assets.sources.errors import read_errors_named
from odi_assets.sources.marks import Identity, Mark, hwm_text
from odi_assets.sources.reading import same_cursor
from odi_assets.sources.reads import PlannedRead, UnresolvedRead
from odi_assets.sources.snapshot import SourceSnapshot
from odi_assets.sources.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], "SparkSession"]
_SEPARATORS = {"stateful": ", else ", "cursors": ", "}
"""What is between the names of cursors in an identity."""


def renamed(
    node: Node,
    source: Source,
    then: Identity,
    value: Any,
    facts: Mapping[str, Any],
    error: NoCursorColumnError,
    spark: Session,
) -> tuple[Mark | None, None, list[str]]:
    """The mark of a source that lost the column it was followed by, and what is taken for granted of it, in words.

    Who adopts it vouches that the column was renamed. Its values stay: what the mark says is loaded by the new name.

    Args:
        value: the stored mark.
        facts: what the commit remembers beside it.
        error: what the former definition says of the source.

    Raises:
        IdentityMismatchError: it cannot be the same column.
    """
    now, unwaited = source.identity, source.unwaited
    try:
        names = _new_names(unwaited, then, now, spark)
        if not names:
            raise error
        kept = {part: fact for part, fact in facts.items() if part in ("ties", "tied_by", "began_at")}
        mark = unwaited.mark(_by_new_names(source.unmarked(value), names), kept)
        if (now.reading or {}).get("ties"):
            mark = with_ties(unwaited, mark, spark)
        further = resolved(unwaited.plan(mark), spark)
    except IncrementError as reason:
        raise IdentityMismatchError(
            f"{node}: whether all of {source.label} is loaded is not known: {error.message}; and its HWM "
            f"{hwm_text(value)} goes on by no other column: {reason.message}",
            fix="name the column that it was renamed to, followed in the same way, and adopt; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        ) from reason
    words = " and ".join(f"`{former}` is `{name}` now" for former, name in names.items())
    reads = "nothing" if further.nothing_new else further.summary
    return (
        source.wrapped_mark(mark, value),
        None,
        [
            f"{source.label} was followed by the column `{then.cursor}`, and is followed by the column `{now.cursor}` "
            f"now; the former is gone, so {words}: the next run reads {reads}"
        ],
    )


def _new_names(source: Source, then: Identity, now: Identity, spark: Session) -> dict[str, str]:
    """By each cursor column that is gone, the one in its place; none if other things changed too."""
    separator = _SEPARATORS.get(now.increment)
    if separator is None or then.increment != now.increment or not same_cursor(then.reading, now.reading):
        return {}
    before, after = then.cursor.split(separator), now.cursor.split(separator)
    names = {former: name for former, name in zip(before, after, strict=False) if former.casefold() != name.casefold()}
    if len(before) != len(after) or not all(_is_gone(source, former, spark) for former in names):
        return {}
    return names


def _is_gone(source: Source, column: str, spark: Session) -> bool:
    alone = StatefulIncrement.model_validate(
        {"mode": "stateful", "column": column, "type": "text", "max_ahead": "none", "on_null": "exclude"}
    )
    try:
        resolved(source.followed_by(alone).plan(None), spark)
    except NoCursorColumnError:
        return True
    except IncrementError:
        return False
    return False


def _by_new_names(value: Any, names: Mapping[str, str]) -> Any:
    """The value of a mark with columns by their new names."""
    if not isinstance(value, Mapping) or "cursors" not in value:
        return value
    new_value = {**value, "cursors": {names.get(name, name): each for name, each in value["cursors"].items()}}
    left = value.get("snapshot")
    if left:
        new_value["snapshot"] = {**left, "by": [names.get(name, name) for name in left["by"]]}
    return new_value


def resolved(read: PlannedRead, spark: Session) -> PlannedRead:
    """What is read, once the source was asked.

    Raises:
        SourceError: Spark cannot read it.
    """
    if not isinstance(read, UnresolvedRead):
        return read
    with _read_errors(read.snapshot):
        return read.resolve(spark())


def with_ties(source: Source, mark: Mark, spark: Session) -> Mark:
    """``mark`` as :meth:`Source.with_ties` has it.

    Raises:
        SourceError: Spark cannot read the source.
    """
    with _read_errors(source.snapshot()):
        return source.with_ties(mark, spark())


def _read_errors(snapshot: SourceSnapshot) -> AbstractContextManager[None]:
    return read_errors_named(snapshot.label, [snapshot.read_error])
