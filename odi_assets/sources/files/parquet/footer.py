"""The footer of one Parquet file of a snapshot, or an error that says why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.errors import SourceError
from odi_assets.util.lazy import pa, pq

if TYPE_CHECKING:
    from odi_assets.sources.files.snapshot import FilesSnapshot


def footer_schema(files: FilesSnapshot, path: str) -> pq.ParquetSchema:
    """The columns of the file at ``path``, of its footer, which is read once.

    Raises:
        SourceError: the file is not there any more, or is no whole Parquet file.
    """
    known = files.footers.get(path)
    if known is not None:
        return known
    try:
        with files.base.child(path).open("rb") as stream:
            schema = files.footers[path] = pq.read_metadata(stream).schema
    except FileNotFoundError as error:
        raise SourceError(
            f"{files.label}: {path} went away since the run was planned",
            fix="run the node again: nothing was written, and it takes the files that are there then",
            path=path,
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{files.label}: {path} cannot be read: {error}",
            fix="nothing was loaded: land the file again, whole (under a name that begins with `.` or `_` until it is "
            "complete)",
            path=path,
        ) from error
    return schema
