"""Protocol checks: which tables may be read by file list and written by add actions; the rest is refused by name.

And the features that a schema needs before a commit may have it.
"""

from __future__ import annotations

import json

from deltalake import TableFeatures

from odi_assets.delta.errors import NODE, UnsupportedFeatureError
from odi_assets.delta.table import TableHandle

# Features that change what the rows of a file are; a file list would give wrong rows or wrong names.
_READ_BREAKERS = {
    "columnMapping": "column mapping",
    "deletionVectors": "deletion vectors",
    "typeWidening": "type widening",
    "typeWidening-preview": "type widening",
    "variantType": "variant columns",
    "variantType-preview": "variant columns",
}
# Features whose rules a writer of plain add actions would not keep.
_WRITE_BREAKERS = {
    **_READ_BREAKERS,
    "checkConstraints": "CHECK constraints",
    "generatedColumns": "generated columns",
    "identityColumns": "identity columns",
    "rowTracking": "row tracking",
    "changeDataFeed": "a change data feed",
    "clustering": "liquid clustering",
    "icebergCompatV1": "Iceberg compatibility",
    "icebergCompatV2": "Iceberg compatibility",
    "catalogOwned": "catalog-managed commits",
    "inCommitTimestamp": "in-commit timestamps",
}
_BY_PROPERTY = {
    "delta.columnMapping.mode": ("columnMapping", {"name", "id"}),
    "delta.enableDeletionVectors": ("deletionVectors", {"true"}),
    "delta.enableChangeDataFeed": ("changeDataFeed", {"true"}),
    "delta.enableRowTracking": ("rowTracking", {"true"}),
}


def require_readable(handle: TableHandle) -> None:
    """Raises UnsupportedFeatureError if a list of the table's files would not give its rows."""
    _refuse(handle, _READ_BREAKERS, "read")


def require_writable(handle: TableHandle) -> None:
    """Raises UnsupportedFeatureError if rows added as files would break a rule the table keeps."""
    _refuse(handle, _WRITE_BREAKERS, "written")


def with_features(handle: TableHandle, schema_json: str) -> TableHandle:
    """``handle``, or the table opened anew after it got the features that ``schema_json`` needs.

    deltalake 1.6 commits a TIMESTAMP_NTZ column to a table without that feature, and cannot open the table afterwards.
    A feature is a commit of its own that changes no row; it is there for good.
    """
    if not _has_type(json.loads(schema_json), "timestamp_ntz"):
        return handle
    protocol = handle.table.protocol()
    if "timestampNtz" in (protocol.writer_features or ()):
        return handle
    with handle.calls("adding a table feature"):
        handle.table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    return handle.refreshed()


def _has_type(kind: object, wanted: str) -> bool:
    if isinstance(kind, dict):
        return any(_has_type(value, wanted) for key, value in kind.items() if key not in {"name", "metadata"})
    return any(_has_type(item, wanted) for item in kind) if isinstance(kind, list) else kind == wanted


def _refuse(handle: TableHandle, breakers: dict[str, str], verb: str) -> None:
    found = sorted({breakers[feature] for feature in _features(handle) if feature in breakers})
    if found:
        raise UnsupportedFeatureError(
            f"the Delta table at {handle.location.uri} uses {' and '.join(found)}, "
            f"and cannot be {verb} by the embedded engine",
            fix=NODE.without_feature,
            uri=handle.location.uri,
            features=tuple(found),
        )


def _features(handle: TableHandle) -> set[str]:
    protocol = handle.table.protocol()
    properties = handle.table.metadata().configuration
    features = {
        feature for name, (feature, values) in _BY_PROPERTY.items() if (properties.get(name) or "").lower() in values
    }
    if any(name.startswith("delta.constraints.") for name in properties):
        features.add("checkConstraints")
    if "delta.generationExpression" in handle.schema_json:
        features.add("generatedColumns")
    # From reader 3 / writer 7 on, features are listed one by one; a listed feature may be in use in any file,
    # but one that only a property turns on is judged by the property above.
    switched = {feature for feature, _ in _BY_PROPERTY.values()} - {"columnMapping"}
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if "deletionVectors" in listed and _has_deletion_vectors(handle):
        features.add("deletionVectors")
    return features | (listed - switched - {"columnMapping"} if listed else set())


def _has_deletion_vectors(handle: TableHandle) -> bool:
    # Turning the property off stops new vectors; files that have one keep it.
    return any(batch.num_rows > 0 for batch in handle.table.deletion_vectors())
