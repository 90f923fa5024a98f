"""Options of remote stores, for deltalake, Spark and fsspec. All of it is secret.

deltalake takes the names of Rust's ``object_store``; the tests hold them against dagster-deltalake's typed configs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from odi_assets.config.models import AccountKeyAuth, AzureBlobConnection, GcsConnection, S3Connection
from odi_assets.connections.cached import S3A
from odi_assets.errors import ConfigError

AZURE_DOMAIN = "dfs.core.windows.net"


@dataclass(frozen=True)
class Options:
    """What opens a store; kept out of ``repr``, because it is secret."""

    storage: Mapping[str, str] = field(repr=False)
    spark: Mapping[str, str] = field(repr=False)
    fsspec: Mapping[str, Any] = field(repr=False)


def options(connection: AzureBlobConnection | S3Connection | GcsConnection) -> Options:
    """Return the options of a connection's store.

    Raises:
        ConfigError: a Google service account's key is not the JSON text that it should be.
    """
    if isinstance(connection, AzureBlobConnection):
        return _azure(connection)
    return _s3(connection) if isinstance(connection, S3Connection) else _gcs(connection)


def azure_host(connection: AzureBlobConnection) -> str:
    """Return the host of an Azure account, as URIs write it."""
    return f"{connection.account_name}.{AZURE_DOMAIN}"


def _azure(connection: AzureBlobConnection) -> Options:
    """Return Azure's options. Hadoop's connector speaks to Azure only: Spark does not get an emulator's endpoint."""
    host = azure_host(connection)
    storage = {"account_name": connection.account_name, "container_name": connection.container}
    fsspec = {"account_name": connection.account_name}
    if isinstance(connection.auth, AccountKeyAuth):
        key = connection.auth.account_key.get_secret_value()
        storage["account_key"] = fsspec["account_key"] = key
        spark = {f"fs.azure.account.auth.type.{host}": "SharedKey", f"fs.azure.account.key.{host}": key}
        proof = f"AccountKey={key}"
    else:
        token = connection.auth.sas_token.get_secret_value().removeprefix("?")
        storage["sas_key"] = fsspec["sas_token"] = token
        spark = {f"fs.azure.account.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": token}
        proof = f"SharedAccessSignature={token}"
    if connection.endpoint:
        storage |= _endpoint(connection.endpoint)
        account = f"AccountName={connection.account_name}"
        fsspec = {"connection_string": f"BlobEndpoint={connection.endpoint};{account};{proof}"}
    return Options(storage, _hadoop(spark), fsspec)


def _s3(connection: S3Connection) -> Options:
    secrets = {
        "access_key_id": _plain(connection.access_key_id),
        "secret_access_key": _plain(connection.secret_access_key),
        "token": _plain(connection.session_token),
    }
    storage = _given({**secrets, "bucket": connection.bucket, "region": connection.region})
    if connection.endpoint:
        storage |= _endpoint(connection.endpoint)
    client = _given({"region_name": connection.region})
    fsspec = _given(
        {
            "key": secrets["access_key_id"],
            "secret": secrets["secret_access_key"],
            "token": secrets["token"],
            "endpoint_url": connection.endpoint,
        }
    )
    return Options(storage, _s3a(connection, secrets), {**fsspec, **({"client_kwargs": client} if client else {})})


def _s3a(connection: S3Connection, secrets: Mapping[str, str | None]) -> dict[str, str]:
    """Return Hadoop's options, named for the bucket so that connections do not mix."""
    bucket = f"fs.s3a.bucket.{connection.bucket}"
    hadoop_options = {
        "fs.s3.impl": S3A,
        f"{bucket}.access.key": secrets["access_key_id"],
        f"{bucket}.secret.key": secrets["secret_access_key"],
        f"{bucket}.session.token": secrets["token"],
        f"{bucket}.endpoint.region": connection.region,
        f"{bucket}.endpoint": connection.endpoint,
        f"{bucket}.path.style.access": "true" if connection.endpoint else None,
    }
    if secrets["access_key_id"]:
        # Named, because settings of a session may hold what another connection to the bucket needs.
        kind = "Temporary" if secrets["token"] else "Simple"
        provider = f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
        hadoop_options[f"{bucket}.aws.credentials.provider"] = provider
    return _hadoop(_given(hadoop_options))


def _gcs(connection: GcsConnection) -> Options:
    key = _plain(connection.service_account_key)
    storage = _given({"bucket": connection.bucket, "service_account_key": key})
    spark = {"fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"}
    fsspec: dict[str, Any] = {}
    if key is not None:
        account = _service_account(key)
        fsspec["token"] = account
        names = {"email": "client_email", "private.key.id": "private_key_id", "private.key": "private_key"}
        spark |= {
            f"fs.gs.auth.service.account.{ours}": str(account[its]) for ours, its in names.items() if its in account
        }
    if connection.endpoint:
        storage |= {"google_base_url": connection.endpoint, **_allow_http(connection.endpoint)}
        spark["fs.gs.storage.root.url"] = connection.endpoint
        fsspec["endpoint_url"] = connection.endpoint
    return Options(storage, _hadoop(spark), fsspec)


def _service_account(key: str) -> dict[str, Any]:
    try:
        account = json.loads(key)
    except ValueError:
        account = None
    if not isinstance(account, dict):
        raise ConfigError(
            "`service_account_key` of a gcs connection is not JSON",
            fix="set it to the whole text of the service account's key file",
        )
    return account


def _endpoint(address: str) -> dict[str, str]:
    return {"endpoint": address, **_allow_http(address)}


def _allow_http(address: str) -> dict[str, str]:
    return {"allow_http": "true"} if address.lower().startswith("http://") else {}


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _hadoop(values: Mapping[str, str]) -> dict[str, str]:
    return {f"spark.hadoop.{name}": value for name, value in values.items()}
