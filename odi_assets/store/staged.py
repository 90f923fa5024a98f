"""A store whose changes count once another commit names them, such as the commit of a node's table.

The changes are staged first: written, but no version of the store. The other commit names them (:class:`Named`). Then
they are published, which makes them a version. Whoever opens the store next publishes what a process that died in
between left. Changes that no commit names never become a version, so what a killed or refused run did never counts.

Versions are only ever added: if the commit that counts names an earlier version than the latest (its table was put
back), the next version goes on from that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from odi_assets.errors import FencedError, IllegalStateError, StateError
from odi_assets.store.contents import Draft, VersionContents
from odi_assets.store.log import PendingVersion
from odi_assets.store.parts import VersionHeader
from odi_assets.store.provider import StateStoreProvider
from odi_assets.store.state_store import StateStore


@dataclass(frozen=True)
class Named:
    """What a commit says of a store: the version that belongs to it, and the id of that version's commit."""

    version: int
    commit_id: str

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Named:
        return cls(int(stored["version"]), str(stored["commit_id"]))


NOTHING = Named(0, "")
"""Names the empty store before the first version."""


class StagedStore:
    """A store opened for one run.

    Args:
        provider: the store's versions; its writer is the run.
        named: what the last commit that counts says of the store; None to begin with nothing, whatever it holds.

    Attributes:
        store: what the run reads and changes. It cannot commit it itself.

    Raises:
        StateError: the version that was named is not there, or cannot be read.
    """

    def __init__(self, provider: StateStoreProvider, named: Named | None) -> None:
        self._provider = provider
        self._named = named
        version, self._before = settle(provider, self._named or NOTHING)
        self._base, self._latest = provider.latest()
        self._batch: PendingVersion | None = None
        self.store = StateStore(provider.uri, version, self._before, self._refuse, lambda: provider.counted)

    def stage(self) -> Named:
        """Write what was changed, end the store, and say what the commit that makes it count is to name."""
        final = self.store.contents()
        self.store.abort()
        if self._named is not None and final.items == self._before.items:
            return self._named
        if not final.items and not self._latest.items:
            return NOTHING
        self._batch = _batch(self._base, self._latest, final, self._provider.writer)
        self._provider.stage(self._batch)
        return Named(self._batch.version, self._batch.commit_id)

    def publish(self) -> None:
        """Make what was staged a version.

        Raises:
            StateError: it cannot be written now; the next one who opens the store does it.
        """
        if self._batch is not None:
            settle(self._provider, Named(self._batch.version, self._batch.commit_id))

    def _refuse(self, _draft: Draft, _replaces: bool) -> NoReturn:
        raise IllegalStateError(
            "the store of a node is committed with its rows",
            fix="leave out commit(): what was put and removed counts once the node's rows are in its table",
            uri=self._provider.uri,
        )


def settle(provider: StateStoreProvider, named: Named) -> tuple[int, VersionContents]:
    """The version with the commit that was named and what it holds; published now, if it was only staged.

    Raises:
        StateError: it is neither there nor staged.
    """
    if named == NOTHING:
        return 0, VersionContents({})
    commit = provider.committed_as(named.commit_id, named.version)
    if commit is None:
        _publish(provider, named)
        commit = provider.committed_as(named.commit_id, named.version)
    if commit is None:
        raise _lost(provider, named)
    return commit.version, provider.contents(commit.version)


def require_there(provider: StateStoreProvider, named: Named) -> None:
    """Raises StateError if the version that was named is neither there nor staged."""
    if named != NOTHING and provider.committed_as(named.commit_id, named.version) is None:
        _staged(provider, named)


def _staged(provider: StateStoreProvider, named: Named) -> tuple[VersionHeader, Mapping[bytes, bytes | None]]:
    part = provider.staged(named.version, named.commit_id)
    if part is None or part.header is None or not part.is_intact:
        raise _lost(provider, named)
    return part.header, part.entries


def _publish(provider: StateStoreProvider, named: Named) -> None:
    header, entries = _staged(provider, named)
    final = provider.contents(named.version - 1).after(entries)
    base, latest = provider.latest()
    try:
        provider.commit(_batch(base, latest, final, header.writer, commit_id=named.commit_id))
    except FencedError:
        # Another process may have published the same changes at the same time.
        if provider.committed_as(named.commit_id, named.version) is None:
            raise


def _batch(
    base: VersionHeader | None, latest: VersionContents, final: VersionContents, writer: str, **options: Any
) -> PendingVersion:
    """The changes that make ``final`` of the latest version, whose commit is ``base``."""
    draft = Draft(latest)
    for key, value in latest.changes_to(final).items():
        draft.change(key, value)
    return PendingVersion(base, draft, writer, **options)


def _lost(provider: StateStoreProvider, named: Named) -> StateError:
    return StateError(
        f"version {named.version} of the state store at {provider.uri} belongs to the last commit of its node, and is "
        "neither there nor staged: the store was cleaned, dropped or put back, or `system` or `environment` names "
        "another place now",
        fix="copy the store's folder there from where it was, or from a copy; or begin with an empty one: run the node "
        "with --full-refresh",
        uri=provider.uri,
        version=named.version,
    )
