"""Checkpoints are read and taken back as files, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.truncate import CheckpointFolder


def entry(number: int) -> str:
    return json.dumps({"path": f"file:///landing/{number}.json", "timestamp": 1, "batchId": number})


def write(root: Path, name: str, *lines: str, version: str = "v1") -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([version, *lines]))
    (file.parent / f".{file.name}.crc").write_bytes(b"crc")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Twelve batches of one file each; the first ten of the input's log are compacted, and their own files are gone."""
    root = tmp_path / "checkpoint"
    for number in range(12):
        head = json.dumps({"batchWatermarkMs": 1000 * number, "batchTimestampMs": 5, "conf": {}})
        write(root, f"offsets/{number}", head, f'df:{{"logOffset":{number}}}', "other:-", version="v2")
        write(root, f"commits/{number}", "{}")
        write(root, f"state/0/0/{number + 1}.delta")
    write(root, "sources/df/9.compact", *map(entry, range(10)))
    write(root, "sources/df/10", entry(10))
    write(root, "sources/df/11", entry(11))
    (root / "metadata").write_text('{"id":"q"}')
    return root


def test_a_batch_says_what_it_reads(checkpoint: Path) -> None:
    log = ProgressLog(Location(str(checkpoint)))
    batch = log.batch(10)
    assert batch is not None
    assert (batch.query, batch.watermark_ms) == ("q", 10_000)
    assert (batch.offsets["df"]["end"], batch.offsets["other"]) == ({"logOffset": 10}, {"end": None})
    assert batch.offsets["df"]["read"] != log.batch(9).offsets["df"]["read"]  # type: ignore[union-attr]
    assert list(log.files("df", 7, 10)) == [f"file:///landing/{number}.json" for number in (10, 8, 9)]
    assert len(log.read_files("df")) == 12
    assert log.batch(12) is None


def test_a_checkpoint_goes_back_to_before_a_compaction(checkpoint: Path) -> None:
    folder = CheckpointFolder(Location(str(checkpoint)))
    assert folder.keep_copy() == Location(f"{checkpoint}.copy-1")
    folder.truncate(7, {"df": {"logOffset": 7}})
    log = ProgressLog(Location(str(checkpoint)))
    assert (log.planned(), log.committed()) == ([*range(8)], [*range(8)])
    assert sorted(path.name for path in (checkpoint / "sources" / "df").glob("[0-9]*")) == [str(n) for n in range(8)]
    assert {uri: file.number for uri, file in log.read_files("df").items()} == {
        f"file:///landing/{number}.json": number for number in range(8)
    }
    assert sorted(int(path.stem) for path in checkpoint.glob("state/0/0/*.delta")) == [*range(1, 9)]
    assert not [path for path in checkpoint.rglob(".*.crc") if not path.with_name(path.name[1:-4]).exists()]
    copies = folder.copies()
    folder.put_back(copies[0])
    assert ProgressLog(Location(str(checkpoint))).committed() == [*range(12)]
    assert folder.keep_copy() == Location(f"{checkpoint}.copy-2")


def test_a_batch_that_is_not_there_is_no_place_to_go_back_to(checkpoint: Path) -> None:
    (checkpoint / "commits" / "3").unlink()
    with pytest.raises(CheckpointError, match="does not hold batch 3"):
        CheckpointFolder(Location(str(checkpoint))).truncate(3, {"df": {"logOffset": 3}})


@pytest.mark.parametrize(
    ("text", "told"),
    [("v1\n{}\n{}", "its inputs have no names"), ("v2\n{}\nnot an offset", "is torn"), ("v2\n{broken", "is torn")],
)
def test_what_no_stream_node_wrote_is_told(checkpoint: Path, text: str, told: str) -> None:
    (checkpoint / "offsets" / "11").write_text(text)
    with pytest.raises(CheckpointError, match=told):
        ProgressLog(Location(str(checkpoint))).batch(11)
