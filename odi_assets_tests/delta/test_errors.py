"""Answers of object stores that the servers of the tests do not give, in the words of deltalake's errors."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import STATE, StoreAccessError, UnsupportedFeatureError, translated
from odi_assets.delta.table import TableHandle
from odi_assets.errors import Transient

ASKED = "Kernel error -> Generic S3 error\n   \x1b[31m↳\x1b[0m Error performing GET http://host/b/x in 1ms"
STATUS = f"{ASKED} - Server returned non-2xx status code\n  \x1b[31m↳\x1b[0m "
NO_ANSWER = f"{ASKED}, after 3 retries, max_retries\n  \x1b[31m↳\x1b[0m 3, retry_timeout"


@pytest.mark.parametrize(
    ("text", "passes", "fix"),
    [
        (f"{STATUS}503 Service Unavailable\n ↳ <Error><Code>SlowDown</Code></Error>", True, "or try again"),
        (f"{STATUS}429 Too Many Requests", True, "or try again"),
        (NO_ANSWER, True, "check the network and the endpoint"),
        ("Generic S3 error: HTTP error: request or response body error", True, "or try again"),
        (f"{STATUS}301 Moved Permanently", False, "its region"),
        (f"{STATUS}400 Bad Request\n ↳ <Error><Code>ExpiredToken</Code></Error>", False, "has expired"),
        (f"{STATUS}401 Unauthorized", False, "repair the key"),
        ("Operation not supported\n ↳ an error occurred while loading credentials", False, "there is none"),
        (f"{ASKED} - HTTP error\n ↳ builder error\n ↳ URL scheme is not allowed", False, "nothing could be asked"),
        ("Generic MicrosoftAzure error\n ↳ Invalid Access Key", False, "nothing could be asked"),
    ],
)
def test_an_answer_says_whether_waiting_helps_and_what_to_mend(text: str, passes: bool, fix: str) -> None:
    error = translated(OSError(text), "opening a system table", Location("s3://b/x", connection="cloud"), STATE)
    assert isinstance(error, Transient) is passes
    assert isinstance(error, StoreAccessError) is not passes
    assert fix in str(error.fix)
    assert "`cloud`" in str(error.fix)
    assert "\n" not in error.message
    assert "\x1b" not in error.message
    assert "<" not in error.message


def test_without_a_connections_name_the_storage_options_are_to_be_mended() -> None:
    error = translated(OSError(f"{STATUS}403 Forbidden"), "opening a system table", Location("s3://b/x"), STATE)
    assert "of the storage options" in str(error.fix)
    assert error.connection is None


def test_a_feature_of_readers_that_is_not_known_is_named_with_the_way_on(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    (commit,) = (tmp_path / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    features = {"readerFeatures": ["fancyFeature"], "writerFeatures": ["fancyFeature"]}
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
    with pytest.raises(UnsupportedFeatureError, match="fancyFeature") as raised:
        TableHandle.open(Location(str(tmp_path)))
    assert raised.value.features == ("fancyFeature",)
    assert "use Spark's own Delta connector for this table" in str(raised.value.fix)
