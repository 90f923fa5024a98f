"""Which credentials the file system has that Hadoop keeps for a bucket: those that came first, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import Location, cached, resolve

AZURE = {"type": "azure_blob", "account_name": "me", "container": "c"}


@pytest.fixture(autouse=True)
def new_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no connection had been used yet."""
    monkeypatch.setattr(cached, "_holders", {})


def s3(secret: str, **more: str) -> Location:
    return _at({"type": "s3", "bucket": "b", "access_key_id": "a", "secret_access_key": secret, **more})


def azure(key: str) -> Location:
    return _at({**AZURE, "auth": {"mode": "account_key", "account_key": key}})


def _at(values: dict[str, Any]) -> Location:
    return resolve(TypeAdapter(Connection).validate_python(values), "t", Path())


def test_the_first_connection_to_a_bucket_goes_by_its_own_name() -> None:
    first = s3("one")
    assert first.for_spark == first
    assert "fs.s3.impl.disable.cache" not in first.reader_options
    assert s3("one").child("x").for_spark.uri == "s3://b/t/x"


def test_another_one_has_a_scheme_of_its_own_for_which_there_is_a_file_system() -> None:
    s3("one").for_spark  # noqa: B018
    other = s3("two").for_spark
    scheme = other.uri.partition("://")[0]
    assert other.uri == f"{scheme}://b/t"
    assert other.reader_options[f"fs.{scheme}.impl"].endswith("S3AFileSystem")
    assert other.reader_options["fs.s3a.bucket.b.secret.key"] == "two"
    assert not any(name.endswith("disable.cache") for name in other.reader_options)
    assert s3("two").for_spark.uri == other.uri
    assert s3("one").for_spark.uri == "s3://b/t"


def test_a_renewed_token_is_another_connection() -> None:
    schemes = {s3("one", session_token=token).for_spark.uri.partition("://")[0] for token in ("a", "b", "c")}
    assert len(schemes) == 3
    assert not any(token in scheme for scheme in schemes for token in ("one", "session"))


def test_where_a_path_has_to_keep_its_name_hadoop_makes_a_new_file_system() -> None:
    s3("one").reader_options  # noqa: B018
    assert s3("two").reader_options["fs.s3.impl.disable.cache"] == "true"
    azure("one").reader_options  # noqa: B018
    assert azure("two").for_spark == azure("two")
    assert azure("two").reader_options["fs.abfss.impl.disable.cache"] == "true"
    assert "fs.abfss.impl.disable.cache" not in azure("one").reader_options


def test_in_a_jvm_that_others_use_nobody_takes_what_is_kept() -> None:
    cached.share_jvm()
    found = s3("one").for_spark
    assert found.uri.startswith("s3-")
    assert not any(name.endswith("disable.cache") for name in found.reader_options)


def test_local_paths_are_not_concerned(tmp_path: Path) -> None:
    cached.share_jvm()
    place = Location(str(tmp_path))
    assert place.for_spark == place
    assert place.reader_options == {}
