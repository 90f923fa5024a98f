"""Where the paths of connections are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import Location, resolve
from odi_assets.errors import ConfigError

CONNECTION: TypeAdapter[Connection] = TypeAdapter(Connection)
ROOT = Path("/projects/demo")

LOCAL = {"type": "local", "base_path": "data"}
AZURE = {
    "type": "azure_blob", "account_name": "acc", "container": "cont",
    "auth": {"mode": "account_key", "account_key": "hunter2"},
}  # fmt: skip
S3 = {"type": "s3", "bucket": "buck", "access_key_id": "hunter1", "secret_access_key": "hunter2"}
GCS = {"type": "gcs", "bucket": "buck", "service_account_key": '{"private_key": "hunter2"}'}


def at(connection: dict[str, Any], path: str) -> Location:
    return resolve(CONNECTION.validate_python(connection), path, ROOT)


@pytest.mark.parametrize(
    ("connection", "path", "uri"),
    [
        (LOCAL, "raw", "/projects/demo/data/raw"),
        (LOCAL, "flights/*.csv", "/projects/demo/data/flights/*.csv"),
        (LOCAL, "./a//b/../c/", "/projects/demo/data/a/c"),
        (LOCAL, "", "/projects/demo/data"),
        (LOCAL, ".", "/projects/demo/data"),
        (LOCAL, "/projects/demo/data/raw", "/projects/demo/data/raw"),
        ({"type": "local"}, "raw", "/projects/demo/data/raw"),
        ({"type": "local", "base_path": "."}, "raw", "/projects/demo/raw"),
        ({"type": "local", "base_path": "../shared"}, "raw", "/projects/shared/raw"),
        ({"type": "local", "base_path": "/lake"}, "raw", "/lake/raw"),
        ({"type": "local", "base_path": "/"}, "raw", "/raw"),
        (AZURE, "raw", "abfss://cont@acc.dfs.core.windows.net/raw"),
        (AZURE, "", "abfss://cont@acc.dfs.core.windows.net"),
        ({**AZURE, "base_path": "/lake/"}, "/raw/", "abfss://cont@acc.dfs.core.windows.net/lake/raw"),
        (S3, "raw", "s3://buck/raw"),
        ({**S3, "base_path": "lake/bronze"}, "raw/x", "s3://buck/lake/bronze/raw/x"),
        (GCS, "raw", "gs://buck/raw"),
    ],
)
def test_a_path_starts_at_its_connections_base(connection: dict[str, Any], path: str, uri: str) -> None:
    found = at(connection, path)
    assert found.uri == str(found) == uri
    assert found.is_local == (connection["type"] == "local")


def test_the_home_folder_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert at({"type": "local", "base_path": "~/lake"}, "raw").uri == "/home/me/lake/raw"


def test_the_root_may_be_relative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(CONNECTION.validate_python(LOCAL), "raw", Path()).uri == str(tmp_path / "data" / "raw")


@pytest.mark.parametrize("connection", [LOCAL, AZURE, {**AZURE, "base_path": "lake"}, S3, {**GCS, "base_path": "a/b"}])
@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "./.././x", "a/b/../../../x"])
def test_no_path_leads_out_of_its_base(connection: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match="leads out of") as caught:
        at(connection, path)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("path", ["/etc/passwd", "/projects/demo/data2/x", "/projects/demo"])
def test_an_absolute_path_must_be_inside_too(path: str) -> None:
    with pytest.raises(ConfigError, match="leads out of /projects/demo/data"):
        at(LOCAL, path)


@pytest.mark.parametrize("path", ["s3://other/x?sig=hunter2", "https://user:hunter2@host/x", "abfss://c@a/x"])
def test_a_uri_is_no_path(path: str) -> None:
    with pytest.raises(ConfigError, match="is a URI") as caught:
        at(LOCAL, path)
    assert "hunter2" not in str(caught.value)


def test_a_uri_is_no_base_of_a_local_connection() -> None:
    with pytest.raises(ConfigError, match="is a URI"):
        at({"type": "local", "base_path": "s3://bucket/x"}, "raw")


@given(st.lists(st.sampled_from(["..", ".", "a", "b*", "", "c d"]), max_size=8).map("/".join))
def test_whatever_the_path_the_location_is_inside_or_refused(path: str) -> None:
    for connection, base in ((LOCAL, "/projects/demo/data"), (S3, "s3://buck")):
        try:
            uri = at(connection, path).uri
        except ConfigError:
            continue
        assert uri == base or uri.startswith(f"{base}/")
        assert ".." not in uri


def test_a_child_keeps_what_opens_its_parent() -> None:
    table = at(AZURE, "raw")
    log = table.child("_delta_log")
    assert log.uri == "abfss://cont@acc.dfs.core.windows.net/raw/_delta_log"
    assert log.storage_options == table.storage_options
    assert log.spark_options == table.spark_options
    assert table.child("") == table
    with pytest.raises(ConfigError, match="leads out of"):
        table.child("../other")


def test_a_local_location_has_a_path_and_a_remote_one_has_none() -> None:
    assert at(LOCAL, "raw").local_path == Path("/projects/demo/data/raw")
    assert at(LOCAL, "raw").storage_options == {}
    with pytest.raises(ConfigError, match="is not on this machine"):
        _ = at(S3, "raw").local_path


@pytest.mark.parametrize("connection", [AZURE, S3, GCS])
def test_secrets_are_in_no_text_of_a_location(connection: dict[str, Any]) -> None:
    found = at(connection, "raw")
    assert "hunter" in str(found.storage_options)
    for shown in (repr(found), str(found), f"{found}", repr([found])):
        assert "hunter" not in shown


def test_locations_travel_between_processes_and_serve_as_keys() -> None:
    found = at(AZURE, "raw")
    assert pickle.loads(pickle.dumps(found)) == found
    assert {found: 1}[at(AZURE, "raw")] == 1
