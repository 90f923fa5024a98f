"""Writers of landing files: rows by the grammar of a format, with faults by its grammar."""

from __future__ import annotations

import base64
import bz2
import datetime as dt
import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = {
    "id": "BIGINT",
    "small": "INT",
    "name": "STRING",
    "ratio": "DOUBLE",
    "price": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "little": "SMALLINT",
    "single": "FLOAT",
    "raw": "BINARY",
}
NESTED = {"tags": "ARRAY<DECIMAL(6,1)>", "part": "STRUCT<at: TIMESTAMP, n: BIGINT>", "more": "MAP<STRING, DATE>"}

ODD: dict[str, tuple[str, ...]] = {
    "BIGINT": ("9223372036854775808", "1.5", "1e3", "-0", "x", " 7", "7\x01"),
    "INT": ("2147483648", "1.0", "0x10", "007"),
    "STRING": ("", " ", "a\u2028b", "é", "NULL", "a\tb", "12", "\U0001f600"),
    "DOUBLE": (
        "1e400",
        "NaN",
        "Infinity",
        "1e-400",
        "12345678901234567890",
        ".5",
        "1,5",
        "1d",
        "1f",
        "0x1p3",
        "1.5\x01",
    ),
    "DECIMAL(10,2)": (
        "1.555",
        "1.550",
        "123456789.1",
        "1e2",
        "1.234e1",
        "12345e-2",
        "12345e-3",
        "1,50",
        "1,234.5",
        "1.5\x01",
        "NaN",
        "-0.00",
    ),
    "DATE": (
        "12:30",
        "2024-02-30",
        "2024",
        "2024-05",
        "2024-01-01 23:00:00",
        "20240101",
        "2024-1-2",
        "2024-01-1\0",
        "now",
    ),
    "TIMESTAMP": (
        "12:30",
        "2024-01-01T00:00:00.123456789Z",
        "2024-01-01T00:00:00.123456000Z",
        "2024-01-01 10:00:00+02:00",
        "1700000000000",
        "2024-01-01",
        "2024",
        "today",
        "2024-01-01T25:00:00Z",
    ),
    "TIMESTAMP_NTZ": ("2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00.1234567", "12:30", "2024-01-01 01:02:03"),
    "BOOLEAN": ("yes", "1", "TRUE", "t"),
    "TINYINT": ("127", "128", "255", "300", "-128", "-129", "1.0"),
    "SMALLINT": ("32768", "65535", "-32769", "1.0"),
    "FLOAT": ("1e39", "16777217", "0.1", "1d", "1e-50"),
    "BINARY": ("###", "YQ", "ä"),
}
"""Values that a parser may change, by the type of the column that they are in."""


@dataclass
class Delivery:
    """A file and how the project file says it is to be read.

    Attributes:
        faults: what the writer did.
        infers: the project file names no columns.
        required: the column that is NOT NULL.
    """

    format: str
    name: str
    data: bytes
    columns: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    infers: bool = False
    required: str = ""

    @property
    def schema(self) -> str:
        """The columns in Spark's DDL."""
        kinds = {name: f"{kind} NOT NULL" if name == self.required else kind for name, kind in self.columns.items()}
        return ", ".join(f"{name} {kind}" for name, kind in kinds.items())

    @property
    def of_folder(self) -> tuple[str, str] | None:
        """The column that a folder names, and the text there."""
        name, equals, text = self.name.partition("/")[0].partition("=")
        return (name, text) if equals else None


def _good(draw: random.Random, number: int) -> dict[str, Any]:
    moment = dt.datetime(2024, 1, 1) + dt.timedelta(seconds=draw.randrange(10**7), microseconds=draw.randrange(10**6))
    return {
        "id": number,
        "small": draw.randrange(-100, 100),
        "name": f"name {draw.randrange(1000)}",
        "ratio": draw.random(),
        "price": Decimal(draw.randrange(10**6)) / 100,
        "day": moment.date(),
        "at": moment,
        "local": moment.replace(microsecond=0),
        "flag": draw.random() < 0.5,
        "tiny": draw.randrange(-128, 128),
        "little": draw.randrange(-(2**15), 2**15),
        "single": draw.randrange(1000) / 8,
        "raw": draw.randbytes(3),
    }


def _texts(row: dict[str, Any]) -> dict[str, str]:
    found = {name: str(value) for name, value in row.items()}
    raw = base64.b64encode(row["raw"]).decode()
    return found | {"at": f"{row['at'].isoformat()}Z", "flag": str(row["flag"]).lower(), "raw": raw}


def _drawn(draw: random.Random) -> dict[str, str]:
    names = [name for name in COLUMNS if name == "id" or draw.random() < 0.6]
    if draw.random() < 0.1:
        names = [draw.choice(("id", "name", "ratio"))]
    return {name: COLUMNS[name] for name in names}


def _in_a_folder(draw: random.Random, delivery: Delivery) -> None:
    kind = draw.choice(("DECIMAL(4,2)", "TIMESTAMP", "BOOLEAN", "TINYINT", "DOUBLE", "DATE", "STRING"))
    texts = (
        "1.50",
        "1.555",
        "yes",
        "true",
        "128",
        "7",
        "1d",
        "2024-01-01",
        "2024-01-01 10%3A00%3A00.1234567",
        "12%3A30",
    )
    delivery.columns = {**delivery.columns, "n": kind}
    delivery.name = f"n={draw.choice(texts)}/{delivery.name}"


def _wide(draw: random.Random, delivery: Delivery, faults: list[str]) -> Delivery:
    """``delivery`` with faults that are not of its text: how the project file has it, and where it lies."""
    if "folder" in faults:
        _in_a_folder(draw, delivery)
    if "NOT NULL" in faults:
        delivery.required = draw.choice(list(delivery.columns))
    return delivery


def _packed(draw: random.Random, delivery: Delivery) -> Delivery:
    kind = draw.choice(("",) * 12 + ("gz", "members", "cut", "bz2", "behind"))
    if kind and delivery.data:
        half = len(delivery.data) // 2
        delivery.faults.append(f"packed: {kind}")
        delivery.name += ".bz2" if kind == "bz2" else ".gz"
        delivery.data = {
            "gz": gzip.compress(delivery.data),
            "members": gzip.compress(delivery.data[:half]) + gzip.compress(delivery.data[half:]),
            "cut": gzip.compress(delivery.data)[:-12],
            "bz2": bz2.compress(delivery.data),
            "behind": gzip.compress(delivery.data) + b"behind",
        }[kind]
    return delivery


def csv_delivery(draw: random.Random, only: str | None = None) -> Delivery:
    """A CSV file with up to two faults.

    Args:
        only: the fault to make.
    """
    columns = _drawn(draw)
    faults = [only] if only else draw.sample(sorted(_CSV), draw.choice((0, 1, 1, 1, 2)))
    if _ACROSS in faults:
        columns["name"] = COLUMNS["name"]
    separator, end = draw.choice(",,,;\t|"), draw.choice(("\n", "\n", "\r\n", "\r"))
    has_header, quotes_all = only == "infers" or draw.random() < 0.7, draw.random() < 0.3
    rows = [{k: v for k, v in _texts(_good(draw, i)).items() if k in columns} for i in range(draw.randrange(1, 6))]
    options = {"header": "true"} if has_header else {}
    if separator != ",":
        options["sep"] = separator
    is_multi_line = draw.random() < 0.25
    has_header = has_header or "infers" in faults
    if is_multi_line or _ACROSS in faults:
        options["multiLine"] = "true"
    for fault in faults:
        if fault in ("odd value", "infers"):
            name = draw.choice(list(columns))
            draw.choice(rows)[name] = draw.choice(ODD[columns[name]])
        elif fault == "controls" and "name" in columns:
            draw.choice(rows)["name"] = "a" + "".join(draw.choices("ab\0\x01\x1f\"',", k=draw.randint(1, 4))) + "b"
        elif fault in _IN_VALUES and "name" in columns:
            draw.choice(rows)["name"] = _IN_VALUES[fault].replace("\n", draw.choice(("\n", "\r\n", "\r")))

    def value(text: str, raw: bool = False) -> str:
        needs = any(c in text for c in (separator, '"', "\n", "\r")) or text.startswith(" ")
        return text if raw or not (quotes_all or needs) else '"' + text.replace('"', '""') + '"'

    header = [separator.join(value(name) for name in columns)] if has_header else []
    lines = header + [separator.join(value(row[name]) for name in columns) for row in rows]
    for fault in faults:
        if fault in _CSV and _CSV[fault] is not None:
            lines = _CSV[fault](draw, lines, separator, has_header)
    text = end.join(lines) + (end if draw.random() < 0.8 else "")
    if "mixed ends" in faults:
        text = text.replace(end, draw.choice(("\n", "\r\n", "\r")), draw.randrange(1, 3))
    encoding = "utf-8"
    if "latin" in faults:
        text, encoding = text.replace("name", "nämé", 5) if not has_header else text + f"{end}é", "latin-1"
    if "latin, said" in faults:
        encoding = options["encoding"] = "ISO-8859-1"
    if "other encoding" in faults:
        encoding = options["encoding"] = draw.choice(("UTF-16LE", "UTF-16", "windows-1252", "US-ASCII"))
        if encoding.startswith("UTF-16"):
            # Without it, such a project is refused at load.
            options["multiLine"] = "true"
    if "lineSep" in faults:
        options["lineSep"] = draw.choice(("\n", "\r", "|"))
        text = text.replace(end, draw.choice((end, options["lineSep"])))
    if "NULs at the end" in faults:
        text += "\0" * draw.choice((1, 512))
    if "infers" in faults:
        options |= {"header": "true", "inferSchema": "true"}
    data = text.encode(encoding, "replace")
    data = b"\xef\xbb\xbf" + data if "mark" in faults and encoding == "utf-8" else data
    if "cut" in faults:
        data = data[: draw.randrange(len(data)) + 1]
    if "no bytes" in faults:
        data = b""
    delivery = _wide(draw, Delivery("csv", "a.csv", data, columns, options, faults, infers="infers" in faults), faults)
    return delivery if only else _packed(draw, delivery)


_Lines = Callable[[random.Random, list[str], str, bool], list[str]]


def _on_a_line(change: Callable[[random.Random, str, str], str]) -> _Lines:
    def changed(draw: random.Random, lines: list[str], separator: str, has_header: bool) -> list[str]:
        at = draw.randrange(int(has_header), len(lines))
        return [*lines[:at], change(draw, lines[at], separator), *lines[at + 1 :]]

    return changed


def _header(change: Callable[[str], str]) -> _Lines:
    return lambda _draw, lines, _sep, has_header: [change(lines[0]), *lines[1:]] if has_header else lines


_ACROSS = "line break, multiLine"
_IN_VALUES = {
    "line break": "a\nb",
    _ACROSS: "a\nb",
    "quote": 'a "b" c',
    "NUL": "a\0b",
    "separator": "a,b;c|d\te",
    "comment": "#x",
}
_CSV: dict[str, _Lines | None] = {
    "odd value": None,
    **dict.fromkeys(_IN_VALUES),
    "controls": None,
    "latin": None,
    "latin, said": None,
    "mark": None,
    "mixed ends": None,
    "cut": None,
    "no bytes": None,
    **dict.fromkeys(("other encoding", "lineSep", "NULs at the end", "infers", "folder", "NOT NULL")),
    "NUL block": _on_a_line(lambda _, line, __: f"{line}\n{chr(0) * 64}"),
    "NULs first": lambda _, lines, __, ___: [chr(0) * 64, *lines],
    "NULs alone": lambda _, lines, __, ___: [chr(0) * len(line) for line in lines],
    "control Z": lambda _, lines, __, ___: [*lines, "\x1a"],
    "blank behind the quote": _on_a_line(lambda _, line, sep: f'{line.rpartition(sep)[0]}{sep}"1" '),
    "one value less": _on_a_line(lambda _, line, sep: line.rpartition(sep)[0]),
    "one value more": _on_a_line(lambda _, line, sep: line + sep + "more"),
    "empty in quotes": _on_a_line(
        lambda _, line, sep: line.partition(sep)[0] + sep + '""' + "".join(line.partition(sep)[2].partition(sep)[1:])
    ),
    "empty": _on_a_line(
        lambda _, line, sep: line.partition(sep)[0] + sep + "".join(line.partition(sep)[2].partition(sep)[1:])
    ),
    "all empty": _on_a_line(lambda _, line, sep: sep * line.count(sep)),
    "quote not closed": _on_a_line(lambda _, line, sep: line.rpartition(sep)[0] + sep + '"' + line.rpartition(sep)[2]),
    "behind the quote": _on_a_line(lambda _, line, sep: '"1"x' + sep + line.partition(sep)[2]),
    "quote in a plain value": _on_a_line(
        lambda _, line, sep: line.partition(sep)[0] + sep + '5" x' + "".join(line.partition(sep)[2].partition(sep)[1:])
    ),
    "blank line": _on_a_line(lambda _, line, __: f"{line}\n\n"),
    "line of blanks": _on_a_line(lambda _, line, __: f"{line}\n  \n"),
    "header twice": lambda _, lines, __, has: [*lines, lines[0]] if has else lines,
    "header renamed": _header(lambda line: line.replace("id", "key", 1)),
    "header in capitals": _header(str.upper),
    "header with a column twice": _header(lambda line: line.replace("name", "id")),
    "two rows on a line": lambda _, lines, sep, __: [*lines[:-1], lines[-1] + sep + lines[-1]],
}


def json_delivery(draw: random.Random, only: str | None = None) -> Delivery:
    """A file of JSON lines, or one JSON text, with up to two faults."""
    columns = _drawn(draw) | ({k: v for k, v in NESTED.items() if draw.random() < 0.4})
    options = {"multiLine": "true"} if draw.random() < 0.25 else {}
    faults = [only] if only else draw.sample(sorted(_JSON), draw.choice((0, 1, 1, 1, 2)))
    lines = [_json_line(draw, columns, number) for number in range(draw.randrange(1, 6))]
    for fault in faults:
        if fault in ("odd value", "infers"):
            name = draw.choice([one for one in columns if one in COLUMNS])
            odd = draw.choice(ODD[columns[name]])
            raw = odd if draw.random() < 0.5 and _is_json(odd) else json.dumps(odd)
            lines[draw.randrange(len(lines))][name] = raw
        elif fault == "odd part":
            name = draw.choice([*NESTED])
            columns[name] = NESTED[name]
            odd = {
                "tags": ("[1.25]", "[null, 1.5]"),
                "part": ('{"at": "12:30", "n": 1}', '{"n": 1, "n": 2}', '{"n": 1.5}'),
            }
            lines[0][name] = draw.choice(odd.get(name, ('{"a": "2024-05"}', '{"a": "2024-01-01", "a": "2024-01-02"}')))
        elif fault == "sparse":
            lines = [*lines, {name: raw for name, raw in _json_line(draw, columns, 90).items() if name == "id"}]
        elif fault == "renamed":
            lines = [{("key" if name == "id" else name): raw for name, raw in line.items()} for line in lines]
        elif fault == "undeclared":
            lines[0]["other"] = "[1]"
        elif fault == "empty key":
            lines[0][""] = "5"
        elif fault == "capitals":
            at = draw.randrange(len(lines))
            lines[at] = {name.upper(): raw for name, raw in lines[at].items()}
        elif fault == "capitals within":
            lines[0] |= {"other": '{"b": 1}'}
            lines[-1] |= {"other": '{"B": 2}'}
        elif fault in _WITHIN:
            columns["part"] = NESTED["part"]
            for line in lines:
                line["part"] = _WITHIN[fault]
        elif fault == "NOT NULL":
            columns["id"] = COLUMNS["id"]
            lines[-1]["id"] = draw.choice(("null", lines[-1].get("id", "1")))
    spaces = draw.choice(("", " "))
    texts = ["{" + ",".join(f"{json.dumps(k)}:{spaces}{raw}" for k, raw in line.items()) + "}" for line in lines]
    for fault in faults:
        if (change := _JSON[fault]) is not None:
            at = draw.randrange(len(texts))
            texts[at] = change(texts[at])
    end = draw.choice(("\n", "\n", "\r\n"))
    text = end.join(texts) + (end if draw.random() < 0.8 else "")
    if "lineSep" in faults and not options:
        options["lineSep"] = draw.choice(("\n", "\r\n", "\r", "|"))
        ends = (options["lineSep"], draw.choice(("\n", "\r\n", "\r", options["lineSep"])))
        text = "".join(one + draw.choice(ends) for one in texts)
    if "NULs at the end" in faults:
        text += "\0" * 64
    if "multiLine" in options and "lines with multiLine" not in faults:
        text = texts[0] if len(texts) == 1 and draw.random() < 0.5 else "[" + f",{end}".join(texts) + "]"
        text += draw.choice(("", "\n", "[]" if "behind" in faults else " "))
    data = text.encode("utf-8", "surrogatepass")
    if "other encoding" in faults:
        options["encoding"] = draw.choice(("ISO-8859-1", "UTF-16LE", "UTF-16", "windows-1252"))
        data = text.encode(options["encoding"], "replace")
    if "infers" in faults:
        columns = {name: kind for name, kind in columns.items() if name in COLUMNS}
        options["inferTimestamp"] = "true"
    if "bytes" in faults:
        data = data.replace(b'"', b'"\xe4', 1)
    if "utf-16" in faults:
        data = text.encode("utf-16", "replace")
    data = b"\xef\xbb\xbf" + data if "mark" in faults else data
    if "cut" in faults:
        data = data[: draw.randrange(len(data)) + 1]
    if "no bytes" in faults:
        data = b""
    infers = "infers" in faults
    delivery = _wide(draw, Delivery("json", "a.json", data, columns, options, faults, infers=infers), faults)
    if "NOT NULL" in faults:
        delivery.required = "id"
    return delivery if only else _packed(draw, delivery)


def _json_line(draw: random.Random, columns: dict[str, str], number: int) -> dict[str, str]:
    row = _good(draw, number)
    texts = _texts(row)
    plain = ("id", "small", "ratio", "flag", "tiny", "little", "single")
    found = {name: texts[name] if name in plain else json.dumps(texts[name]) for name in columns if name in texts}
    if "price" in found and draw.random() < 0.5:
        found["price"] = texts["price"]
    parts = {"tags": "[1.5, 2]", "part": '{"at": "2024-01-01T00:00:00Z", "n": 1}', "more": '{"a": "2024-01-01"}'}
    return found | {name: parts[name] for name in columns if name in parts}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return text in ("NaN", "Infinity")
    return True


_WITHIN = {
    "part renamed": '{"at": null, "m": 1}',
    "part more": '{"n": 1, "m": 1}',
    "part in capitals": '{"N": 1}',
}
_JSON: dict[str, Callable[[str], str] | None] = {
    **dict.fromkeys((*_WITHIN, "empty key", "capitals", "capitals within", "lineSep", "NULs at the end")),
    **dict.fromkeys(("other encoding", "infers", "folder", "NOT NULL")),
    "NUL block": lambda text: f"{text}\n{chr(0) * 64}",
    "control Z": lambda text: f"{text}\n\x1a",
    **dict.fromkeys(("odd value", "odd part", "sparse", "renamed", "undeclared", "bytes", "utf-16", "mark", "cut")),
    **dict.fromkeys(("no bytes", "lines with multiLine", "behind")),
    "twice on a line": lambda text: text + text,
    "twice with a comma": lambda text: f"{text},{text}",
    "behind the object": lambda text: f"{text} x",
    "a bracket behind": lambda text: text + "}",
    "a comma behind": lambda text: text + ",",
    "key twice": lambda text: text[:-1] + ',"id": 77}',
    "half a character": lambda text: (
        text[:-1] + ',"name": "\\ud800"}' if '"name"' not in text else text.replace("name ", "\\udc00")
    ),
    "whole character": lambda text: text.replace("name ", "\\ud83d\\ude00"),
    "null": lambda text: f"{text}\nnull",
    "a number": lambda text: f"5\n{text}",
    "an array": lambda text: f"[{text}]",
    "an array with null": lambda text: f"[{text},null]",
    "blank line": lambda text: f"{text}\n\n  ",
    "single quotes": lambda text: text.replace('"', "'"),
    "comment": lambda text: f"{text}//x",
    "leading zero": lambda text: text.replace(":", ":0", 1),
    "no value": lambda text: text.replace(":", ":,", 1),
    "deep": lambda text: text[:-1] + ',"deep":' + "[" * 600 + "]" * 600 + "}",
    "escaped key": lambda text: text.replace('"id"', '"\\u0069d"'),
    "control character": lambda text: text.replace("name ", "name\x01"),
    "mark within": lambda text: "\ufeff" + text,
}

_UTC = pa.timestamp("us", "UTC")
_ARROW: dict[str, tuple[tuple[str, Callable[[], pa.Array]], ...]] = {
    "BIGINT": (
        ("int32", lambda: pa.array([1, None, 3], pa.int32())),
        ("uint64", lambda: pa.array([1, 2**63, 3], pa.uint64())),
        ("small uint64", lambda: pa.array([1, 2, 3], pa.uint64())),
        ("uint32", lambda: pa.array([1, 2**31, 3], pa.uint32())),
        ("double", lambda: pa.array([1.0, 2.0, 3.5])),
        ("decimal", lambda: pa.array([Decimal("1.0"), Decimal("2.5"), None], pa.decimal128(10, 1))),
        ("text", lambda: pa.array(["1", "2", "3"])),
        ("nanoseconds", lambda: pa.array([1, 2, 3], pa.timestamp("ns"))),
        ("beyond", lambda: pa.array([1.0, 2.0**63, None])),
    ),
    "INT": (
        ("beyond", lambda: pa.array([1.0, 2.0**31, None], pa.float32())),
        ("int64", lambda: pa.array([1, 2, 2**40])),
        ("small int64", lambda: pa.array([1, 2, 3])),
        ("uint32", lambda: pa.array([1, 2**31, 3], pa.uint32())),
        ("int8", lambda: pa.array([1, -2, 3], pa.int8())),
    ),
    "STRING": (
        ("binary", lambda: pa.array([b"a", b"\xff", None], pa.binary())),
        ("binary of text", lambda: pa.array([b"a", "é".encode(), None], pa.binary())),
        ("dictionary", lambda: pa.array(["a", "b", "a"]).dictionary_encode()),
        ("large", lambda: pa.array(["a", "b", None], pa.large_string())),
        ("number", lambda: pa.array([1, 2, 3])),
    ),
    "DOUBLE": (
        ("float", lambda: pa.array([1.5, 2.5, None], pa.float32())),
        ("int64", lambda: pa.array([2**53 + 1, 2, 3])),
        ("int32", lambda: pa.array([1, 2, 3], pa.int32())),
        ("nan", lambda: pa.array([float("nan"), float("inf"), 1.0])),
    ),
    "DECIMAL(10,2)": (
        ("wider", lambda: pa.array([Decimal("1.555"), None, Decimal("2.000")], pa.decimal128(12, 3))),
        ("wider, exact", lambda: pa.array([Decimal("1.550"), None, Decimal("2.000")], pa.decimal128(12, 3))),
        ("narrower", lambda: pa.array([Decimal("1.5"), None, Decimal("2.0")], pa.decimal128(4, 1))),
        ("int64", lambda: pa.array([1, 2, 10**9])),
        ("double", lambda: pa.array([1.5, 1.555, None])),
    ),
    "DATE": (
        ("time", lambda: pa.array([dt.datetime(2024, 1, 1, 5)] * 3, pa.timestamp("us"))),
        ("date64", lambda: pa.array([dt.date(2024, 1, 1)] * 3, pa.date64())),
        ("text", lambda: pa.array(["2024-01-01"] * 3)),
        ("int32", lambda: pa.array([1, 2, 3], pa.int32())),
    ),
    "TIMESTAMP": (
        ("nanoseconds", lambda: pa.array([1, 1000, None], pa.timestamp("ns", "UTC"))),
        ("whole nanoseconds", lambda: pa.array([1000, 2000, None], pa.timestamp("ns", "UTC"))),
        ("without a zone", lambda: pa.array([1, 2, 3], pa.timestamp("us"))),
        ("milliseconds", lambda: pa.array([1, 2, 3], pa.timestamp("ms", "UTC"))),
        ("epoch", lambda: pa.array([1700000000000] * 3)),
        ("date", lambda: pa.array([dt.date(2024, 1, 1)] * 3)),
        ("text", lambda: pa.array(["2024-01-01"] * 3)),
    ),
    "TIMESTAMP_NTZ": (
        ("nanoseconds", lambda: pa.array([1, 1000, None], pa.timestamp("ns"))),
        ("with a zone", lambda: pa.array([1, 2, 3], pa.timestamp("us", "UTC"))),
        ("date", lambda: pa.array([dt.date(2024, 1, 1)] * 3)),
    ),
    "BOOLEAN": (("int", lambda: pa.array([1, 0, None])),),
    "TINYINT": (("int64", lambda: pa.array([1, 200, 3])), ("uint8", lambda: pa.array([1, 200, 3], pa.uint8()))),
    "SMALLINT": (("int64", lambda: pa.array([1, 2**15, 3])), ("double", lambda: pa.array([1.0, 32768.0, None]))),
    "FLOAT": (("double", lambda: pa.array([1.5, 0.1, None])), ("int64", lambda: pa.array([1, 2**24 + 1, 3]))),
    "BINARY": (("text", lambda: pa.array(["a", "ä", None])), ("int64", lambda: pa.array([1, 2, 3]))),
    "ARRAY<DECIMAL(6,1)>": (
        ("the same", lambda: pa.array([[Decimal("1.5")], None, []], pa.list_(pa.decimal128(6, 1)))),
        ("wider", lambda: pa.array([[Decimal("1.55")]] * 3, pa.list_(pa.decimal128(7, 2)))),
        ("numbers", lambda: pa.array([[1.5]] * 3)),
    ),
    "STRUCT<at: TIMESTAMP, n: BIGINT>": (
        ("the same", lambda: pa.array([{"at": None, "n": 1}] * 3, pa.struct([("at", _UTC), ("n", pa.int64())]))),
        ("sparse", lambda: pa.array([{"n": 1}, None, {"n": 2}])),
        ("more", lambda: pa.array([{"n": 1, "m": 2}] * 3)),
        ("renamed", lambda: pa.array([{"m": 2}] * 3)),
        ("in capitals", lambda: pa.array([{"N": 2}] * 3)),
        ("unsigned", lambda: pa.array([{"n": 2**63 + 1}] * 3, pa.struct([("n", pa.uint64())]))),
        ("narrow", lambda: pa.array([{"n": 2}] * 3, pa.struct([("n", pa.int32())]))),
    ),
    "MAP<STRING, DATE>": (
        ("the same", lambda: pa.array([[("a", dt.date(2024, 1, 1))]] * 3, pa.map_(pa.string(), pa.date32()))),
        (
            "times",
            lambda: pa.array([[("a", dt.datetime(2024, 1, 1, 5))]] * 3, pa.map_(pa.string(), pa.timestamp("us"))),
        ),
    ),
}
_FOREIGN = {
    "TIME": lambda: pa.array([5] * 3, pa.time64("us")),
    "DECIMAL(60)": lambda: pa.array([Decimal(10) ** 50] * 3, pa.decimal256(60, 0)),
    "duration": lambda: pa.array([5] * 3, pa.duration("us")),
    "no type": lambda: pa.nulls(3),
}
PLAIN = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10,2)": pa.decimal128(10, 2),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "FLOAT": pa.float32(),
    "BINARY": pa.binary(),
}
_PARQUET = (
    *("other type", "other type", "parts", "parts", "foreign", "no columns", "folder", "NOT NULL", "int96", "renamed"),
    *("capitals", "absent", "order", "cut", "garbage", "no bytes"),
)


def parquet_delivery(draw: random.Random, only: str | None = None) -> Delivery:
    """A Parquet file of three rows with up to two faults."""
    columns = _drawn(draw)
    faults = [only] if only else list(dict.fromkeys(draw.sample(_PARQUET, draw.choice((0, 1, 1, 2)))))
    rows = [_good(draw, number) for number in range(3)]
    arrays = {name: pa.array([row[name] for row in rows], PLAIN[kind]) for name, kind in columns.items()}
    how: dict[str, Any] = {"compression": draw.choice(("snappy", "zstd", "gzip"))}
    for number, fault in enumerate(faults):
        name = draw.choice(list(columns))
        if fault == "other type":
            what, made = draw.choice(_ARROW[columns[name]])
            arrays[name], faults[number] = made(), f"other type: {what}"
        elif fault == "parts":
            name = draw.choice(list(NESTED))
            what, made = draw.choice(_ARROW[NESTED[name]])
            columns[name], arrays[name], faults[number] = NESTED[name], made(), f"parts: {what}"
        elif fault == "foreign":
            what = draw.choice(list(_FOREIGN))
            columns["odd"], arrays["odd"], faults[number] = "STRING", _FOREIGN[what](), f"foreign: {what}"
        elif fault == "NOT NULL":
            columns["id"], arrays["id"] = "BIGINT", pa.array([0, draw.choice((None, 1)), 2], pa.int64())
        elif fault == "int96":
            columns |= {"at": "TIMESTAMP"}
            arrays["at"] = pa.array([draw.choice((1000, 1)), 2000, 3000], pa.timestamp("ns"))
            how["use_deprecated_int96_timestamps"] = True
        elif fault == "renamed":
            arrays = {("key" if one == name else one): values for one, values in arrays.items()}
        elif fault == "capitals":
            arrays = {one.upper(): values for one, values in arrays.items()}
        elif fault == "absent" and len(arrays) > 1:
            arrays.pop(name, None)
        elif fault == "order":
            arrays = dict(reversed(arrays.items()))
    stream = io.BytesIO()
    pq.write_table(pa.table({} if "no columns" in faults else arrays), stream, **how)
    data = stream.getvalue()
    if "cut" in faults:
        data = data[: draw.randrange(len(data))]
    if "garbage" in faults:
        data += b"garbage"
    if "no bytes" in faults:
        data = b""
    infers = any(fault.startswith(("foreign", "no columns")) for fault in faults) and draw.random() < 0.8
    delivery = _wide(draw, Delivery("parquet", "a.parquet", data, columns, {}, faults, infers=infers), faults)
    delivery.required = "id" if delivery.required else ""
    return delivery


WRITERS = {"csv": csv_delivery, "json": json_delivery, "parquet": parquet_delivery}
FAULTS = {"csv": sorted(_CSV), "json": sorted(_JSON), "parquet": sorted(set(_PARQUET))}
