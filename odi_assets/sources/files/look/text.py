"""The text of a landing file, in blocks of whole lines, as UTF-8."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

_LONGEST_MAGIC = 16
_BLOCK = 4 * 1024 * 1024
_UTF_8_MARK = b"\xef\xbb\xbf"
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_MAGIC = (
    (".gz", "gzip", b"\x1f\x8b\x08"),
    (".bz2", "bzip2", b"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    (".zst", "zstd", rb"\(\xb5/\xfd"),
)
"""How files begin that are packed, as patterns; Spark knows them by the ends of their names alone."""

_OF_SPARK_ALONE = (".snappy", ".lz4", ".xz", ".lzo")


class Fault(Exception):
    """What of a file is not as the standard of its format has it.

    Attributes:
        line: of the text, counted from 1; 0 if it is about the whole file.
        why: in words.
        kind: ``bytes`` that are no text; ``broken``: Spark stops at it too; ``silent``: Spark goes on as if nothing
            were wrong; ``quote``: text behind a closing quote; ``deep``: nested so deeply that nobody can tell;
            ``breaks``: line breaks that Spark would change; ``ends``: line breaks that end no lines; ``blank``: a row
            that Spark leaves out; ``nanoseconds``: times that lose a part; ``unseen``: the file cannot be looked at;
            ``packed``: it cannot be unpacked; ``name``: it is packed, and its name does not say so.
    """

    def __init__(self, line: int, why: str, kind: str) -> None:
        super().__init__(line, why, kind)
        self.line, self.why, self.kind = line, why, kind


class Block(NamedTuple):
    """Whole lines of a text.

    Attributes:
        line: the number of the first one.
        data: they, as UTF-8.
    """

    line: int
    data: bytes


def blocks(
    path: str, remote: Mapping[str, Any] | None, encoding: str, *, lines: bool = True, line_end: bytes = b"\n"
) -> Iterator[Block]:
    """The text of a file.

    Args:
        remote: fsspec's options for the store; None for local files.
        lines: a block ends where a line does. Otherwise all of the text is one block.
        line_end: what lines end with.

    Raises:
        Fault: it is no text of ``encoding``, or is packed in a way that only Spark knows, or is not whole.
    """
    line, rest = 1, b""
    for piece in _texts(path, remote, encoding):
        rest += piece
        end = rest.rfind(line_end) + len(line_end) if lines and line_end in piece else 0
        if end:
            yield Block(line, _checked(rest[:end], line, line_end))
            line += rest.count(line_end, 0, end)
            rest = rest[end:]
    if rest:
        yield Block(line, _checked(rest, line, line_end))


def _texts(path: str, remote: Mapping[str, Any] | None, encoding: str) -> Iterator[bytes]:
    decode = _decoder(encoding)
    first = True
    for piece in _pieces(path, remote):
        text = decode(piece)
        if first and text:
            text, first = text.removeprefix(_UTF_8_MARK), False
        yield text
    yield decode(b"", True)


def _decoder(encoding: str) -> Callable[..., bytes]:
    """A function that converts pieces of a text to UTF-8. Pieces of UTF-8 are checked later, where lines are known."""
    try:
        codec = codecs.lookup(encoding)
    except LookupError:
        raise Fault(0, f"the encoding {encoding} is one that only Spark knows", "unseen") from None
    if codec.name in ("utf-8", "ascii"):
        return lambda piece, final=False: piece  # noqa: ARG005  the decoders of codecs take it
    decoder = codec.incrementaldecoder("strict")

    def decoded(piece: bytes, final: bool = False) -> bytes:
        try:
            return decoder.decode(piece, final).encode()
        except UnicodeError as error:
            raise Fault(0, f"it has bytes that are not {encoding}: {error}", "bytes") from None

    return decoded


def _checked(data: bytes, line: int, line_end: bytes) -> bytes:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            byte = data[error.start : error.start + 1]
            at = line + data.count(line_end, 0, error.start)
            raise Fault(at, f"the byte 0x{byte.hex()} is not UTF-8", "bytes") from None
    return data


def _pieces(path: str, remote: Mapping[str, Any] | None) -> Iterator[bytes]:
    if remote is None:
        with open(path, "rb") as stream:  # noqa: PTH123  one text for local files and files in a store
            yield from _unpacked(stream, path)
        return
    import fsspec

    with fsspec.open(path, "rb", **remote) as stream:
        yield from _unpacked(stream, path)


def _unpacked(stream: Any, path: str) -> Iterator[bytes]:
    name = path.lower()
    if name.endswith(_OF_SPARK_ALONE):
        raise Fault(0, "it is packed in a way that only Spark knows", "unseen")
    codec = next((codec for end, codec in _PACKED.items() if name.endswith(end)), None)
    inflate = zlib.decompressobj() if name.endswith(".deflate") else None
    first = stream.read(_LONGEST_MAGIC)
    stream.seek(0)
    if codec is None and inflate is None:
        _require_not_packed(first)
    source = stream if codec is None else pa.CompressedInputStream(pa.PythonFile(stream), codec)
    try:
        while piece := source.read(_BLOCK):
            yield piece if inflate is None else inflate.decompress(piece)
            if inflate is not None and inflate.unused_data:
                raise Fault(0, "it cannot be unpacked: it goes on behind its end", "packed")
        if inflate is not None:
            yield inflate.flush()
    except (pa.ArrowException, OSError, zlib.error) as error:
        if codec is None and inflate is None:
            raise
        raise Fault(0, f"it cannot be unpacked: {_why_packed(name, first, error)}", "packed") from None
    if inflate is not None and not inflate.eof:
        raise Fault(0, "it cannot be unpacked: it ends too early", "packed")


def _require_not_packed(first: bytes) -> None:
    for end, what, pattern in _MAGIC:
        if re.match(pattern, first):
            raise Fault(0, f"it is packed with {what}, and its name does not end with `{end}`", "name")


def _why_packed(name: str, first: bytes, error: Exception) -> str:
    """Why a file cannot be unpacked: one that is not packed as its name says, or one that is damaged."""
    what, pattern = next(((what, pattern) for end, what, pattern in _MAGIC if name.endswith(end)), ("", b""))
    is_other = what and not re.match(pattern, first)
    return f"it is not packed with {what}, as its name says" if is_other else str(error)[:200]
