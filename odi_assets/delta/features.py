"""Table features that a schema needs before a commit may carry it."""

from __future__ import annotations

import json

from deltalake import TableFeatures

from odi_assets.delta.table import TableHandle


def with_features(handle: TableHandle, schema_json: str) -> TableHandle:
    """``handle``, or the table opened anew after it got the features that ``schema_json`` needs.

    deltalake 1.6 commits a TIMESTAMP_NTZ column to a table without that feature, and cannot open the table afterwards.
    A feature is a commit of its own that changes no row; it is there for good.
    """
    if not handle.exists or not _has_type(json.loads(schema_json), "timestamp_ntz"):
        return handle
    protocol = handle.table.protocol()
    if "timestampNtz" in (protocol.writer_features or ()):
        return handle
    handle.table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    return handle.refreshed()


def _has_type(kind: object, wanted: str) -> bool:
    if isinstance(kind, dict):
        return any(_has_type(value, wanted) for key, value in kind.items() if key not in {"name", "metadata"})
    return any(_has_type(item, wanted) for item in kind) if isinstance(kind, list) else kind == wanted
