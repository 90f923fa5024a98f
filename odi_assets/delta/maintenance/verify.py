"""Reads the data files of a table through, and compares them with what the log says of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from odi_assets.delta.damage import LOG, file_system
from odi_assets.delta.errors import deltalake_calls
from odi_assets.delta.files.described import Described, FileValues, descriptions
from odi_assets.delta.maintenance.restore import LostFile, lost_files
from odi_assets.delta.table import LiveFile, TableHandle

_READERS = 4
_NOTHING_SAID = Described({}, {}, {}, {})


def unreadable_files(handle: TableHandle) -> list[LostFile]:
    """The live files that are gone, cannot be read, or differ from the log in their size, rows or values.

    Every page is read; its checksum is compared where its writer made one, as Spark does.

    Raises:
        TableError: the store cannot be looked at.
    """
    lost = lost_files(handle.location, handle.live_files)
    lost_paths = {file.path for file in lost}
    described = zip(handle.live_files, descriptions(handle), strict=True)
    pairs = [(file, says) for file, says in described if file.path not in lost_paths]
    rest = [file for file, _ in pairs]
    with ThreadPoolExecutor(max_workers=_READERS) as pool:
        why = pool.map(lambda pair: _why_unreadable(handle, *pair), pairs)
        damaged = [
            LostFile(file.path, file.size, file.size, text) for file, text in zip(rest, why, strict=True) if text
        ]
    return [*lost, *damaged]


def readable_files(handle: TableHandle, files: Iterable[LiveFile]) -> list[LiveFile]:
    """Those of ``files``, of any version of the table, that can be read through.

    Raises:
        TableError: the store cannot be looked at.
    """
    return [file for file in files if _why_unreadable(handle, file, _NOTHING_SAID) is None]


def dead_links(handle: TableHandle) -> list[str]:
    """Links in the folder of a local table that lead nowhere, by their paths in it: no unused file can be deleted where
    there is one. Those in place of live files are unreadable files, and not among them.

    Raises:
        TableError: the folder cannot be looked at.
    """
    if not handle.location.is_local:
        return []
    root, live = handle.location.local_path, {file.path for file in handle.live_files}
    with deltalake_calls("looking at the folder of the Delta table", handle.location):
        links = (
            path.relative_to(root)
            for folder, folders, names in os.walk(root)
            for path in (Path(folder, name) for name in (*folders, *names))
            if path.is_symlink() and not path.exists()
        )
        return sorted(path.as_posix() for path in links if path.parts[0] != LOG and path.as_posix() not in live)


def _why_unreadable(handle: TableHandle, file: LiveFile, says: Described) -> str | None:
    rows, values = 0, FileValues(says)
    with deltalake_calls("reading a file of the Delta table", handle.location):
        try:
            with file_system(handle.location).open_input_file(file.path) as stream:
                parquet = pq.ParquetFile(stream, page_checksum_verification=True)
                for batch in parquet.iter_batches(use_threads=False):
                    rows += batch.num_rows
                    values.add(batch)
        except pa.ArrowException as error:
            return str(error).strip().splitlines()[0]
        except OSError as error:
            # Arrow says so of pages that cannot be decoded; a store that does not answer has an error number.
            if error.errno is not None:
                raise
            return str(error).strip().splitlines()[0]
    if file.rows is not None and rows != file.rows:
        return f"{rows:,} rows, and the log says {file.rows:,}"
    return values.difference()
