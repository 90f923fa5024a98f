"""The ledger: the files of a source that are in a target, listed in Parquet parts beside the target's log.

A file is in the target if the ledger lists it, whatever its time of change. Parts are written before the commit, and
the commit's HWM names them, so ledger and data change in one commit. A part that no HWM names was left by a run that
did not commit, and means nothing.

A part is named by a digest of its entries, so a file of another part in its place is noticed wherever it is read.

A new part absorbs the parts before it that list no more files than it does, as a binary counter carries. So after
100,000 files that came one by one, an HWM names at most 17 parts, and each file was listed at most 17 times.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from arro3.core import Array, Table
from pyarrow.fs import FileSelector

from odi_assets.connections.location import Location
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import deltalake_calls
from odi_assets.delta.maintenance.restore import presence
from odi_assets.delta.on_disk import sync_data
from odi_assets.errors import IncrementError
from odi_assets.sources.marks import LedgerPart

LEDGER_FOLDER = "_odi_files"
"""Folder of the parts, in the table's own. Its name begins with ``_``, so Delta's vacuum leaves it alone."""

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("mtime_ns", pa.int64()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("digest", pa.string()),
        ("whole", pa.string()),
        ("changed_ns", pa.int64()),
    ]
)


@dataclass(frozen=True)
class LoadedFile:
    """A file as it was when it was loaded.

    Attributes:
        etag: the object store's tag of the content; empty for local files.
        digest: fingerprint of both ends of a local file (see ``fingerprint``); empty for files with an etag.
        whole: digest of all of a local file that is more than its ends; empty where that is not known.
        changed_ns: when a local file or its attributes changed; 0 where that is not known.
    """

    path: str
    mtime_ns: int
    size: int
    etag: str = ""
    digest: str = ""
    whole: str = ""
    changed_ns: int = 0


@dataclass(frozen=True)
class NewPart:
    """A part to be written before the commit whose HWM names it."""

    part: LedgerPart
    files: tuple[LoadedFile, ...]


def path_of(name: str) -> str:
    """Where the part with this name is, relative to the table."""
    return f"{LEDGER_FOLDER}/{name}.parquet"


def is_there(table: Location, parts: Iterable[LedgerPart]) -> bool:
    """Whether all ``parts`` are stored beside ``table``.

    Raises:
        TableError: the store cannot be looked at.
    """
    paths = [path_of(part.name) for part in parts]
    return all(map(presence(table, paths), paths))


def read_parts(table: Location, parts: Iterable[LedgerPart], label: str) -> dict[str, LoadedFile]:
    """The files of ``parts`` by path; a later part goes before an earlier one.

    Raises:
        IncrementError: a part is missing, damaged, or another one than its name says.
    """
    files: dict[str, LoadedFile] = {}
    for part in parts:
        files |= _read(table, part, label)
    return files


def _read(table: Location, part: LedgerPart, label: str) -> dict[str, LoadedFile]:
    location = table.child(path_of(part.name))
    try:
        with location.open("rb") as stream:
            rows = pq.ParquetFile(stream).read(use_threads=False)
        if not set(rows.column_names) <= set(_SCHEMA.names):
            raise ValueError(f"it has the columns {', '.join(rows.column_names)}, and is no such list")
        files = {row["path"]: LoadedFile(**row) for row in rows.to_pylist()}
        if _name_of(files) != part.name:
            raise ValueError("it holds other entries than its name says: another file was put in its place")
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise IncrementError(
            f"the list of files that were loaded from {label} cannot be read: {location.uri}: {error}",
            fix="put the file back from a copy; or set the HWM to `mtime_ns` and `path` alone with odi state set "
            "(files up to there count as loaded); or load everything again with odi run --full-refresh",
            uri=location.uri,
        ) from error
    return files


def _name_of(files: Mapping[str, LoadedFile]) -> str:
    """The name of the part that lists ``files``: two plans that saw the same files have the same HWM."""
    digest = hashlib.blake2b(digest_size=8)
    for _, file in sorted(files.items()):
        changed = f"\0{file.changed_ns}" if file.changed_ns else ""
        digest.update(f"{file.path}\0{file.mtime_ns}\0{file.size}\0{file.etag}\0{file.digest}{changed}\n".encode())
    return digest.hexdigest()


def vacated(path: str) -> LoadedFile:
    """The entry of a path whose file was moved away: the next file there is new. No loaded file has size 0."""
    return LoadedFile(path, 0, 0)


def extend(
    table: Location, parts: Sequence[LedgerPart], files: Sequence[LoadedFile], label: str
) -> tuple[tuple[LedgerPart, ...], NewPart | None]:
    """The parts with ``files`` added, and the part that has to be written for it; None if there is nothing to add."""
    if not files:
        return tuple(parts), None
    kept, absorbed, count = list(parts), [], len(files)
    while kept and kept[-1].files <= count:
        absorbed.append(kept.pop())
        count += absorbed[-1].files
    rows = read_parts(table, reversed(absorbed), label) if absorbed else {}
    rows.update({file.path: file for file in files})
    part = LedgerPart(_name_of(rows), len(rows))
    return (*kept, part), NewPart(part, tuple(rows.values()))


def write(table: Location, new: NewPart) -> None:
    """Write a part, whole or not at all, before the commit that names it.

    A part of the same files has the same name, so an HWM may name an existing part already: it is replaced, never
    opened for writing. Object stores show no incomplete upload.

    Raises:
        OSError: the storage cannot be written.
    """
    location = table.child(path_of(new.part.name))
    columns = [Array([getattr(file, column.name) for file in new.files], column.type) for column in _SCHEMA]
    # pyarrow's own arrays of Python's values import pandas.
    rows = pa.RecordBatchReader.from_stream(Table.from_arrays(columns, schema=_SCHEMA)).read_all()
    if not location.is_local:
        with location.open("wb") as stream:
            pq.write_table(rows, stream, compression="zstd")
        return
    target = location.local_path
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with scratch.open("wb") as stream:
            pq.write_table(rows, stream, compression="zstd")
        sync_data(table, [scratch.relative_to(table.local_path).as_posix()])
        scratch.replace(target)
        sync_data(table, [target.relative_to(table.local_path).as_posix()])
    finally:
        scratch.unlink(missing_ok=True)


def sweep(table: Location, named: Collection[str], older_than: timedelta, *, dry_run: bool = False) -> dict[str, int]:
    """Delete parts that are older and not ``named``, and incomplete ones that killed writers left; object stores show
    none of these. Returns their sizes, by path relative to ``table``.

    Args:
        named: the names of the parts that an HWM needs, which somebody may go back to.

    Raises:
        TableError: the store cannot be looked at.
    """
    with deltalake_calls("looking after the ledger of loaded files of the table", table):
        storage, sizes = file_system(table), {}
        for info in storage.get_file_info(FileSelector(LEDGER_FOLDER, allow_not_found=True)):
            name = info.path.rpartition("/")[2]
            part, _, kind = name.rpartition(".parquet")
            is_left = not kind and part not in named if not name.startswith(".") else bool(part)
            if is_left and info.mtime is not None and datetime.now(UTC) - info.mtime > older_than:
                sizes[f"{LEDGER_FOLDER}/{name}"] = int(info.size or 0)
                if not dry_run:
                    storage.delete_file(info.path)
    return sizes
