"""Addresses and UUIDs as MariaDB writes them."""

from __future__ import annotations

import struct
import uuid


def uuid_text(value: bytes) -> bytes:
    """A UUID of 16 bytes."""
    return str(uuid.UUID(bytes=value)).encode()


def inet4_text(value: bytes) -> bytes:
    """An address of 4 bytes."""
    return ".".join(map(str, value)).encode()


def inet6_text(value: bytes) -> bytes:
    """An address of 16 bytes. The first of the longest runs of zeros is left out, even if it is a single one."""
    words = struct.unpack(">8H", value)
    start, length = 0, 0
    for begin in range(8):
        end = begin
        while end < 8 and words[end] == 0:
            end += 1
        if end - begin > length:
            start, length = begin, end - begin
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return (b"::ffff:" if length == 5 else b"::") + inet4_text(value[12:])
    shown = [f"{word:x}" for word in words]
    if not length:
        return ":".join(shown).encode()
    return f"{':'.join(shown[:start])}::{':'.join(shown[start + length :])}".encode()
