"""Connections: where files, tables and databases are, and what opens them."""

from __future__ import annotations

import os
import posixpath
import re
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from odi_assets.config.models.databases import SqlConnection
from odi_assets.config.models.fields import Option, Secret, Strict, Text
from odi_assets.config.table_engines import EMBEDDED

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class StoreConnection(Strict):
    """A connection that holds files and tables; paths are relative to its ``base_path``."""

    DEFAULTS: ClassVar = {"validation_mode": "lazy"}

    if TYPE_CHECKING:
        base_path: str

    table_engine: Text = Field(default=EMBEDDED, description="What writes and reads tables here.")

    @property
    @abstractmethod
    def store(self) -> tuple[str, ...]:
        """Which store this is: equal for two connections to one store, whatever their names."""

    def folder(self, root: Path) -> str:  # noqa: ARG002
        """Return the folder in the store that paths are relative to; ``root`` is the project file's folder."""
        return self.base_path.strip("/")


class LocalConnection(StoreConnection):
    """A folder of this machine, relative to the project file's folder."""

    type: Literal["local"] = "local"
    base_path: Text = Field(
        default="./data", description="Folder, relative to the project file's; `~` is the home folder."
    )

    fsync: bool = Field(
        default=True,
        description="Put commits of tables on the disk before they count, so that a power cut takes none back.",
    )

    @property
    def store(self) -> tuple[str, ...]:
        """This machine."""
        return ("local",)

    def folder(self, root: Path) -> str:
        """Return the absolute folder, normalized; ``~`` is expanded."""
        return os.path.normpath(os.path.join(root.absolute(), os.path.expanduser(self.base_path)))  # noqa: PTH111, PTH118


class AccountKeyAuth(Strict):
    """The storage account's key."""

    mode: Literal["account_key"] = "account_key"
    account_key: Secret = Field(description="Key of the storage account; write `${VARIABLE}`.")


class SasAuth(Strict):
    """A shared access signature."""

    mode: Literal["sas"]
    sas_token: Secret = Field(description="Shared access signature; write `${VARIABLE}`.")


AzureAuth = Annotated[AccountKeyAuth | SasAuth, Field(discriminator="mode")]


class AzureBlobConnection(StoreConnection):
    """A container of Azure Blob Storage or Data Lake Storage Gen2."""

    type: Literal["azure_blob"]
    account_name: Text = Field(description="Storage account.")
    container: Text = Field(description="Container.")
    base_path: str = Field(default="", description="Folder in the container that paths are relative to.")
    endpoint: Text | None = Field(default=None, description="Address of an emulator (Azurite) or of a private cloud.")
    auth: AzureAuth = Field(description="How to sign requests.")

    @property
    def store(self) -> tuple[str, ...]:
        """The container, at its address."""
        return ("azure", self.account_name, self.container, self.endpoint or "")


class S3Connection(StoreConnection):
    """A bucket of Amazon S3 or of a server that speaks its protocol. Without keys, the environment's are used."""

    type: Literal["s3"]
    bucket: Text = Field(description="Bucket.")
    base_path: str = Field(default="", description="Prefix in the bucket that paths are relative to.")
    region: Text | None = Field(default=None, description="Region, as in `eu-central-1`.")
    endpoint: Text | None = Field(default=None, description="Address of a server that is not Amazon's.")
    access_key_id: Secret | None = Field(default=None, description="Access key; write `${VARIABLE}`.")
    secret_access_key: Secret | None = Field(default=None, description="Secret key; write `${VARIABLE}`.")
    session_token: Secret | None = Field(default=None, description="Token of a temporary session.")

    @property
    def store(self) -> tuple[str, ...]:
        """The bucket, at its address."""
        return ("s3", self.bucket, self.endpoint or "")


class GcsConnection(StoreConnection):
    """A bucket of Google Cloud Storage. Without a key, the environment's credentials are used."""

    type: Literal["gcs"]
    bucket: Text = Field(description="Bucket.")
    base_path: str = Field(default="", description="Prefix in the bucket that paths are relative to.")
    endpoint: Text | None = Field(default=None, description="Address of an emulator.")
    service_account_key: Secret | None = Field(
        default=None, description="The service account's key, the whole JSON text; write `${VARIABLE}`."
    )

    @property
    def store(self) -> tuple[str, ...]:
        """The bucket, at its address."""
        return ("gcs", self.bucket, self.endpoint or "")


class KafkaConnection(Strict):
    """Servers of Kafka, whose topics are read."""

    type: Literal["kafka"]
    bootstrap_servers: Text = Field(description="Servers, as in `kafka-1:9092,kafka-2:9092`.")
    user: Text | None = Field(default=None, description="Who signs in, by SASL.")
    password: Secret | None = Field(default=None, description="The user's password; write `${VARIABLE}`.")
    options: dict[str, Option] = Field(
        default_factory=dict,
        repr=False,
        description="Settings of the client librdkafka, as in `security.protocol: SASL_SSL`.",
    )
    timeout: float = Field(default=20, gt=0, allow_inf_nan=False, description="Seconds to wait for an answer.")

    @property
    def settings(self) -> dict[str, str]:
        """What the client needs to sign in. It holds secrets."""
        client_settings = {**self.options, "bootstrap.servers": self.bootstrap_servers}
        client_settings |= {} if self.user is None else {"sasl.username": self.user}
        return client_settings | ({} if self.password is None else {"sasl.password": self.password.get_secret_value()})


Connection = Annotated[
    LocalConnection | AzureBlobConnection | S3Connection | GcsConnection | SqlConnection | KafkaConnection,
    Field(discriminator="type"),
]


def inside(path: str, folder: str) -> str | None:
    """Return a path relative to a folder, normalized, ``""`` for the folder itself; None when it leads out of it.

    Only the text is looked at, links are not followed. An absolute path is one of this machine where ``folder`` is one;
    in other stores its slash means nothing.
    """
    if folder.startswith("/") and path.startswith("/"):
        path = os.path.relpath(path, folder)
    normal = posixpath.normpath(path.strip("/") or ".")
    if normal == ".." or normal.startswith("../"):
        return None
    return "" if normal == "." else normal
