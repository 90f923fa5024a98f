"""Tables and columns: as the binary log describes them, and as the server lists them, with the same names.

Types are named as the server does, without what changes no value: ``int unsigned``, ``decimal(12,2)``, ``varchar(9)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.binlog.wire import counted_number
from odi_assets.sources.cdc.changes import TornLogError
from odi_assets.sources.cdc.log import Shape, ShapeColumn

BINARY = 63
"""The collation of bytes."""
_WHOLE = {1: ("tinyint", 1), 2: ("smallint", 2), 9: ("mediumint", 3), 3: ("int", 4), 8: ("bigint", 8)}
_FLOATS = {4: ("float", 4), 5: ("double", 8)}
_TIMES = {17: ("timestamp", 4), 18: ("datetime", 5), 19: ("time", 3)}
_NUMBERS = frozenset({*_WHOLE, *_FLOATS, 246})
"""Types whose signs the log notes; MySQL notes the sign of years, too."""
_METADATA_BYTES = {4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 245: 1, 246: 2, 252: 1, 254: 2, 255: 1}
_STRING, _VARCHAR, _BLOB, _GEOMETRY, _ENUM, _SET, _JSON, _YEAR = 254, 15, 252, 255, 247, 248, 245, 13
_TEXTS = frozenset({_STRING, _VARCHAR, _BLOB})
_BLOB_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_OLD_TIMES = {7: "timestamp", 11: "time", 12: "datetime"}
_OTHER = {140: "a compressed column", 141: "a compressed column", **dict.fromkeys(_OLD_TIMES, "an old time")}
GEOMETRIES = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection"}
)
SAME_AS_BYTES = {"uuid": "binary(16)", "inet6": "binary(16)", "inet4": "binary(4)"}
"""Types that the log does not tell from bytes."""


@dataclass(frozen=True)
class BinlogColumn:
    """A column as the log has its values.

    Attributes:
        type: its name; empty until the number of bytes of a character is known.
        size: of a value in bytes; 0 if values say it themselves.
        prefix: how many bytes of a value say its size.
        collation: of texts; 0 for other values.
        members: of ``enum`` and ``set``, in the column's own characters.
        digits: of a decimal, all; of a time, behind the second; of bits, how many.
        scale: of a decimal.
    """

    name: str
    type: str
    size: int = 0
    prefix: int = 0
    collation: int = 0
    unsigned: bool = False
    is_key: bool = False
    members: tuple[bytes, ...] = ()
    digits: int = 0
    scale: int = 0


@dataclass(frozen=True)
class BinlogTable:
    """A table as the log describes it before its rows."""

    table: str
    columns: tuple[BinlogColumn, ...]
    identity: str = "d"

    @cached_property
    def bitmap_bytes(self) -> int:
        return (len(self.columns) + 7) // 8

    @cached_property
    def all_bits(self) -> int:
        return (1 << len(self.columns)) - 1

    @cached_property
    def key_places(self) -> list[int]:
        return [index for index, column in enumerate(self.columns) if column.is_key]

    def shape(self, types: Mapping[str, str], bytes_of: Mapping[int, int]) -> Shape:
        """Its columns as the change log lists them.

        Args:
            types: by column, the types that the server lists now.
            bytes_of: by collation, the most bytes that a character has.
        """
        columns = []
        for column in self.columns:
            now, kind = types.get(column.name, ""), column.type
            if column.collation not in (0, BINARY) and kind in ("char", "varchar"):
                kind = f"{kind}({column.digits // bytes_of[column.collation]})"
            columns.append(ShapeColumn(column.name, now if SAME_AS_BYTES.get(now) == kind else kind, column.is_key))
        return Shape(tuple(columns))


@dataclass(frozen=True)
class NamedTable:
    """A table that a statement names."""

    table: str
    identity: str = "d"


def table_of(
    body: bytes, wanted: frozenset[str], label: str, again: str, *, of_mysql: bool = False
) -> BinlogTable | None:
    """The table that an event describes, without its number; None if it is not one of ``wanted``.

    Args:
        of_mysql: the log is one of MySQL.

    Raises:
        SourceError: it has columns whose values the log does not tell exactly, or the log does not name its columns.
    """
    database, offset = _named(body, 2)
    name, offset = _named(body, offset + 1)
    table = f"{database}.{name}"
    if table not in wanted:
        return None
    count, offset = counted_number(body, offset + 1)
    codes = body[offset : offset + count]
    size, offset = counted_number(body, offset + count)
    metadata = body[offset : offset + size]
    fields = _fields(body[offset + size + (count + 7) // 8 :])
    if _NAMES not in fields:
        raise SourceError(
            f"{label}: the log does not name the columns of {table}: the server's `binlog_row_metadata` was not FULL "
            "when they were changed",
            fix=f"SET GLOBAL binlog_row_metadata = FULL; then {again}",
            label=label,
        )
    names = [text.decode() for text in _texts(fields[_NAMES])]
    columns = _columns(codes, metadata, names, f"{label}: {table}")
    has_sign = _NUMBERS | {_YEAR} if of_mysql else _NUMBERS
    return BinlogTable(table, tuple(_described(columns, codes, fields, has_sign)))


def _columns(codes: bytes, metadata: bytes, names: Sequence[str], where: str) -> list[BinlogColumn]:
    columns, offset = [], 0
    for code, name in zip(codes, names, strict=True):
        size = _METADATA_BYTES.get(code, 0)
        columns.append(_column(code, metadata[offset : offset + size], name, where))
        offset += size
    return columns


def _column(code: int, data: bytes, name: str, where: str) -> BinlogColumn:
    if code in _WHOLE:
        return BinlogColumn(name, *_WHOLE[code])
    if code in _FLOATS:
        return BinlogColumn(name, *_FLOATS[code])
    if code in _TIMES:
        kind, size = _TIMES[code]
        shown = f"{kind}({data[0]})" if data[0] else kind
        return BinlogColumn(name, shown, size + (data[0] + 1) // 2, digits=data[0])
    if code in (10, 14):
        return BinlogColumn(name, "date", 3)
    if code == _YEAR:
        return BinlogColumn(name, "year", 1)
    if code == 246:
        return BinlogColumn(name, f"decimal({data[0]},{data[1]})", decimal_bytes(*data), digits=data[0], scale=data[1])
    if code == 16:
        digits = data[0] + 8 * data[1]
        return BinlogColumn(name, f"bit({digits})", (digits + 7) // 8, digits=digits)
    if code == _VARCHAR:
        longest = int.from_bytes(data, "little")
        return BinlogColumn(name, "varchar", prefix=1 if longest < 256 else 2, digits=longest)
    if code == _BLOB:
        return BinlogColumn(name, _BLOB_SIZES[data[0]], prefix=data[0])
    if code == _JSON:
        return BinlogColumn(name, "json", prefix=data[0])
    if code == _GEOMETRY:
        return BinlogColumn(name, "geometry", prefix=data[0])
    if code == _STRING:
        real, longest = data
        if real in (_ENUM, _SET):
            return BinlogColumn(name, "enum" if real == _ENUM else "set", longest)
        # Lengths above 255 have two of their bits in the type.
        longest |= ((real & 0x30) ^ 0x30) << 4
        return BinlogColumn(name, "char", prefix=1 if longest < 256 else 2, digits=longest)
    raise SourceError(
        f"{where}: the log has values of `{name}` as {_OTHER.get(code, f'type {code}')}, which are not read",
        fix=remedy(name),
    )


def remedy(name: str) -> str:
    """What to do about a column whose values cannot be read from the log."""
    return f"ALTER TABLE … MODIFY `{name}` gives it another type; or leave the table out of `tables`"


def decimal_bytes(digits: int, scale: int) -> int:
    """How many bytes a decimal has."""
    rest = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    whole = digits - scale
    return whole // 9 * 4 + rest[whole % 9] + scale // 9 * 4 + rest[scale % 9]


_SIGNS, _CHARSET, _CHARSETS, _NAMES, _SET_MEMBERS, _ENUM_MEMBERS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_PREFIXES, _MEMBERS_CHARSET, _MEMBERS_CHARSETS = 8, 9, 10, 11


def _fields(data: bytes) -> dict[int, bytes]:
    """What the log says of a table with ``binlog_row_metadata = FULL``, by kind."""
    fields, offset = {}, 0
    while offset < len(data):
        kind = data[offset]
        size, offset = counted_number(data, offset + 1)
        fields[kind] = data[offset : offset + size]
        offset += size
    return fields


def _described(
    columns: Sequence[BinlogColumn], codes: bytes, fields: Mapping[int, bytes], with_sign: frozenset[int]
) -> list[BinlogColumn]:
    """The columns, with their signs, collations, members and keys."""
    described: list[BinlogColumn] = []
    has_sign = [index for index, code in enumerate(codes) if code in with_sign]
    signs = fields.get(_SIGNS, b"")
    unsigned = {
        index
        for number, index in enumerate(has_sign)
        if number // 8 < len(signs) and signs[number // 8] << number % 8 & 0x80
    }
    lists = [column.type in ("enum", "set") for column in columns]
    texts = [index for index, code in enumerate(codes) if code in _TEXTS and not lists[index]]
    members_of = [index for index, flag in enumerate(lists) if flag]
    collations = _collations(texts, fields.get(_CHARSET), fields.get(_CHARSETS))
    collations |= _collations(members_of, fields.get(_MEMBERS_CHARSET), fields.get(_MEMBERS_CHARSETS))
    members = {
        kind: iter(_members(fields.get(field, b""))) for kind, field in (("enum", _ENUM_MEMBERS), ("set", _SET_MEMBERS))
    }
    keys = {*_numbers(fields.get(_KEY, b"")), *_numbers(fields.get(_KEY_PREFIXES, b""))[::2]}
    for index, column in enumerate(columns):
        collation = collations.get(index, 0)
        kind = _full_type(column, codes[index], collation, index in unsigned)
        of_list = tuple(next(members[column.type])) if lists[index] else ()
        described.append(
            BinlogColumn(
                column.name,
                kind,
                column.size,
                column.prefix,
                collation,
                index in unsigned,
                index in keys,
                of_list,
                column.digits,
                column.scale,
            )
        )
    return described


def _full_type(column: BinlogColumn, code: int, collation: int, unsigned: bool) -> str:
    if code in _WHOLE:
        return f"{column.type} unsigned" if unsigned else column.type
    if code == _BLOB:
        return column.type + ("blob" if collation == BINARY else "text")
    if collation == BINARY and column.type in ("char", "varchar"):
        return f"{column.type.replace('char', 'binary')}({column.digits})"
    return column.type


def _collations(places: Sequence[int], default: bytes | None, each: bytes | None) -> dict[int, int]:
    """By place of a column, its collation: one for most of them, and others by number; or each."""
    if each is not None:
        return dict(zip(places, _numbers(each), strict=True))
    if default is None:
        return {}
    usual, *others = _numbers(default)
    collations = dict.fromkeys(places, usual)
    for number, collation in zip(others[::2], others[1::2], strict=True):
        collations[places[number]] = collation
    return collations


def _members(data: bytes) -> list[list[bytes]]:
    lists, offset = [], 0
    while offset < len(data):
        count, offset = counted_number(data, offset)
        listed = []
        for _ in range(count):
            text, offset = _named(data, offset)
            listed.append(text.encode("utf-8", "surrogateescape"))
        lists.append(listed)
    return lists


def _numbers(data: bytes) -> list[int]:
    numbers, offset = [], 0
    while offset < len(data):
        number, offset = counted_number(data, offset)
        numbers.append(number)
    return numbers


def _texts(data: bytes) -> list[bytes]:
    texts, offset = [], 0
    while offset < len(data):
        size, offset = counted_number(data, offset)
        texts.append(data[offset : offset + size])
        offset += size
    return texts


def _named(data: bytes, offset: int) -> tuple[str, int]:
    size, offset = counted_number(data, offset)
    if offset + size > len(data):
        raise TornLogError("a text of the log is longer than its event")
    return data[offset : offset + size].decode("utf-8", "surrogateescape"), offset + size


def listed_type(row: Mapping[str, str | int | None]) -> str:
    """The name of a column's type, of a row of ``information_schema.columns``."""
    kind, shown = str(row["data_type"]).lower(), str(row["column_type"]).lower()
    if kind in ("tinyint", "smallint", "mediumint", "int", "bigint"):
        return f"{kind} unsigned" if "unsigned" in shown else kind
    if kind == "decimal":
        return f"decimal({row['numeric_precision']},{row['numeric_scale']})"
    if kind == "bit":
        return f"bit({row['numeric_precision']})"
    if kind in ("time", "datetime", "timestamp"):
        return f"{kind}({row['datetime_precision']})" if row["datetime_precision"] else kind
    if kind in ("char", "varchar", "binary", "varbinary"):
        return f"{kind}({row['character_maximum_length']})"
    return "geometry" if kind in GEOMETRIES else kind


def why_not_exact(column_type: str) -> str | None:
    """Why the log does not tell the values of a column exactly, in words; None if it does."""
    shown = column_type.lower()
    if "compressed" in shown:
        return "is compressed"
    if "mariadb-5.3" in shown:
        return "has a time as MariaDB 5.3 stored it (`mysql56_temporal_format` was off)"
    if shown.startswith("vector"):
        return "is a vector"
    return "is a year of two digits" if shown.startswith("year(2)") else None
