"""Whether one file of a state store is whole, and how many rows it puts and removes: no Spark needed.

Snapshots and deltas (``N.snapshot``, ``N.delta``) of the HDFS-backed provider, and changelogs (``N.changelog``) of
RocksDB, are compressed lists of puts and removals that end with a mark. An archive (``N.zip``) of RocksDB names the
table files in ``SSTs/`` that belong to it. Beside each file on a local disk, Hadoop keeps checksums: ``.N.delta.crc``.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiii")
_LZ4_RAW = 0x10
"""In the header's token: the block is stored as it is, not compressed."""
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = 16
_LZF_MAGIC = b"ZV"
_LZF_COMPRESSED = 1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

FileState = tuple[int, ...] | None
"""What changes whenever a file does; None where there is no file."""

_CRC_HEADER = struct.Struct(">4si")
_CRC_MAGIC = b"crc\x00"

_PUT, _REMOVE, _MERGE = 0x01, 0x10, 0x11
_END = 0x00


class Damage(Exception):
    """What is wrong with a file, in words that follow its name."""


@dataclass(frozen=True)
class StateFileContents:
    """What a file holds: rows put and removed; of an archive the keys there are.

    ``lineage`` says, in checkpoint format 2, which files the versions before it are in: the id of each, by version.
    """

    puts: int = 0
    removals: int = 0
    keys: int | None = None
    lineage: Mapping[int, str] | None = None


def read_state_file(file: Path) -> StateFileContents:
    """Read a snapshot, delta, changelog or archive to its end.

    Raises:
        Damage: it is torn, a byte of it differs from its checksum, or a file that belongs to it is missing.
        OSError: it cannot be read.
    """
    data = file.read_bytes()
    compare_checksums(file, data)
    if file.suffix == ".zip":
        return _read_archive(file)
    # A changelog of version 1 begins as a delta does: with the length of its first key.
    return _read_changes(b"".join(_decompressed(data)))


def checksum_step(sums: bytes) -> int | None:
    """How many bytes each checksum is of, in a file of Hadoop's checksums; None if it does not begin as one does."""
    if len(sums) < _CRC_HEADER.size:
        return None
    magic, step = _CRC_HEADER.unpack_from(sums)
    return int(step) if magic == _CRC_MAGIC and step > 0 else None


def state_of(file: Path) -> FileState:
    """The state of a file, without a look into it."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def checksums_of(file: Path) -> Path:
    """Where Hadoop keeps the checksums of a file on a local disk."""
    return file.with_name(f".{file.name}.crc")


def compare_checksums(file: Path, data: bytes) -> None:
    """Compare a file with Hadoop's checksums of it, if they are there.

    Raises:
        Damage: it differs, or its checksums are torn.
    """
    beside = checksums_of(file)
    if not beside.is_file():
        return
    sums = beside.read_bytes()
    if (step := checksum_step(sums)) is None:
        # Hadoop reads on without them.
        return
    if (len(sums) - _CRC_HEADER.size) % 4:
        raise Damage(f"its checksums in {beside.name} are torn")
    expected = [value for (value,) in struct.iter_unpack(">I", sums[_CRC_HEADER.size :])]
    actual = [zlib.crc32(data[start : start + step]) for start in range(0, len(data), step)]
    if len(actual) < len(expected):
        raise Damage(f"it ends after {len(data):,} bytes, before its checksums do")
    for number, value in enumerate(actual):
        if number >= len(expected) or value != expected[number]:
            raise Damage(f"its bytes from {number * step:,} on are not those that were written: their checksum differs")


def _decompressed(data: bytes) -> Iterator[bytes]:
    """The content, by the codec that wrote it: lz4 (the default), zstd, snappy or lzf."""
    if not data:
        raise Damage("it is empty")
    if data.startswith(_LZ4_MAGIC):
        yield from _lz4_blocks(data)
    elif data.startswith(_ZSTD_MAGIC):
        yield _zstd(data)
    elif data.startswith(_SNAPPY_MAGIC):
        yield from _snappy_chunks(data)
    elif data.startswith(_LZF_MAGIC):
        yield from _lzf_chunks(data)
    else:
        raise Damage("it begins with none of the marks of lz4, zstd, snappy and lzf")


def _lz4_blocks(data: bytes) -> Iterator[bytes]:
    """Blocks as lz4-java's ``LZ4BlockOutputStream`` writes them; an empty one is the last."""
    codec = pa.Codec("lz4_raw")
    at = 0
    while True:
        if at + _LZ4_HEADER.size > len(data):
            raise Damage(f"it ends after {len(data):,} bytes, in the middle")
        magic, token, packed, size, _ = _LZ4_HEADER.unpack_from(data, at)
        if magic != _LZ4_MAGIC:
            raise Damage(f"it is garbled at byte {at:,}")
        at += _LZ4_HEADER.size
        if size == 0:
            return
        if at + packed > len(data):
            raise Damage(f"it ends after {len(data):,} bytes, in the middle")
        block = data[at : at + packed]
        at += packed
        try:
            yield block if token & 0xF0 == _LZ4_RAW else codec.decompress(block, size, asbytes=True)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise Damage(f"its block before byte {at:,} cannot be decompressed") from error


def _snappy_chunks(data: bytes) -> Iterator[bytes]:
    """Chunks as snappy-java's ``SnappyOutputStream`` writes them: a length, then that many bytes."""
    codec = pa.Codec("snappy")
    at = _SNAPPY_HEADER
    while at < len(data):
        if data.startswith(_SNAPPY_MAGIC, at):
            at += _SNAPPY_HEADER
            continue
        length = int.from_bytes(data[at : at + 4], "big")
        chunk = data[at + 4 : at + 4 + length]
        if len(chunk) < length or not chunk:
            raise Damage(f"it ends after {len(data):,} bytes, in the middle")
        size, shift, position = 0, 0, 0
        while True:
            size |= (chunk[position] & 0x7F) << shift
            if not chunk[position] & 0x80:
                break
            shift, position = shift + 7, position + 1
        at += 4 + length
        try:
            yield codec.decompress(chunk, size, asbytes=True)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise Damage(f"its chunk before byte {at:,} cannot be decompressed") from error


def _lzf_chunks(data: bytes) -> Iterator[bytes]:
    """Chunks in compress-lzf's format: ``ZV``, a flag for compression, the length, and the unpacked length if set."""
    at = 0
    while at < len(data):
        if data[at : at + 2] != _LZF_MAGIC:
            raise Damage(f"it is garbled at byte {at:,}")
        compressed = data[at + 2 : at + 3] == bytes([_LZF_COMPRESSED])
        length, start = int.from_bytes(data[at + 3 : at + 5], "big"), at + (7 if compressed else 5)
        chunk = data[start : start + length]
        if start > len(data) or len(chunk) < length:
            raise Damage(f"it ends after {len(data):,} bytes, in the middle")
        yield _lzf(chunk) if compressed else chunk
        at = start + length


def _lzf(packed: bytes) -> bytes:
    """The content of a chunk: runs of bytes, and references to what came before."""
    out, at = bytearray(), 0
    try:
        while at < len(packed):
            control = packed[at]
            at += 1
            if control < 32:
                out += packed[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += packed[at]
                at += 1
            back = len(out) - ((control & 31) << 8) - packed[at] - 1
            at += 1
            if back < 0:
                raise Damage("a chunk refers to what is before it")
            for position in range(back, back + length + 2):
                out.append(out[position])
    except IndexError as error:
        raise Damage("a chunk ends in the middle") from error
    return bytes(out)


def _zstd(data: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    except (pa.ArrowException, OSError) as error:
        raise Damage("it cannot be decompressed to its end") from error


def _read_changes(data: bytes) -> StateFileContents:
    try:
        version, at = _header(data)
        lineage = None
        if version >= 3:
            text, at = _text(data, at)
            lineage = {int(entry["version"]): str(entry["checkpointUniqueId"]) for entry in json.loads(text)}
        puts, removals = (_typed_records if version in (2, 4) else _plain_records)(data, at)
    except (struct.error, IndexError) as error:
        raise Damage("its rows end without the mark of the end") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damage(f"it does not say where the versions before it are ({error})") from error
    return StateFileContents(puts, removals, lineage=lineage)


def _header(data: bytes) -> tuple[int, int]:
    """The version of a changelog and where its rows begin; 1 for files that name none."""
    if data[:3] == b"\x00\x02v" and data[3:4].isdigit():
        return int(data[3:4]), 4
    return 1, 0


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", data, at)
    return data[at + 2 : at + 2 + length].decode("utf-8"), at + 2 + length


def _plain_records(data: bytes, at: int) -> tuple[int, int]:
    """Key length, key, value length, value; a removal has the value length -1, the end the key length -1."""
    length = struct.Struct(">i").unpack_from
    puts = removals = 0
    while True:
        (key,) = length(data, at)
        if key == -1:
            return puts, removals
        at += 4 + key
        (value,) = length(data, at)
        at += 4 + max(value, 0)
        if key < 0 or value < -1 or at > len(data):
            raise IndexError
        if value == -1:
            removals += 1
        else:
            puts += 1


def _typed_records(data: bytes, at: int) -> tuple[int, int]:
    """As :func:`_plain_records`, with a byte before each record that says what it is."""
    length = struct.Struct(">i").unpack_from
    puts = removals = 0
    while data[at] != _END:
        kind = data[at]
        (key,) = length(data, at + 1)
        at += 5 + key
        (value,) = length(data, at)
        at += 4 + max(value, 0)
        if kind not in (_PUT, _REMOVE, _MERGE) or key < 0 or value < -1 or at > len(data):
            raise IndexError
        if kind == _REMOVE:
            removals += 1
        else:
            puts += 1
    return puts, removals


def _read_archive(file: Path) -> StateFileContents:
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
            if broken is not None:
                raise Damage(f"{broken} in it is torn")
            described = archive.read("metadata").decode("utf-8")
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise Damage("it is no whole zip file") from error
    except KeyError as error:
        raise Damage("it has no file called metadata") from error
    try:
        content: Any = json.loads(described.partition("\n")[2])
        tables = [(file.parent / "SSTs" / entry["dfsSstFileName"], entry["sizeBytes"]) for entry in content["sstFiles"]]
        logs = [
            (file.parent / "logs" / entry["dfsLogFileName"], entry["sizeBytes"])
            for entry in content.get("logFiles", ())
        ]
        keys = content.get("numKeys")
    except (ValueError, KeyError, TypeError) as error:
        raise Damage(f"its metadata is torn ({error})") from error
    for table, size in (*tables, *logs):
        if not table.is_file():
            raise Damage(f"its file {table.parent.name}/{table.name} is missing")
        if table.stat().st_size != size:
            actual_size = table.stat().st_size
            raise Damage(f"its file {table.parent.name}/{table.name} has {actual_size:,} bytes and had {size:,}")
        try:
            _compare_once(table, state_of(table), state_of(checksums_of(table)))
        except Damage as damage:
            raise Damage(f"of its file {table.parent.name}/{table.name}, {damage}") from damage
    return StateFileContents(keys=keys)


@lru_cache(maxsize=4096)
def _compare_once(file: Path, state: FileState, checksums: FileState) -> None:
    """:func:`compare_checksums`, once for a file that stays as it is: many archives name the same table files."""
    del state
    if checksums is not None:
        compare_checksums(file, file.read_bytes())
