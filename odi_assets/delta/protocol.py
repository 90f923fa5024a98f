"""Protocol checks: which tables a table engine may read and write; the rest is refused by name.

And the features that a schema needs before a commit may have it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from deltalake import TableFeatures

from odi_assets.delta.errors import NODE, UnsupportedFeatureError
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError

_SHOWN = {
    "columnMapping": "column mapping",
    "deletionVectors": "deletion vectors",
    "typeWidening": "type widening",
    "typeWidening-preview": "type widening",
    "variantType": "variant columns",
    "variantType-preview": "variant columns",
    "generatedColumns": "generated columns",
    "identityColumns": "identity columns",
    "allowColumnDefaults": "column defaults",
    "rowTracking": "row tracking",
    "changeDataFeed": "a change data feed",
    "clustering": "liquid clustering",
    "icebergCompatV1": "Iceberg compatibility",
    "icebergCompatV2": "Iceberg compatibility",
    "catalogOwned": "catalog-managed commits",
    "inCommitTimestamp": "in-commit timestamps",
}
"""Features as messages call them."""


@dataclass(frozen=True)
class TakenFeatures:
    """Which features of Delta a table engine takes, by the names that Delta lists them under.

    Attributes:
        engine: whose they are, for messages.
        unread: a table that uses one of them is not read.
        written: a table that lists any other is not written. Whether constraints are kept that an old table does not
            list (before writer version 7) is up to the engine.
    """

    engine: str
    unread: frozenset[str]
    written: frozenset[str]


BY_FILES = TakenFeatures(
    "embedded",
    unread=frozenset(
        {
            "columnMapping",
            "deletionVectors",
            "typeWidening",
            "typeWidening-preview",
            "variantType",
            "variantType-preview",
        }
    ),
    written=frozenset({"appendOnly", "invariants", "checkConstraints", "timestampNtz", "v2Checkpoint"}),
)
"""What a list of files serves and deltalake 1.6 commits to. The features that are not read change what the rows of a
file are: a list of files would give wrong rows or wrong names. ``tables.rules`` keeps the rules among the written."""

_LAST_WITHOUT_LIST = 6
"""The last writer version that lists no features. It has identity columns, for which deltalake commits nothing."""

APPEND_ONLY = "delta.appendOnly"

_BY_PROPERTY = {
    "delta.columnMapping.mode": ("columnMapping", {"name", "id"}),
    "delta.enableDeletionVectors": ("deletionVectors", {"true"}),
    "delta.enableChangeDataFeed": ("changeDataFeed", {"true"}),
}


def require_readable(handle: TableHandle, taken: TakenFeatures = BY_FILES) -> None:
    """Raises UnsupportedFeatureError if an engine that takes these features would not read the table's rows."""
    _refuse(handle, taken, _features(handle) & taken.unread, "read")


def require_writable(handle: TableHandle, taken: TakenFeatures = BY_FILES) -> None:
    """Raises UnsupportedFeatureError if an engine that takes these features would break a rule the table keeps."""
    _refuse(handle, taken, _features(handle) - taken.written, "written")


def require_removable(handle: TableHandle, what: str) -> None:
    """Raises TableError if rows may only be added to the table, and ``what`` would remove some."""
    if (handle.table.metadata().configuration.get(APPEND_ONLY) or "").lower() == "true":
        raise TableError(
            f"the table at {handle.location.uri} is append-only ({APPEND_ONLY}), and {what} removes rows from it; "
            "nothing was written",
            fix="write to it with `append` or `append_once`; or, if its rows may go, take the property off: "
            f"ALTER TABLE … SET TBLPROPERTIES ('{APPEND_ONLY}' = 'false')",
            uri=handle.location.uri,
        )


def with_features(handle: TableHandle, schema_json: str) -> TableHandle:
    """``handle``, or the table opened again after it got the features that ``schema_json`` needs.

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


def _refuse(handle: TableHandle, taken: TakenFeatures, features: set[str], verb: str) -> None:
    if features:
        names = tuple(sorted({_SHOWN.get(feature, feature) for feature in features}))
        raise UnsupportedFeatureError(
            f"the Delta table at {handle.location.uri} uses {' and '.join(names)}, "
            f"and cannot be {verb} by the {taken.engine} engine",
            fix=NODE.without_feature,
            uri=handle.location.uri,
            features=names,
        )


def _features(handle: TableHandle) -> set[str]:
    """The features that are in use, by the names that Delta lists them under."""
    protocol = handle.table.protocol()
    properties = handle.table.metadata().configuration
    features = {
        feature for name, (feature, values) in _BY_PROPERTY.items() if (properties.get(name) or "").lower() in values
    }
    if "delta.generationExpression" in handle.schema_json:
        features.add("generatedColumns")
    if protocol.min_writer_version == _LAST_WITHOUT_LIST:
        features.add("identityColumns")
    # From reader 3 / writer 7 on, features are listed one by one; a listed feature may be in use in any file,
    # but one that only a property or a column turns on is judged by that, above.
    switched = {"generatedColumns", "columnMapping", "deletionVectors", "changeDataFeed"}
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if "deletionVectors" in listed and _has_deletion_vectors(handle):
        features.add("deletionVectors")
    return features | (listed - switched)


def _has_deletion_vectors(handle: TableHandle) -> bool:
    # Turning the property off stops new vectors; files that have one keep it.
    return any(batch.num_rows > 0 for batch in handle.table.deletion_vectors())
