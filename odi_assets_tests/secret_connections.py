"""Connections of all kinds of stores whose secrets are one easily found text, as options of Spark's readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import resolve

SECRET = "hunter2secret"
STORES: dict[str, dict[str, Any]] = {
    "s3": {"type": "s3", "bucket": "b", "access_key_id": f"a{SECRET}", "secret_access_key": SECRET},
    "s3 with a token": {
        **{"type": "s3", "bucket": "c", "access_key_id": f"a{SECRET}"},
        **{"secret_access_key": SECRET, "session_token": SECRET},
    },
    "azure key": {
        **{"type": "azure_blob", "account_name": "me", "container": "lake"},
        "auth": {"mode": "account_key", "account_key": SECRET},
    },
    "azure sas": {
        **{"type": "azure_blob", "account_name": "you", "container": "lake"},
        "auth": {"mode": "sas", "sas_token": f"sv=1&sig={SECRET}"},
    },
    "gcs": {
        **{"type": "gcs", "bucket": "g"},
        "service_account_key": json.dumps(
            {"client_email": "me@project", "private_key_id": SECRET, "private_key": f"-----BEGIN\n{SECRET}\n-----"}
        ),
    },
}


def reader_options() -> dict[str, dict[str, str]]:
    """By kind of store, the options that a read of it gets from us."""
    connections = {kind: TypeAdapter(Connection).validate_python(values) for kind, values in STORES.items()}
    return {kind: resolve(connection, "t", Path()).reader_options for kind, connection in connections.items()}
