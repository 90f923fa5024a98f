"""What the files of state stores are good for: every way of tearing one is found, and nothing else is."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from odi_assets.checkpoints import check_files, judge
from odi_assets.checkpoints.state_file import Damage, StateFileContents, read_state_file
from odi_assets.errors import CheckpointError

ROWS = "left-keyWithIndexToValue"


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big", signed=True)


DELTA = b"".join(
    [number(2), b"k1", number(3), b"one", number(2), b"k2", number(3), b"two", number(2), b"k1", number(-1), number(-1)]
)
"""Two puts and a removal, as the HDFS-backed provider lists them."""
CHANGELOG = b"".join(
    [
        *(number(2, 2), b"v2"),
        *(b"\x01", number(2), b"k1", number(3), b"one"),
        *(b"\x11", number(2), b"k2", number(3), b"two"),
        *(b"\x10", number(2), b"k1", number(-1)),
        b"\x00",
    ]
)
"""The same as RocksDB's provider lists them where it has column families."""


def lz4(data: bytes) -> bytes:
    packed = pa.Codec("lz4_raw").compress(data, asbytes=True)

    def block(content: bytes, size: int) -> bytes:
        header = b"LZ4Block\x25" + len(content).to_bytes(4, "little") + size.to_bytes(4, "little")
        return header + bytes(4) + content

    return block(packed, len(data)) + block(b"", 0)


def snappy(data: bytes) -> bytes:
    packed = pa.Codec("snappy").compress(data, asbytes=True)
    return b"\x82SNAPPY\x00" + number(1) + number(1) + number(len(packed)) + packed


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def lzf(data: bytes) -> bytes:
    """A chunk that is compressed, although it refers to nothing before it, and one that is not."""
    first, rest = data[:20], data[20:]
    runs = bytes([len(first) - 1]) + first
    return b"ZV\x01" + number(len(runs), 2) + number(len(first), 2) + runs + b"ZV\x00" + number(len(rest), 2) + rest


@pytest.mark.parametrize("compressed", [lz4, snappy, zstd, lzf])
@pytest.mark.parametrize("content", [DELTA, CHANGELOG], ids=["delta", "changelog"])
def test_rows_are_counted_and_every_cut_is_found(tmp_path: Path, compressed: object, content: bytes) -> None:
    assert callable(compressed)
    file, whole = tmp_path / "1.delta", compressed(content)
    file.write_bytes(whole)
    assert read_state_file(file) == StateFileContents(puts=2, removals=1)
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(Damage):
            read_state_file(file)


def test_rows_that_end_without_the_mark_of_the_end_are_torn(tmp_path: Path) -> None:
    for content in (DELTA[:-4], CHANGELOG[:-1]):
        (tmp_path / "1.delta").write_bytes(lz4(content))
        with pytest.raises(Damage, match="without the mark of the end"):
            read_state_file(tmp_path / "1.delta")


def test_a_file_of_no_codec_is_garbled(tmp_path: Path) -> None:
    (tmp_path / "1.delta").write_bytes(b"BZh91AY")
    with pytest.raises(Damage, match="none of the marks"):
        read_state_file(tmp_path / "1.delta")


def test_lzf_repeats_what_came_before(tmp_path: Path) -> None:
    content = number(40) + b"k" * 40 + number(0) + number(-1)
    # A run of five bytes, then 39 times the last of them: 7 and 30 more, and the 2 that a reference has at least.
    packed = bytes([4]) + content[:5] + bytes([7 << 5, 30, 0]) + bytes([7]) + content[44:]
    (tmp_path / "1.delta").write_bytes(b"ZV\x01" + number(len(packed), 2) + number(len(content), 2) + packed)
    assert read_state_file(tmp_path / "1.delta") == StateFileContents(puts=1)


def test_a_changed_byte_is_found_by_hadoops_checksums(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    file = copy / "state" / "0" / "0" / ROWS / "1.changelog"
    whole, contents = bytearray(file.read_bytes()), read_state_file(file)
    whole[-1] ^= 1
    file.write_bytes(whole)
    with pytest.raises(Damage, match="checksum"):
        read_state_file(file)
    sums = file.with_name(".1.changelog.crc")
    sums.write_bytes(sums.read_bytes()[:-1])
    with pytest.raises(Damage, match=r"checksums in \.1\.changelog\.crc are torn"):
        read_state_file(file)
    # Without the beginning of its checksums, Hadoop reads a file as if there were none.
    whole[-1] ^= 1
    file.write_bytes(whole)
    sums.write_bytes(b"crc")
    assert read_state_file(file) == contents


def test_checksums_that_change_after_a_first_look_are_seen(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    assert check_files(copy).faults == ()
    folder = copy / "state" / "0" / "0" / ROWS
    (folder / ".2.changelog.crc").write_bytes((folder / ".1.changelog.crc").read_bytes())
    (fault,) = check_files(copy).faults
    assert fault.path == f"state/0/0/{ROWS}/2.changelog"


@pytest.mark.parametrize("what", ["1-a.sst", ".1-a.sst.crc"])
def test_a_flipped_byte_of_a_table_file_or_of_its_checksums_is_seen(
    what: str, join_checkpoint: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    folder = copy / "state" / "0" / "0" / ROWS
    tables = folder / "SSTs"
    tables.mkdir(exist_ok=True)
    (tables / "1-a.sst").write_bytes(b"rows")
    (tables / ".1-a.sst.crc").write_bytes(b"crc\0" + struct.pack(">iI", 512, zlib.crc32(b"rows")))
    archive(folder / "2.zip", {"1-a.sst": 4})
    assert check_files(copy).faults == ()
    flipped = bytearray((tables / what).read_bytes())
    flipped[-1] ^= 0x10
    (tables / what).write_bytes(flipped)
    (fault,) = check_files(copy).faults
    assert fault.path == f"state/0/0/{ROWS}/2.zip"
    assert "of its file SSTs/1-a.sst, its bytes from 0 on are not those that were written" in fault.fault


def test_table_files_that_go_after_a_first_look_are_seen(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    folder = copy / "state" / "0" / "0" / ROWS
    (folder / "SSTs").mkdir(exist_ok=True)
    (folder / "SSTs" / "1-a.sst").write_bytes(b"rows")
    archive(folder / "2.zip", {"1-a.sst": 4})
    assert check_files(copy).faults == ()
    (folder / "SSTs" / "1-a.sst").write_bytes(b"row")
    (fault,) = check_files(copy).faults
    assert fault.path == f"state/0/0/{ROWS}/2.zip"
    assert "SSTs/1-a.sst has 3 bytes and had 4" in fault.fault


def test_a_sound_checkpoint_has_no_faults(join_checkpoint: Path, count_checkpoint: Path) -> None:
    for checkpoint in (join_checkpoint, count_checkpoint):
        found = check_files(checkpoint)
        assert (found.faults, dict(found.lost)) == ((), {})
        assert found.files == sum(1 for entry in checkpoint.rglob("*") if entry.is_file())
    rows = [one for one in check_files(join_checkpoint).stores if one.store == ROWS]
    assert [sum(store.changes[version][1] for store in rows) for version in (1, 2, 3, 4)] == [0, 0, 0, 2]
    assert all(store.rebuildable == (1, 2, 3, 4) for store in rows)


def test_any_file_of_a_checkpoint_that_is_a_link_into_nothing_is_named(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = file.read_bytes()
        file.unlink()
        file.symlink_to(file.name)
        assert judge(copy).faults, file
        file.unlink()
        file.write_bytes(content)


def test_a_missing_delta_loses_what_comes_after_it_up_to_the_next_snapshot(
    count_checkpoint: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(count_checkpoint, tmp_path / "copy"))
    folder = copy / "state" / "0" / "1"
    (folder / "2.delta").unlink()
    found = check_files(copy)
    assert (found.readable, list(found.lost)) == ((0,), [1])
    assert found.lost[1].path == "state/0/1/2.delta"
    assert [fault.fault for fault in found.faults] == ["is missing"]
    # A snapshot has the layout of a delta that only puts.
    shutil.copy(folder / "1.delta", folder / "2.snapshot")
    found = check_files(copy)
    assert (found.readable, found.faults) == ((0, 1), ())
    (folder / "2.snapshot").write_bytes(b"")
    found = check_files(copy)
    assert list(found.lost) == [1]
    assert ("state/0/1/2.snapshot", "is torn: it is empty") in [(one.path, one.fault) for one in found.faults]


def test_what_spark_cleaned_away_is_not_damage(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    for changes in copy.glob("state/0/*/*/1.changelog"):
        changes.unlink()
        archive(changes.with_name("2.zip"), {})
    found = check_files(copy)
    assert (found.readable, found.cleaned, found.faults) == ((1, 2, 3), (0,), ())


def test_an_archive_needs_its_table_files(tmp_path: Path, join_checkpoint: Path) -> None:
    folder = Path(shutil.copytree(join_checkpoint, tmp_path / "copy")) / "state" / "0" / "0" / ROWS
    (folder / "SSTs").mkdir()
    (folder / "SSTs" / "1-a.sst").write_bytes(b"rows")
    archive(folder / "2.zip", {"1-a.sst": 4})
    assert read_state_file(folder / "2.zip") == StateFileContents(keys=7)
    (folder / "SSTs" / "1-a.sst").write_bytes(b"row")
    with pytest.raises(Damage, match=r"SSTs/1-a\.sst has 3 bytes and had 4"):
        read_state_file(folder / "2.zip")
    (folder / "SSTs" / "1-a.sst").unlink()
    with pytest.raises(Damage, match=r"SSTs/1-a\.sst is missing"):
        read_state_file(folder / "2.zip")
    whole = (folder / "2.zip").read_bytes()
    for length in range(0, len(whole), 7):
        (folder / "2.zip").write_bytes(whole[:length])
        with pytest.raises(Damage):
            read_state_file(folder / "2.zip")


def test_a_commit_that_is_missing_in_between_is_named(join_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    (copy / "commits" / "1").unlink()
    found = check_files(copy)
    assert [fault.path for fault in found.faults] == ["commits/1"]
    assert found.readable == (0, 2, 3)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        check_files(tmp_path)


def archive(file: Path, tables: dict[str, int]) -> None:
    """An archive of RocksDB with these table files and 7 keys."""
    named = [{"localFileName": "1.sst", "dfsSstFileName": name, "sizeBytes": size} for name, size in tables.items()]
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("metadata", "v1\n" + json.dumps({"sstFiles": named, "numKeys": 7}))
