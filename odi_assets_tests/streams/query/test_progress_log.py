"""Reading a checkpoint's logs, here and in other stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.run import checkpoint_conf


def test_only_a_checkpoint_on_this_machine_is_written_by_another_of_sparks_file_managers(tmp_path: Path) -> None:
    # Elsewhere Spark picks the one whose renames the store makes in one step.
    key = "spark.sql.streaming.checkpointFileManagerClass"
    assert checkpoint_conf(Location(str(tmp_path)))[key].endswith(".FileSystemBasedCheckpointFileManager")
    store = Location("abfss://lake@account.dfs.core.windows.net/raw", spark_options={"fs.azure.key": "secret"})
    assert checkpoint_conf(store) == store.reader_options


def test_a_folder_of_a_checkpoint_that_cannot_be_listed_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_text("no folder", encoding="utf-8")
    log = ProgressLog(Location(str(tmp_path)))
    assert log.committed() == []
    with pytest.raises(CheckpointError, match="offsets cannot be read"):
        log.planned()
