"""A source that a node read before its definition led elsewhere: what the former definition would still read of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from odi_assets.config.models import FilesIncrement, VersionIncrement
from odi_assets.delta.errors import cannot_look
from odi_assets.errors import (
    IdentityMismatchError,
    IncrementError,
    NoCursorColumnError,
    NothingThereError,
    SourceError,
)
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import same_order, same_source
from odi_assets.nodes.recovery.former_read import NotKnownError, former_source, increment_of
from odi_assets.nodes.recovery.renamed_cursor import Session, resolved, with_ties
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.marks import Identity
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.snapshot import Position
from odi_assets.sources.source import Source
from odi_assets.util.words import counted

_FOLLOWED = ("", "files", "version", "stateful", "cursors")
_MOST_NAMED = 3


@dataclass(frozen=True)
class FormerLoad:
    """What a node has loaded of a source by its former definition.

    Attributes:
        then: what its mark measures.
        value: the stored mark.
        ties: the loaded rows that are tied with it, if the commit remembers any.
        position: where the source stood when all of it was loaded; None if that is not known.
        moved: the project's folder was moved since.
    """

    then: Identity
    value: Any
    ties: Mapping[str, Any]
    position: Position | None
    moved: bool


def require_all_loaded(node: Node, source: Source, load: FormerLoad, spark: Session) -> list[str]:
    """Sees to it that the former definition of a source would read nothing more, here and at its former place.

    Returns:
        What is not known of that, in words.

    Raises:
        IdentityMismatchError: it would, or that cannot be known.
        NoCursorColumnError: the column that it was followed by is gone.
        SourceError, TableError: the former place cannot be looked at.
    """
    then, value = load.then, source.unmarked(load.value)
    if then.increment not in _FOLLOWED:
        raise _not_known(node, then, "it was a log")
    here = source.followed_by(increment_of(then)).unwaited
    if same_source(then, source.identity, moved=load.moved):
        _require_read_out(node, here, value, load.ties, spark)
        return []
    is_looked_at = _is_looked_at(node, source, load, spark)
    if not same_order(then, source.identity):
        _require_nothing_new_here(node, here, then, value, spark)
    return [] if is_looked_at else [f"whether all of {then.place or then.source} was loaded is not looked at"]


def _is_looked_at(node: Node, source: Source, load: FormerLoad, spark: Session) -> bool:
    """Whether the former place is there, and holds nothing that the former definition would read.

    Raises:
        IdentityMismatchError: it does, or that cannot be known.
    """
    then = load.then
    try:
        former, unclear = former_source(node, source, then)
        if former is None:
            return False
        if load.position is not None and former.position() == load.position:
            return True
        if unclear:
            if former.snapshot().is_empty:
                return False
            raise NotKnownError(unclear)
        read = _require_read_out(node, former, source.unmarked(load.value), load.ties, spark)
    except NotKnownError as error:
        raise _not_known(node, then, str(error)) from error
    except SourceError as error:
        if cannot_look(error):
            raise
        if isinstance(error, NothingThereError) or isinstance(error.__cause__, FileNotFoundError):
            # It is gone, and the former definition would read nothing.
            return False
        raise _not_known(node, then, error.message) from error
    return not read.snapshot.is_empty


def _not_known(node: Node, then: Identity, why: str) -> IdentityMismatchError:
    place = then.place or then.source
    return IdentityMismatchError(
        f"{node}: whether all of {place} is loaded is not known: {why}",
        fix=f"put the former definition back, run it once (odi run {node.command}), change it again and adopt; or "
        "change one after the other, and adopt each: first the place, then how it is followed; or, if all of it is "
        f"loaded or nobody wants the rest, move away what is at {place}, and adopt; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
    )


def _require_nothing_new_here(node: Node, here: Source, then: Identity, value: Any, spark: Session) -> None:
    """Raises IdentityMismatchError if the place of now holds what the former way of following would read there.

    Args:
        here: the source at its place of now, followed as it was.
    """
    again = (
        "change one after the other, and adopt each: first the place, and run the node "
        f"(odi run {node.command}); then how it is followed; or rebuild the table from its sources: "
        f"odi run {node.command} --full-refresh"
    )
    if here.identity.kind != then.kind or isinstance(here.increment, VersionIncrement):
        # A mark of one table says nothing of another one's versions.
        return
    if not isinstance(here.increment, FilesIncrement):
        # Of rows without the column that they were followed by, it says nothing.
        with suppress(NoCursorColumnError):
            _require_read_out(node, here, value, {}, spark, again)
        return
    mark = here.mark(value, {})
    with remedies_named(node):
        known = None if mark is None else here.moved_here(mark, then)
    # Where no file is known again, the files hold the loaded rows in another form.
    others = () if known is None else known.others
    text = f"{counted(len(others), 'file')}, {', '.join(others[:_MOST_NAMED])}" if others else ""
    if text:
        raise _not_all_loaded(node, here, text, again)


def _require_read_out(
    node: Node, former: Source, value: Any, ties: Mapping[str, Any], spark: Session, again: str | None = None
) -> PlannedRead:
    """A read of a run of the ``former`` definition above an HWM of ``value``.

    Args:
        again: the way on where there is something to read.

    Raises:
        IdentityMismatchError: there is.
    """
    mark = former.mark(value, {})
    again = again or (
        f"put the former definition back, run it once (odi run {node.command}), change it again and adopt; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh"
    )
    try:
        read = resolved(former.plan(mark), spark)
    except NoCursorColumnError:
        raise
    except IncrementError as error:
        raise IdentityMismatchError(
            f"{node}: whether all of {former.label} is loaded is not known: as it was followed before, the next run "
            f"would stop: {error.message}",
            fix=again,
            node=str(node),
        ) from error
    unread = "" if read.nothing_new else read.summary
    if not unread and mark is not None and ties.get("ties"):
        tied: Mapping[str, int] = getattr(with_ties(former, mark, spark), "ties", None) or {}
        more = sum(tied.values()) - sum(ties["ties"].values())
        unread = f"{counted(more, 'row')} tied with the HWM that came later" if more > 0 else ""
    if unread:
        raise _not_all_loaded(node, former, unread, again)
    return read


def _not_all_loaded(node: Node, former: Source, unread: str, again: str) -> IdentityMismatchError:
    return IdentityMismatchError(
        f"{node}: not all of {former.label} is loaded: as it was followed before, the next run would read {unread}",
        fix=again,
        node=str(node),
    )
