"""What a file holds by the standard of its format, read by parsers of Python and pyarrow: nothing of ours or Spark."""

from __future__ import annotations

import base64
import binascii
import bz2
import datetime as dt
import gzip
import io
import json
import re
import struct
import zlib
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.deliveries.writers import Delivery

_CONTROLS = "".join(map(chr, range(33)))
UNFIT = object()
"""A value that the type of its column does not hold."""


@dataclass(frozen=True)
class Lenient:
    """A value that is written in another way than its type's: it may be taken as ``value``, or refused."""

    value: Any


@dataclass(frozen=True)
class Inferred:
    """A value of a column whose type nobody named: it may be of any type that holds it as it is written."""

    text: str | None

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is what is written."""
        text = self.text
        if not text or value is None:
            return (value is None and not text) or value == text
        if isinstance(value, str | bool):
            return value == text if isinstance(value, str) else str(value).lower() == text.lower()
        # Blanks around a number are no part of it.
        text = text.strip(" \t")
        if isinstance(value, Decimal):
            return value == Decimal(text)
        if isinstance(value, dt.datetime):
            wanted = _moment(text, "TIMESTAMP" if value.tzinfo else "TIMESTAMP_NTZ")
        else:
            kinds = ((dt.date, "DATE"), (int, "BIGINT"), (float, "DOUBLE"))
            wanted = _typed(text, next(kind for one, kind in kinds if isinstance(value, one)))
        wanted = wanted.value if isinstance(wanted, Lenient) else wanted
        return bool(wanted == value or (wanted != wanted and value != value))


@dataclass
class Expected:
    """What a file holds.

    Attributes:
        rows: of values by column, :data:`UNFIT` and :class:`Lenient` among them.
        broken: how many rows are none by the standard.
        whole: why the file as a whole is none, or is of other columns; empty if it is not.
        asks: Spark cannot read it, or not without another option, so a reader may stop and say so.
        beyond: the places among ``rows`` of those that have columns or keys which the schema lacks.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    broken: int = 0
    whole: str = ""
    asks: bool = False
    beyond: set[int] = field(default_factory=set)

    @property
    def whole_rows(self) -> list[bool]:
        """By row, whether all of it fits as it is written: a reader has nothing to keep aside."""
        return [
            place not in self.beyond and not any(value is UNFIT or isinstance(value, Lenient) for value in row.values())
            for place, row in enumerate(self.rows)
        ]

    @property
    def may_stop(self) -> bool:
        """Whether a reader has a reason to stop."""
        odd = any(value is UNFIT or isinstance(value, Lenient) for row in self.rows for value in row.values())
        return bool(odd or self.broken or self.whole or self.asks)

    @property
    def must_stop(self) -> bool:
        """Whether a reader that keeps nothing aside has to stop."""
        return bool(self.broken or self.whole or any(value is UNFIT for row in self.rows for value in row.values()))


def expected(delivery: Delivery, *, by_name: bool) -> Expected:
    """What a file holds.

    Args:
        by_name: columns of CSV are found by their names, and others than the schema's may be there.
    """
    folder = delivery.of_folder
    own = delivery
    if folder is not None:
        own = replace(delivery, columns={n: kind for n, kind in delivery.columns.items() if n != folder[0]})
    found = _expected(own, by_name)
    for row in found.rows:
        if folder is not None:
            kind = "STRING" if delivery.infers else delivery.columns[folder[0]]
            row[folder[0]] = _of_csv(unquote(folder[1]), True, kind)
        if row.get(delivery.required, 0) is None:
            row[delivery.required] = UNFIT
    return found


def _expected(delivery: Delivery, by_name: bool) -> Expected:
    if delivery.format == "parquet":
        return _parquet(delivery, by_name)
    try:
        data = _unpacked(delivery)
    except (OSError, EOFError, zlib.error) as error:
        return Expected(whole=str(error))
    encoding = delivery.options.get("encoding", "utf-8")
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        return Expected(whole=str(error))
    found = _csv(delivery, text, by_name) if delivery.format == "csv" else _json(delivery, text, by_name)
    # Spark knows few.
    found.asks = found.asks or encoding not in ("utf-8", "ISO-8859-1")
    return found


def _unpacked(delivery: Delivery) -> bytes:
    if delivery.name.endswith(".gz"):
        return gzip.decompress(delivery.data)
    return bz2.decompress(delivery.data) if delivery.name.endswith(".bz2") else delivery.data


def records(text: str, separator: str) -> list[list[tuple[str, bool]]]:
    """The records of RFC 4180: values, and whether they were in quotes. ValueError if it is none."""
    found: list[list[tuple[str, bool]]] = []
    record: list[tuple[str, bool]] = []
    place, size = 0, len(text)
    while place < size or record:
        quoted = place < size and text[place] == '"'
        value = ""
        if quoted:
            place += 1
            while True:
                end = text.find('"', place)
                if end < 0:
                    raise ValueError("a quote is not closed")
                value, place = value + text[place:end], end + 1
                if text[place : place + 1] != '"':
                    break
                value, place = value + '"', place + 1
            if place < size and text[place] not in (separator, "\r", "\n"):
                raise ValueError("a value goes on behind its quote")
        else:
            end = place
            while end < size and text[end] not in (separator, "\r", "\n"):
                end += 1
            value, place = text[place:end], end
        record.append((value, quoted))
        if place < size and text[place] == separator:
            place += 1
            continue
        found.append(record)
        record = []
        place += 2 if text[place : place + 2] == "\r\n" else 1
    return found


def _csv(delivery: Delivery, text: str, by_name: bool) -> Expected:
    asks, line_end = False, delivery.options.get("lineSep")
    if line_end is not None and not delivery.options.get("multiLine"):
        # Other line breaks are no ends of lines.
        asks = bool(set("\r\n") - set(line_end) & set(text))
        text = text.replace("\n", "\ue000").replace(line_end.replace("\n", "\ue000"), "\n").replace("\r", "\ue001")
    elif line_end is not None:
        asks, text = True, text.replace(line_end, "\n")
    try:
        found = records(text, delivery.options.get("sep", ","))
    except ValueError as error:
        return Expected(whole=str(error))
    blanks = [one for one in found if len(one) == 1 and not one[0][1] and not one[0][0].strip(" \t")]
    first = next((one for one in found if one not in blanks), [])
    asks = asks or any(one[0][0] for one in blanks) or (len(first) == 1 and bool(blanks))
    if len(first) != 1 or delivery.options.get("header"):
        before = next((at for at, one in enumerate(found) if one not in blanks), 0)
        found = found[before:]
    found = [one for one in found if len(first) == 1 or one not in blanks]
    if any(set("\ue000\ue001") & set(value) for one in found for value, is_quoted in one if not is_quoted):
        return Expected(whole="line breaks outside quotes that are no ends of lines")
    names = list(delivery.columns)
    if delivery.options.get("header") and found:
        header = [value for value, _ in found.pop(0)]
        lowered = [name.lower() for name in header]
        if any(ord(char) < 32 for char in "".join(header)):
            return Expected(whole="the header has control characters")
        if delivery.infers:
            delivery = replace(delivery, columns=dict.fromkeys(header, "any"))
            names = header
        elif len(set(lowered)) < len(lowered) or (not by_name and lowered != [name.lower() for name in names]):
            return Expected(whole="the header is not that of the schema")
        names = [next((own for own in names if own.lower() == name.lower()), f"?{name}") for name in header]
    has_breaks = any("\n" in value or "\r" in value for record in found for value, _ in record)
    is_blank = any(not "".join(value for value, _ in record).strip(_CONTROLS) for record in found)
    # No quote may stand in a plain value, and whoever counts quotes takes what follows for a quoted one.
    has_bare_quote = any('"' in value and not is_quoted for record in found for value, is_quoted in record)
    # Spark's multiLine knows one end of lines, and makes LF of it in values.
    # It looks for that end in what the first member of an archive gives.
    is_cut = "packed: members" in delivery.faults
    asks = asks or (
        "\r" in text
        and bool(delivery.options.get("multiLine"))
        and (has_breaks or is_cut or len(set(_BREAK.findall(text))) > 1)
    )
    asks = (
        asks
        or (has_breaks and not delivery.options.get("multiLine"))
        or (is_blank and (delivery.options.get("sep") == "\t" or len(names) == 1))
        or (has_bare_quote and "\r" in text)
        or (delivery.infers and any(_is_sparks(value) for record in found for value, _ in record))
    )
    result = Expected(asks=asks)
    for record in found:
        if len(record) != len(names):
            result.broken += 1
            continue
        own = dict(zip(names, record, strict=True))
        row = {name: _of_csv(*own[name], kind) if name in own else None for name, kind in delivery.columns.items()}
        if own.keys() - delivery.columns.keys():
            result.beyond.add(len(result.rows))
        result.rows.append(row)
    return result


def _of_csv(text: str, quoted: bool, kind: str) -> Any:
    if kind == "any":
        return Inferred(text)
    if kind == "BINARY":
        return text.encode() or None
    if kind == "STRING":
        return text if text or quoted else None
    return None if not text else _typed(text, kind)


_BREAK = re.compile("\r\n|\r|\n")
_BITS = {"BIGINT": 63, "INT": 31, "SMALLINT": 15, "TINYINT": 7}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OF_JAVA = re.compile(
    rf"[\x00-\x20]*({_NUMBER.pattern}|[+-]?0[xX][\da-fA-F]+\.?[\da-fA-F]*[pP][+-]?\d+)[dDfF]?[\x00-\x20]*"
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d?):(\d\d?)(?::(\d\d?))?(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?")
_LIKE_A_MOMENT = re.compile(r"[\x00-\x20]*[+-]?\d{4,}-\d\d?(-\d\d?([T ].*)?)?[\x00-\x20]*")


def _typed(text: str, kind: str) -> Any:
    """A value that is written as text; an integer of JSON is one, too."""
    if kind in _BITS:
        bits = _BITS[kind]
        strict = re.fullmatch(r"[+-]?\d+", text)
        if not strict and not re.fullmatch(r"[ \t]*[+-]?\d+[ \t]*", text):
            return UNFIT
        if not -(2**bits) <= int(text) < 2**bits:
            return UNFIT
        return int(text) if strict else Lenient(int(text))
    if kind == "DOUBLE":
        if text in ("NaN", "Infinity"):
            return Lenient(float(text))
        return float(text) if _NUMBER.fullmatch(text) and abs(float(text)) != float("inf") else UNFIT
    if kind == "FLOAT":
        return _single(float(text)) if _NUMBER.fullmatch(text) else UNFIT
    if kind.startswith("DECIMAL"):
        precision, scale = (int(part) for part in re.findall(r"\d+", kind))
        return _decimal(Decimal(text), precision, scale) if _NUMBER.fullmatch(text) else UNFIT
    if kind == "BOOLEAN":
        return {"true": True, "false": False}.get(text.lower(), UNFIT)
    if kind == "DATE":
        return _day(text)
    return _moment(text, kind)


def _is_sparks(text: str) -> bool:
    """Whether Java alone takes it for a finite number, or Spark alone for a moment (today's, or one that a TIMESTAMP
    does not hold whole): Spark may find this type for a column, and a reader may stop at it."""
    if re.fullmatch(r"T?\d\d?:\d\d?(:\d\d?(\.\d*)?)?", text):
        return True
    if _LIKE_A_MOMENT.fullmatch(text) and _typed(text, "TIMESTAMP") is UNFIT:
        return True
    return bool(_OF_JAVA.fullmatch(text)) and _typed(text.strip(" \t"), "DOUBLE") is UNFIT


def _single(value: float) -> Any:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return UNFIT


def _decimal(value: Decimal, precision: int, scale: int) -> Any:
    try:
        fitting = value.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return UNFIT
    return fitting if fitting == value and len(str(abs(int(fitting)))) <= precision - scale else UNFIT


def _day(text: str) -> Any:
    strict = re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    loose = re.fullmatch(r"(\d{4})-?(\d\d?)-?(\d\d?)(?:[T ]00:00:00)?", text)
    if not loose:
        return UNFIT
    try:
        day = dt.date(*(int(part) for part in loose.groups()))
    except ValueError:
        return UNFIT
    return day if strict else Lenient(day)


def _moment(text: str, kind: str) -> Any:
    found = _MOMENT.fullmatch(text)
    if found is None:
        day = _day(text)
        day = day.value if isinstance(day, Lenient) else day
        if day is not UNFIT and "-" in text:
            moment = dt.datetime.combine(day, dt.time())
            return Lenient(moment if kind == "TIMESTAMP_NTZ" else moment.replace(tzinfo=dt.UTC))
        return UNFIT
    day_text, *parts, fraction, zone = found.groups()
    if (fraction or "")[6:].strip("0") or (zone and kind == "TIMESTAMP_NTZ"):
        return UNFIT
    try:
        moment = dt.datetime.fromisoformat(f"{day_text}T{':'.join((part or '0').zfill(2) for part in parts)}")
    except ValueError:
        return UNFIT
    moment = moment.replace(microsecond=int((fraction or "")[:6].ljust(6, "0")))
    if kind == "TIMESTAMP":
        moment = dt.datetime.fromisoformat(f"{moment.isoformat()}{(zone or '+00:00').replace('Z', '+00:00')}")
    return moment if all(len(part or "") == 2 for part in parts) else Lenient(moment)


class _Raw(str):
    """A number of JSON, as it is written."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is none of JSON")


def _loads(text: str) -> Any:
    value = json.loads(text, object_pairs_hook=_pairs, parse_int=_Raw, parse_float=_Raw, parse_constant=_no_number)
    json.dumps(value, ensure_ascii=False).encode()  # a half of a character alone is none
    return value


def _json(delivery: Delivery, text: str, by_name: bool) -> Expected:
    # Spark describes the types of what it rescues, and its descriptions are not as deep as JSON may be.
    result = Expected(asks=(by_name or delivery.infers) and "[" * 100 in text)
    blank = " \t\r\n"
    line_end = delivery.options.get("lineSep", "\n" if "encoding" in delivery.options else None)
    ends = re.escape(line_end) if line_end else "\r\n|\r|\n"
    texts = [text] if delivery.options.get("multiLine") else re.split(ends, text)
    keys: set[str] = set()
    nested: set[str] = set()
    for one in texts:
        if not one.strip(blank):
            continue
        try:
            value = _loads(one.strip(blank).removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            result.broken += 1
            continue
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            if not isinstance(row, dict):
                result.broken += 1
                continue
            keys.update(row)
            if delivery.infers:
                result.asks = result.asks or any(isinstance(part, str) and _is_sparks(part) for part in row.values())
                result.rows.append({n: _inferred(part) for n, part in row.items() if not isinstance(part, dict | list)})
                nested |= {name for part in row.values() if isinstance(part, dict) for name in part}
                continue
            found = {name: _of_json(row.get(name), kind) for name, kind in delivery.columns.items()}
            lowered = {name.lower(): name for name in delivery.columns}
            found |= {lowered[n.lower()]: UNFIT for n in row if lowered.get(n.lower(), n) != n}
            if row.keys() - delivery.columns.keys():
                result.beyond.add(len(result.rows))
            result.rows.append(found)
    if delivery.infers:
        odd = "" in keys or len({key.lower() for key in keys}) < len(keys) or {"b", "B"} <= nested
        result.asks = result.asks or odd
        result.rows = [] if odd else result.rows
        result.whole = "keys that are no columns" if odd else ""
        return result
    result.asks = result.asks or (by_name and "" in keys)
    missing = delivery.columns.keys() - keys
    if keys and missing and keys - delivery.columns.keys() and not by_name:
        result.whole = f"{sorted(missing)} are in no row"
    return result


def _inferred(value: Any) -> Any:
    if isinstance(value, bool):
        return Inferred(str(value).lower())
    return Inferred(value) if value is None or isinstance(value, str) else value


def _of_json(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.startswith("ARRAY"):
        return _parts([_of_json(one, kind[6:-1]) for one in value]) if isinstance(value, list) else UNFIT
    if kind.startswith("MAP"):
        if not isinstance(value, dict):
            return UNFIT
        return _parts({name: _of_json(one, "DATE") for name, one in value.items()})
    if kind.startswith("STRUCT"):
        if not isinstance(value, dict):
            return UNFIT
        if value.keys() - {"at", "n"}:
            return UNFIT
        return _parts({"at": _of_json(value.get("at"), "TIMESTAMP"), "n": _of_json(value.get("n"), "BIGINT")})
    if kind == "STRING":
        return value if type(value) is str else Lenient(value)
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else UNFIT
    if isinstance(value, bool | list | dict):
        return UNFIT
    if kind == "BINARY":
        try:
            return UNFIT if isinstance(value, _Raw) else base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return UNFIT
    if isinstance(value, _Raw) and kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return UNFIT
    if not isinstance(value, _Raw) and kind in (*_BITS, "DOUBLE", "FLOAT"):
        found = _typed(value, kind)
        return UNFIT if found is UNFIT else Lenient(found.value if isinstance(found, Lenient) else found)
    return _typed(value, kind)


def _parts(value: Any) -> Any:
    inner = list(value.values()) if isinstance(value, dict) else value
    if any(one is UNFIT for one in inner):
        return UNFIT
    if not any(isinstance(one, Lenient) for one in inner):
        return value
    plain = [one.value if isinstance(one, Lenient) else one for one in inner]
    return Lenient(dict(zip(value, plain, strict=True)) if isinstance(value, dict) else plain)


def _parquet(delivery: Delivery, by_name: bool) -> Expected:
    try:
        table = pq.ParquetFile(io.BytesIO(delivery.data)).read()
    except (OSError, pa.ArrowException) as error:
        return Expected(whole=str(error)) if delivery.data else Expected()
    if delivery.infers:
        known = [name for name in table.column_names if name in delivery.columns and name != "odd"]
        rows = table.select(known).to_pylist()
        # Of what Spark makes of types that it does not have, nothing is said.
        return Expected([{k: v for k, v in row.items() if _is_plain(v)} for row in rows], asks=True)
    own = {name.lower(): table.column(name) for name in table.column_names}
    missing, more = delivery.columns.keys() - own.keys(), own.keys() - delivery.columns.keys()
    if missing and more and not by_name:
        return Expected(whole=f"{sorted(missing)} are in no row")
    columns = {
        name: _column(own[name], kind) if name in own else [None] * len(table)
        for name, kind in delivery.columns.items()
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Expected(rows, asks=not table.column_names, beyond=set(range(len(rows))) if more else set())


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | str)


def _within(own: pa.DataType, kind: str) -> bool | None:
    """Whether a type with parts is the one that is wanted, with all of its values; None: it may be refused, too."""
    if kind.startswith("ARRAY"):
        return bool(pa.types.is_list(own) and own.value_type == pa.decimal128(6, 1))
    if kind.startswith("MAP"):
        return bool(pa.types.is_map(own) and own.item_type == pa.date32())
    wanted = {"at": pa.timestamp("us", "UTC"), "n": pa.int64()}
    fields = {field.name: field.type for field in own} if pa.types.is_struct(own) else {"": None}
    if {name.lower() for name in fields} - wanted.keys():
        return False
    same = all(wanted.get(name) == one for name, one in fields.items())
    return True if same else None if all(one == pa.int32() or n in "N" for n, one in fields.items()) else False


def _column(values: pa.ChunkedArray, kind: str) -> list[Any]:
    own = values.type
    if kind.startswith(("ARRAY", "MAP", "STRUCT")):
        is_same = _within(own, kind)
        pads = {"at": None, "n": None} if kind.startswith("STRUCT") else {}
        plain = [
            {**pads, **{k.lower(): v for k, v in one.items()}} if isinstance(one, dict) else one
            for one in values.to_pylist(maps_as_pydicts="strict")
        ]
        if is_same is False:
            return [None if one is None else UNFIT for one in plain]
        return [one if is_same or one is None else Lenient(one) for one in plain]
    if pa.types.is_timestamp(own) and own.unit == "ns":
        numbers = values.cast(pa.int64()).to_pylist()
        if kind == "BIGINT":
            return [None if number is None else Lenient(number) for number in numbers]
        values = pa.chunked_array([[None if n is None else n // 1000 for n in numbers]], pa.int64()).cast(
            pa.timestamp("us", own.tz)
        )
        fits = [number is None or number % 1000 == 0 for number in numbers]
    else:
        fits = [True] * len(values)
    return [
        (None if value is None else _of_arrow(value, kind)) if fit else UNFIT
        for value, fit in zip(values.to_pylist(), fits, strict=True)
    ]


def _of_arrow(value: Any, kind: str) -> Any:
    if kind == "BINARY":
        return value if isinstance(value, bytes) else Lenient(value.encode()) if isinstance(value, str) else UNFIT
    if kind == "STRING":
        if isinstance(value, bytes):
            try:
                return Lenient(value.decode())
            except UnicodeDecodeError:
                return UNFIT
        # A STRING may hold the text of any plain value; a duration is a whole number to Parquet.
        return value if isinstance(value, str) else UNFIT if isinstance(value, list | dict) else Lenient(str(value))
    if isinstance(value, str | bytes):
        return UNFIT
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else UNFIT
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return _time_of_arrow(value, kind)
    if isinstance(value, dt.date | bool):
        return UNFIT
    if kind == "FLOAT":
        return UNFIT if _single(float(value)) != value else Lenient(float(value))
    if kind == "DOUBLE":
        return value if isinstance(value, float) else Lenient(float(value)) if float(value) == value else UNFIT
    if isinstance(value, float):
        found = _typed(repr(value).removesuffix(".0"), kind)
        return found if found is UNFIT else Lenient(found)
    found = _typed(str(value).removesuffix(".0"), kind)
    return found if found is UNFIT or isinstance(value, int) else Lenient(found)


def _time_of_arrow(value: Any, kind: str) -> Any:
    if not isinstance(value, dt.date):
        return UNFIT
    if not isinstance(value, dt.datetime):
        if kind == "DATE":
            return value
        moment = dt.datetime.combine(value, dt.time())
        return Lenient(moment if kind == "TIMESTAMP_NTZ" else moment.replace(tzinfo=dt.UTC))
    if kind == "DATE":
        return UNFIT
    if kind == "TIMESTAMP":
        return value if value.tzinfo else Lenient(value.replace(tzinfo=dt.UTC))
    return UNFIT if value.tzinfo else value
