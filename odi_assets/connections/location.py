"""Where a path of a connection is, and what opens it there."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from odi_assets.config.models import (
    AzureBlobConnection,
    Connection,
    GcsConnection,
    LocalConnection,
    RetryConfig,
    S3Connection,
)
from odi_assets.config.models.connections import SCHEME, StoreConnection, inside
from odi_assets.config.table_engines import EMBEDDED
from odi_assets.connections.cached import S3A, own_scheme, uncached_options
from odi_assets.errors import ConfigError
from odi_assets.util.extras import pip_install
from odi_assets.util.lazy import fsspec

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_PACKAGES = {"s3": "s3fs", "abfs": "adlfs", "abfss": "adlfs", "gs": "gcsfs"}
"""By the scheme of a store, the package by which fsspec reaches it."""
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\{}[]*?"})


@dataclass(frozen=True)
class Location:
    """A file, a folder or a glob of a connection.

    The options hold secrets: they are in no ``repr`` and in no message.

    Attributes:
        uri: absolute. A plain path for local files; ``abfss://container@account.dfs.core.windows.net/…``, ``s3://…`` or
            ``gs://…`` otherwise.
        storage_options: for deltalake.
        spark_options: Spark configuration that makes ``uri`` readable; needs Hadoop's connector of the store.
        fsspec_options: for fsspec's file system of the store.
        connection: the name of the connection in the project file; None if it has none. Errors tell it.
        retry: how often a store that does not answer is asked again.
        fsync: whether commits to tables on this machine's disks are put on the disk before they count.
        table_engine: the name of the engine that writes and reads a table here.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    spark_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    fsspec_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    connection: str | None = field(default=None, compare=False)
    retry: RetryConfig = field(default=RetryConfig(), compare=False, repr=False)
    fsync: bool = field(default=True, compare=False, repr=False)
    table_engine: str = field(default=EMBEDDED, compare=False, repr=False)

    def __str__(self) -> str:
        return self.uri

    @property
    def is_local(self) -> bool:
        """Whether this is on this machine's disks."""
        return SCHEME.match(self.uri) is None

    @property
    def local_path(self) -> Path:
        """The path on this machine.

        Raises:
            ConfigError: the location is in a remote store.
        """
        if not self.is_local:
            raise ConfigError(
                f"{self.uri} is not on this machine", fix="use a connection of type `local`", uri=self.uri
            )
        return Path(self.uri)

    def true_path(self, pattern: str = "") -> str:
        """Where this is, whatever way a connection names it: links are resolved, a URI stays as it is.

        Args:
            pattern: a path or glob below it.
        """
        root = os.path.realpath(self.uri) if self.is_local else self.uri.rstrip("/")
        return f"{root}/{posixpath.normpath(pattern)}" if pattern else root

    @property
    def spark_path(self) -> str:
        """The location as a path that Spark takes literally, although it may hold characters of globs."""
        return self.uri.translate(_GLOB)

    @property
    def is_escaped(self) -> bool:
        """Whether :attr:`spark_path` differs from the path itself."""
        return self.spark_path != self.uri

    @property
    def reader_options(self) -> dict[str, str]:
        """The credentials in ``spark_options`` as options of one read or write."""
        options = {name.removeprefix("spark.hadoop."): value for name, value in self.spark_options.items()}
        return {**options, **uncached_options(self.uri, self.spark_options)}

    @property
    def for_spark(self) -> Location:
        """This place under the name by which Spark reaches it with these credentials, and no others."""
        scheme = own_scheme(self.uri, self.spark_options)
        if scheme is None:
            return self
        rest = self.uri.partition("://")[2]
        return replace(
            self, uri=f"{scheme}://{rest}", spark_options={**self.spark_options, f"spark.hadoop.fs.{scheme}.impl": S3A}
        )

    def in_store(self) -> tuple[AbstractFileSystem, str]:
        """fsspec's file system of the store, and this location's path there.

        Raises:
            ConfigError: the package that knows such stores is not installed.
        """
        try:
            filesystem, path = fsspec.core.url_to_fs(self.uri, **self.fsspec_options)
        except (ImportError, ValueError) as error:
            # Some packages tell fsspec of their schemes only once they are installed.
            if isinstance(error, ValueError) and "Protocol not known" not in str(error):
                raise
            package = _PACKAGES.get(self.uri.partition("://")[0])
            raise ConfigError(
                f"{self.uri} cannot be looked at: {error}",
                fix=pip_install(package) if package else "install fsspec's package for it into the environment of odi",
                uri=self.uri,
                connection=self.connection,
            ) from error
        return filesystem, path

    def open(self, mode: Literal["rb", "wb"]) -> IO[bytes]:
        """Open the file that is here. A local path may hold what fsspec takes for a chain of file systems (``::``).

        Raises:
            ConfigError: the package that knows such stores is not installed.
        """
        if self.is_local:
            return self.local_path.open(mode)
        filesystem, path = self.in_store()
        opened: IO[bytes] = filesystem.open(path, mode)
        return opened

    def child(self, path: str) -> Location:
        """Return a location inside this one.

        Raises:
            ConfigError: the path leads out of this location, or is a URI.
        """
        if SCHEME.match(path):
            raise ConfigError(
                f"`{_without_secrets(path)}` is a URI; paths are relative to their connection",
                fix="make a connection for the store and give the path under it",
            )
        below = inside(path, self.uri)
        if below is None:
            raise ConfigError(
                f"`{path}` leads out of {self.uri}",
                fix="give a path inside the connection's `base_path`, or make another connection",
                uri=self.uri,
            )
        return replace(self, uri=f"{self.uri.rstrip('/')}/{below}") if below else self


def resolve(
    connection: Connection, path: str, root: Path, *, name: str | None = None, retry: RetryConfig | None = None
) -> Location:
    """Return where a path of a connection is.

    Args:
        connection: where the path starts.
        path: relative to the connection's ``base_path``; may be a glob.
        root: the project file's folder, which a local ``base_path`` is relative to.
        name: the connection's name, for errors.
        retry: the project's retry policy; the default one unless given.

    Raises:
        ConfigError: the connection has no paths, or the path leads out of ``base_path``, or is a URI, or the
            connection's own values make no location.
    """
    if not isinstance(connection, StoreConnection):
        raise ConfigError(
            f"a connection of type `{connection.type}` has no files and folders",
            fix="use a connection of type local, azure_blob, s3 or gcs",
        )
    if not isinstance(connection, LocalConnection):
        base = _in_store(connection)
    elif SCHEME.match(connection.base_path):
        raise ConfigError(
            f"`base_path` {_without_secrets(connection.base_path)} is a URI",
            fix="use a connection of another type: azure_blob, s3 or gcs",
        )
    else:
        base = Location(connection.folder(root), fsync=connection.fsync)
    return replace(
        base.child(path), connection=name, retry=retry or RetryConfig(), table_engine=connection.table_engine
    )


def absolute(path: str) -> str:
    """Return a path of this machine, relative or as a ``file:`` URI, as an absolute one; a URI of a store as it is."""
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    return path if SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100  Path.absolute() keeps `..`


def is_there(path: Path) -> bool:
    """Whether there is something at a path of this machine.

    Raises:
        OSError: that is not known: a folder on the way is closed to us, is a file, or is a link that leads nowhere.
    """
    try:
        path.stat()
    except FileNotFoundError:
        broken = next((link for link in (path, *path.parents) if link.is_symlink() and not link.exists()), None)
        if broken is not None:
            raise NotADirectoryError(errno.ENOTDIR, "a link that leads nowhere", str(broken)) from None
        return False
    return True


def _in_store(connection: AzureBlobConnection | S3Connection | GcsConnection) -> Location:
    """Where the paths of a connection to a remote store start."""
    from odi_assets.connections.storage_options import azure_host, options

    if isinstance(connection, AzureBlobConnection):
        bucket = f"abfss://{connection.container}@{azure_host(connection)}"
    else:
        bucket = f"{'s3' if isinstance(connection, S3Connection) else 'gs'}://{connection.bucket}"
    store_options = options(connection)
    return Location(bucket, store_options.storage, store_options.spark, store_options.fsspec).child(
        connection.base_path
    )


def _without_secrets(uri: str) -> str:
    """Leave out what may hold a secret: a signature, or a user with a password."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://…/{rest.partition('?')[0].rpartition('/')[2]}"
