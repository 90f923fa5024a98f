"""What opens remote stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dagster_deltalake.config import AzureConfig, GcsConfig, S3Config
from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import Location, resolve
from odi_assets.errors import ConfigError

CONNECTION: TypeAdapter[Connection] = TypeAdapter(Connection)
KEY = '{"client_email": "me@project", "private_key_id": "1", "private_key": "secret"}'


def at(**connection: Any) -> Location:
    return resolve(CONNECTION.validate_python(connection), "table", Path("/projects/demo"))


def azure(auth: dict[str, str], **more: str) -> Location:
    return at(type="azure_blob", account_name="acc", container="cont", auth=auth, **more)


def without(options: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in names}


def test_azure_options_are_those_of_dagster_deltalake() -> None:
    ours = azure({"mode": "account_key", "account_key": "k=="}).storage_options
    theirs = AzureConfig(account_name="acc", account_key="k==", container_name="cont").str_dict()
    assert ours == without(theirs, "provider")
    ours = azure({"mode": "sas", "sas_token": "?sv=1&sig=2"}).storage_options
    theirs = AzureConfig(account_name="acc", sas_key="sv=1&sig=2", container_name="cont").str_dict()
    assert ours == without(theirs, "provider")


def test_s3_options_are_those_of_dagster_deltalake() -> None:
    ours = at(
        type="s3", bucket="b", region="eu-central-1", endpoint="https://minio:9000", access_key_id="a",
        secret_access_key="s", session_token="t",
    ).storage_options  # fmt: skip
    theirs = S3Config(
        bucket="b", region="eu-central-1", endpoint="https://minio:9000", access_key_id="a", secret_access_key="s",
        token="t",
    ).str_dict()  # fmt: skip
    assert ours == without(theirs, "provider", "imdsv1_fallback")


def test_gcs_options_are_those_of_dagster_deltalake() -> None:
    ours = at(type="gcs", bucket="b", service_account_key=KEY).storage_options
    assert ours == without(GcsConfig(bucket="b", service_account_key=KEY).str_dict(), "provider")


def test_without_keys_the_environment_is_left_to_answer() -> None:
    assert at(type="s3", bucket="b").storage_options == {"bucket": "b"}
    assert at(type="gcs", bucket="b").storage_options == {"bucket": "b"}
    assert at(type="s3", bucket="b").fsspec_options == {}


@pytest.mark.parametrize(("endpoint", "plain"), [("http://127.0.0.1:10000/acc", True), ("https://host", False)])
def test_an_endpoint_allows_plain_http_only_where_it_says_so(endpoint: str, plain: bool) -> None:
    for location, name in (
        (azure({"mode": "account_key", "account_key": "k"}, endpoint=endpoint), "endpoint"),
        (at(type="s3", bucket="b", endpoint=endpoint), "endpoint"),
        (at(type="gcs", bucket="b", endpoint=endpoint), "google_base_url"),
    ):
        assert location.storage_options[name] == endpoint
        assert location.storage_options.get("allow_http") == ("true" if plain else None)


def test_spark_gets_azures_key_for_the_account() -> None:
    host = "acc.dfs.core.windows.net"
    assert azure({"mode": "account_key", "account_key": "k"}).spark_options == {
        f"spark.hadoop.fs.azure.account.auth.type.{host}": "SharedKey",
        f"spark.hadoop.fs.azure.account.key.{host}": "k",
    }
    assert azure({"mode": "sas", "sas_token": "t"}).spark_options == {
        f"spark.hadoop.fs.azure.account.auth.type.{host}": "SAS",
        f"spark.hadoop.fs.azure.sas.fixed.token.{host}": "t",
    }


def test_spark_gets_s3_keys_for_the_bucket_so_that_two_connections_do_not_mix() -> None:
    found = at(type="s3", bucket="b", access_key_id="a", secret_access_key="s", endpoint="http://h", region="r")
    assert found.spark_options == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.bucket.b.access.key": "a",
        "spark.hadoop.fs.s3a.bucket.b.secret.key": "s",
        "spark.hadoop.fs.s3a.bucket.b.endpoint": "http://h",
        "spark.hadoop.fs.s3a.bucket.b.endpoint.region": "r",
        "spark.hadoop.fs.s3a.bucket.b.path.style.access": "true",
        "spark.hadoop.fs.s3a.bucket.b.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        ),
    }
    with_token = at(type="s3", bucket="b", access_key_id="a", secret_access_key="s", session_token="t").spark_options
    assert with_token["spark.hadoop.fs.s3a.bucket.b.session.token"] == "t"
    assert "Temporary" in with_token["spark.hadoop.fs.s3a.bucket.b.aws.credentials.provider"]


def test_spark_and_fsspec_get_the_parts_of_googles_key() -> None:
    found = at(type="gcs", bucket="b", service_account_key=KEY)
    assert found.spark_options["spark.hadoop.fs.gs.auth.service.account.email"] == "me@project"
    assert found.spark_options["spark.hadoop.fs.gs.auth.service.account.private.key"] == "secret"
    assert found.fsspec_options["token"] == json.loads(KEY)


@pytest.mark.parametrize("key", ["path/to/key.json", "[]", '"text"'])
def test_a_google_key_that_is_no_json_object_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="is not JSON") as caught:
        at(type="gcs", bucket="b", service_account_key=key)
    assert key not in str(caught.value)


def test_fsspec_gets_the_names_of_its_file_systems() -> None:
    assert azure({"mode": "sas", "sas_token": "?t"}).fsspec_options == {"account_name": "acc", "sas_token": "t"}
    assert at(
        type="s3", bucket="b", access_key_id="a", secret_access_key="s", session_token="t", endpoint="http://h",
        region="r",
    ).fsspec_options == {
        "key": "a", "secret": "s", "token": "t", "endpoint_url": "http://h", "client_kwargs": {"region_name": "r"},
    }  # fmt: skip
