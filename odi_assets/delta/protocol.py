"""Which tables the embedded engine may read by file list and write by add actions: it refuses the rest by name."""

from __future__ import annotations

from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError

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
    """Raises TableError if a list of the table's files would not give its rows."""
    _refuse(handle, _READ_BREAKERS, "read")


def require_writable(handle: TableHandle) -> None:
    """Raises TableError if rows added as files would break a rule the table keeps."""
    if handle.exists:
        _refuse(handle, _WRITE_BREAKERS, "written")


def _refuse(handle: TableHandle, breakers: dict[str, str], verb: str) -> None:
    found = sorted({breakers[feature] for feature in _features(handle) if feature in breakers})
    if found:
        raise TableError(
            f"the Delta table at {handle.location.uri} uses {' and '.join(found)}, "
            f"and cannot be {verb} by the embedded engine",
            fix="use Spark's own Delta connector for this table, or copy it into a table without that feature",
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
