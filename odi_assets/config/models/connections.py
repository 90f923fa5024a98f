"""Connections: where files and tables are, and what opens them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from odi_assets.config.models.fields import Secret, Strict, Text


class LocalConnection(Strict):
    """A folder of this machine, relative to the project file's folder."""

    type: Literal["local"] = "local"
    base_path: Text = Field(
        default="./data", description="Folder, relative to the project file's; `~` is the home folder."
    )


class AccountKeyAuth(Strict):
    """The storage account's key."""

    mode: Literal["account_key"] = "account_key"
    account_key: Secret = Field(description="Key of the storage account; write `${VARIABLE}`.")


class SasAuth(Strict):
    """A shared access signature."""

    mode: Literal["sas"]
    sas_token: Secret = Field(description="Shared access signature; write `${VARIABLE}`.")


AzureAuth = Annotated[AccountKeyAuth | SasAuth, Field(discriminator="mode")]


class AzureBlobConnection(Strict):
    """A container of Azure Blob Storage or Data Lake Storage Gen2."""

    type: Literal["azure_blob"]
    account_name: Text = Field(description="Storage account.")
    container: Text = Field(description="Container.")
    base_path: str = Field(default="", description="Folder in the container that paths are relative to.")
    endpoint: Text | None = Field(default=None, description="Address of an emulator (Azurite) or of a private cloud.")
    auth: AzureAuth = Field(description="How to sign requests.")


class S3Connection(Strict):
    """A bucket of Amazon S3 or of a server that speaks its protocol. Without keys, the environment's are used."""

    type: Literal["s3"]
    bucket: Text = Field(description="Bucket.")
    base_path: str = Field(default="", description="Prefix in the bucket that paths are relative to.")
    region: Text | None = Field(default=None, description="Region, as in `eu-central-1`.")
    endpoint: Text | None = Field(default=None, description="Address of a server that is not Amazon's.")
    access_key_id: Secret | None = Field(default=None, description="Access key; write `${VARIABLE}`.")
    secret_access_key: Secret | None = Field(default=None, description="Secret key; write `${VARIABLE}`.")
    session_token: Secret | None = Field(default=None, description="Token of a temporary session.")


class GcsConnection(Strict):
    """A bucket of Google Cloud Storage. Without a key, the environment's credentials are used."""

    type: Literal["gcs"]
    bucket: Text = Field(description="Bucket.")
    base_path: str = Field(default="", description="Prefix in the bucket that paths are relative to.")
    endpoint: Text | None = Field(default=None, description="Address of an emulator.")
    service_account_key: Secret | None = Field(
        default=None, description="The service account's key, the whole JSON text; write `${VARIABLE}`."
    )


Connection = Annotated[
    LocalConnection | AzureBlobConnection | S3Connection | GcsConnection, Field(discriminator="type")
]
