"""deltalake sends its requests where our options say, signed with what they hold.

It ignores options that it does not know, so only its requests show that the names are right.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import Location, resolve

CONNECTION: TypeAdapter[Connection] = TypeAdapter(Connection)


class Store:
    """A server that has nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.asked.append((self.path, self.headers.get("Authorization") or ""))
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def look_for_a_table(self, location: Location) -> tuple[str, str]:
        """Return the first request, and how it was signed, of opening a table that is not there."""
        with pytest.raises((TableNotFoundError, OSError)):
            DeltaTable(location.uri, storage_options={**location.storage_options, "max_retries": "0", "timeout": "5s"})
        return self.asked[0]


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store()
    yield found
    found.server.shutdown()
    found.server.server_close()


def at(**connection: object) -> Location:
    return resolve(CONNECTION.validate_python(connection), "flights", Path())


def test_azure_is_asked_at_the_endpoint_with_the_accounts_key(store: Store) -> None:
    key = base64.b64encode(b"hunter2").decode()
    path, signed = store.look_for_a_table(
        at(
            type="azure_blob", account_name="acc", container="cont", base_path="lake", endpoint=f"{store.address}/acc",
            auth={"mode": "account_key", "account_key": key},
        )
    )  # fmt: skip
    assert path.startswith("/acc/cont")
    assert "lake" in path
    assert signed.startswith("SharedKey acc:")


def test_azure_is_asked_with_the_shared_access_signature(store: Store) -> None:
    path, signed = store.look_for_a_table(
        at(
            type="azure_blob", account_name="acc", container="cont", endpoint=f"{store.address}/acc",
            auth={"mode": "sas", "sas_token": "?sv=2021&sig=abc"},
        )
    )  # fmt: skip
    assert "sig=abc" in path
    assert signed == ""


def test_google_is_asked_at_the_endpoint_with_the_service_accounts_key(store: Store) -> None:
    key = {"client_email": "me", "private_key": "none", "private_key_id": "none", "disable_oauth": True}
    path, _ = store.look_for_a_table(
        at(type="gcs", bucket="buck", endpoint=store.address, service_account_key=json.dumps(key))
    )
    assert "buck" in path
    assert "flights" in path
