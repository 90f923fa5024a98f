"""Tables that are not read rightly because of a feature of Delta: the plan says so, and no run has to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: copy
    read: {connection: lake, format: delta, path: source, incremental: INCREMENT}
    write: {connection: lake, path: copy, mode: append}
"""
INCREMENTS = ["version", "{mode: stateful, column: id}"]


FEATURES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "deletionVectors": ("deletion vectors", {"delta.enableDeletionVectors": "true"}),
    "typeWidening": ("type widening", {}),
    "variantType": ("variant columns", {}),
}
"""By feature, how it is shown, and the properties of a table that is known to use it."""


def upgraded(table: Path, feature: str) -> None:
    """The table gets a feature, as another tool commits it."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    actions: list[dict[str, Any]] = [
        {"protocol": {**versions, "readerFeatures": [feature], "writerFeatures": [feature]}},
        {"metaData": {**metadata, "configuration": FEATURES[feature][1]}},
    ]
    log = table / "_delta_log" / f"{len(logs):020d}.json"
    log.write_text("\n".join(map(json.dumps, actions)) + "\n", encoding="utf-8")


@pytest.mark.parametrize("increment", INCREMENTS)
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("is_read", [False, True], ids=["at first", "later"])
def test_a_plan_names_the_feature(
    tmp_path: Path, spark: SparkSession, feature: str, increment: str, is_read: bool
) -> None:
    box = Sandbox(tmp_path, spark, NODE.replace("INCREMENT", increment))
    table = tmp_path / "lake" / "source"
    write_deltalake(str(table), pa.table({"id": [1]}), mode="append")
    if is_read:
        box.run("copy")
    upgraded(table, feature)
    with pytest.raises(UnsupportedFeatureError, match=f"uses {FEATURES[feature][0]}, and cannot be read"):
        box.plan("copy")
