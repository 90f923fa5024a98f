"""Copies of a folder's state stores in another folder, where nodes go on with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from odi_assets.connections.location import Location
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import STORE
from odi_assets.delta.history import commit_digest
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError
from odi_assets.state.backend import StateBackend
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets.state.transfer.load import TransferEffect
from odi_assets.store.find import stores_below
from odi_assets.util.durable import write_file
from odi_assets.util.lazy import pa_fs


@dataclass(frozen=True)
class StoreCopy:
    """A state store and its place in another folder.

    Attributes:
        name: the place below that folder: ``PIPELINE.NODE``, or ``ENVIRONMENT/PIPELINE.NODE``.
        effect: CHANGED: what is there is an earlier version of it; BACK: it is no version of it, and stays.
    """

    name: str
    source: Location
    target: Location
    effect: TransferEffect

    @property
    def is_to_do(self) -> bool:
        return self.effect in (TransferEffect.ADDED, TransferEffect.CHANGED)

    def apply(self) -> None:
        """Copy what is not there yet. The log is copied last, in the order of its versions: whoever opens the copy
        before it is whole finds an earlier version.

        Raises:
            StateError: a file cannot be read or written, or somebody else wrote to the copy.
        """
        try:
            with TableHandle(self.target, None, STORE).calls("copying a state store"):
                if _effect(self.source, self.target) is not self.effect:
                    raise FileExistsError(self.target.uri)
                self._copy()
        except StateError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
            raise StateError(
                f"the state store at {self.target.uri} was written by somebody else while it was copied",
                fix="nothing there was replaced; see that no run uses it, and run the same command again",
                uri=self.target.uri,
            ) from error

    def _copy(self) -> None:
        source = file_system(self.source)
        there = {file.path for file in _files(file_system(self.target))} if self._is_begun else set()
        names = [file.path for file in _files(source) if file.path not in there]
        for name in sorted(names, key=lambda name: ("_delta_log/" in name, name)):
            with source.open_input_stream(name) as stream:
                _write(self.target.child(name), stream.read())

    @property
    def _is_begun(self) -> bool:
        return not self.target.is_local or self.target.local_path.is_dir()


def _write(place: Location, contents: bytes) -> None:
    """Write a new file, whole or not at all. Object stores show no incomplete upload.

    Raises:
        FileExistsError: there is one. In an object store, one may come between the look and the upload.
    """
    if place.is_local:
        place.local_path.parent.mkdir(parents=True, exist_ok=True)
        write_file(place.local_path, contents, is_new=True)
        return
    filesystem, path = place.in_store()
    if filesystem.exists(path):
        raise FileExistsError(place.uri)
    with place.open("wb") as stream:
        stream.write(contents)


def copies_of_stores(
    source: StateBackend, target: StateBackend, *, into: str | None = None, rename_environment: bool = False
) -> list[StoreCopy]:
    """What becomes of the stores beside ``source`` if its state goes to ``target``. Changes nothing.

    Args:
        into: with ``rename_environment``, the environment that the source's only one becomes.
        rename_environment: whether ``into`` counts; it may be None, the environment without a name.

    Raises:
        StateError: a store cannot be read.
    """
    folder, place = _stores_beside(source), _stores_beside(target)
    copies = []
    for store in stores_below(folder) or []:
        name = store.uri.removeprefix(folder.uri).strip("/")
        target_name = name
        if rename_environment:
            node = name.rpartition("/")[2]
            target_name = f"{into}/{node}" if into else node
        from_, to = replace(folder, uri=store.uri), place.child(target_name)
        copies.append(StoreCopy(target_name, from_, to, _effect(from_, to)))
    return copies


def _stores_beside(backend: StateBackend) -> Location:
    """The folder in which a project with this backend has the stores of its nodes."""
    if isinstance(backend, LocalJSONStateBackend):
        return Location(str(backend.path.parent)).child("stores")
    assert isinstance(backend, CatalogStateBackend)
    state = backend.locations["meta_state"]
    return replace(state, uri=f"{state.uri.rpartition('/')[0]}/stores")


def _effect(source: Location, target: Location) -> TransferEffect:
    copy = TableHandle.open_once(target, owner=STORE)
    if copy.version is None:
        return TransferEffect.ADDED
    digest = commit_digest(source, copy.version)
    if digest is None or digest != commit_digest(target, copy.version):
        return TransferEffect.BACK
    newest = TableHandle.open_once(source, owner=STORE).version
    return TransferEffect.UNCHANGED if copy.version == newest else TransferEffect.CHANGED


def _files(store: pa_fs.FileSystem) -> Iterator[pa_fs.FileInfo]:
    listed = store.get_file_info(pa_fs.FileSelector("", recursive=True, allow_not_found=True))
    return (file for file in listed if file.type == pa_fs.FileType.File)
