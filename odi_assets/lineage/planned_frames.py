"""What nodes give, as Spark plans it over empty rows with the columns that their inputs have. Nothing is read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ReadConfig
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.lineage.made import NotFollowed, Rows
from odi_assets.lineage.plan_rows import frame_rows, marked
from odi_assets.nodes.execution.transform import transformed
from odi_assets.sources.marks import READ
from odi_assets.spark.ddl import struct_of
from odi_assets.spark.own_session import own_session
from odi_assets.spark.raised import without_stacks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.lineage.project_lineage import ProjectLineage


class PlannedFrames:
    """Plans nodes.

    Args:
        spark: a session of this process: Spark Connect gives no plans.
    """

    def __init__(self, lineage: ProjectLineage, spark: SparkSession) -> None:
        self._lineage = lineage
        self._spark = spark
        self._frames: dict[NodeKey, DataFrame] = {}

    def rows(self, key: NodeKey) -> Rows:
        """What the transform of a node gives.

        Raises:
            NotFollowed: the plan does not say it, or there is none: types of an input are not known, or the node's
                function does not take empty rows.
        """
        return frame_rows(self._frame(key), {})

    def _frame(self, key: NodeKey) -> DataFrame:
        if key in self._frames:
            return self._frames[key]
        project = self._lineage.project
        node, owners = project.graph.node(key), self._lineage.owners(key)
        reads = {at[1] if len(at) > 1 else READ: read for at, read in node.reads.items()}
        schemas = {view: self._schema(owners[view], view, reads.get(view)) for view in [*reads, *node.inputs]}
        try:
            with own_session(self._spark):
                frames = {
                    view: marked(self._spark.createDataFrame([], schema), view) for view, schema in schemas.items()
                }
                frame = transformed(self._spark, node, project.root, frames, str(key))
        except OdiError as error:
            # Spark's own message may begin with a line break.
            text = re.sub(r":\s*\n\s*", ": ", without_stacks(error.message)).strip().splitlines()[0]
            is_sql = node.transform is not None and node.transform.function is None
            raise NotFollowed(
                f"it cannot be planned over empty rows: {text}", fix="correct the SQL" if is_sql else ""
            ) from error
        self._frames[key] = frame
        return frame

    def _schema(self, owner: NodeKey | str, view: str, read: ReadConfig | None) -> StructType:
        project = self._lineage.project
        if isinstance(owner, NodeKey) and not self._lineage.is_of_quarantine(owner, read):
            table = self._lineage.table(owner)
            return _schema_of(table) if table.exists else self._frame_schema(owner)
        if read is not None and (named := read.all_columns) is not None:
            return struct_of(", ".join(f"`{name}` {kind}" for name, kind in named.items()))
        if read is not None and read.READS == "table":
            table = TableHandle.open(project.location(read.connection, read.stored_at))
            if table.exists:
                return _schema_of(table)
        raise NotFollowed(f"the types of the columns of `{view}` are not known before its first run")

    def _frame_schema(self, key: NodeKey) -> StructType:
        if self._lineage.project.graph.node(key).apply is not None:
            raise NotFollowed(f"the table of {key} is not there yet")
        schema: StructType = self._frame(key).schema
        return schema


def _schema_of(table: TableHandle) -> StructType:
    return StructType.fromJson(json.loads(table.schema_json))
