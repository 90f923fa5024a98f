"""What lands is read alike by a node and by a stream: the same rows, or an error that says the same."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: batch
    read: {{{read}, incremental: files}}
    write: {{connection: lake, path: batch, mode: append}}
  - name: stream
    read: {{{read}}}
    stream: {{}}
    write: {{connection: lake, path: stream, mode: append}}
"""
COLUMNS = "k STRING, a STRING, n BIGINT, d DECIMAL(6,2), t TIMESTAMP"
TIME = "2024-01-01 10:00:00.000001"


def parquet(**columns: Any) -> bytes:
    stored = io.BytesIO()
    pq.write_table(pa.table(columns), stored)
    return stored.getvalue()


def table(a: Any = ("v",), n: Any = (1,), **more: Any) -> dict[str, Any]:
    return {"a": list(a), "n": list(n), **more}


@dataclass(frozen=True)
class Zone:
    """Deliveries of one format.

    Attributes:
        good: by name, files that node and stream load alike.
        bad: by words of the error, what a file may hold that stops both.
        refused: what a stream stops at although its values fit, each as it is.
        late: the file that holds it.
    """

    read: str
    good: Mapping[str, bytes]
    bad: Mapping[str, bytes]
    refused: Mapping[str, bytes] = field(default_factory=dict)
    late: str = "k=z/late"


CSV = Zone(
    f'connection: landing, format: csv, path: "in/*/*", schema: "{COLUMNS}", options: {{header: "true"}}',
    {
        "k=x/1.csv": f'a,n,d,t\n"",1,1.50,{TIME}\n,2,,\n"say ""x""","",,\n'.encode(),
        "k=x/header in capitals and a byte order mark.csv": b"\xef\xbb\xbfA,N,D,T\nv,3,,\n",
        "k=a%20b+c/packed.csv.gz": gzip.compress(b"a,n,d,t\nv,4,,\n"),
        "k=__HIVE_DEFAULT_PARTITION__/1.csv": b"a,n,d,t\nv,5,,\n",
        "k=/1.csv": b"a,n,d,t\nv,6,,\n",
        "k=y/empty.csv": b"",
    },
    {
        "header: n, a, d, t": b"n,a,d,t\n1,v,,\n",
        "5 in the header": b"a,n,d,t,e\nv,1,,,\n",
        "late.*one": b"a,n,d,t\nv,one,,\n",
        "column `d`: 1.555": b"a,n,d,t\nv,1,1.555,\n",
        "late:2 cannot": b'a,n,d,t\n"v,1,,\n',
        "UTF-8": b"a,n,d,t\nM\xe4rz,1,,\n",
        "gzip": gzip.compress(b"a,n,d,t\nv,1,,\n"),
    },
)
JSON = Zone(
    f'connection: landing, format: json, path: "in/*/*", schema: "{COLUMNS}"',
    {
        "k=x/1.json": f'{{"a":"","n":1,"d":1.50,"t":"{TIME}"}}\n{{"n":2}}\n{{"k":"own","a":null}}\n'.encode(),
        "k=y/a byte order mark.json": b'\xef\xbb\xbf{"a":"v","n":3}\n',
        "k=y/packed.json.gz": gzip.compress(b'{"a":"v","n":4}\n'),
        "k=__HIVE_DEFAULT_PARTITION__/1.json": b'{"a":"v","n":5}\n',
        "elsewhere/1.json": b'{"a":"v","n":6}\n',
    },
    {
        "may have been renamed": b'{"b":"v","n":1,"d":1,"t":null}\n',
        "late:1 cannot": b'{"a":"v"}{"a":"w"}\n',
        "late:2 cannot": b'{"a":"v"}\n{"a":"v","a":"w"}\n',
        "late:1: column `n`": b'{"n":"one"}\n',
        "column `d`: 1.555": b'{"d":1.555}\n',
        "column `t`: 12:30": b'{"t":"12:30"}\n',
        "`read.schema` has `n`": b'{"N":1}\n',
        "UTF-8": b'{"a":"M\xe4rz"}\n',
    },
)
PARQUET = Zone(
    f'connection: landing, format: parquet, path: "in/*/*", schema: "{COLUMNS}"',
    {
        "k=x/1.parquet": parquet(**table(["", None], [1, 2], t=[datetime(2024, 1, 1, 10, 0, 0, 1)] * 2)),
        "k=y/narrower.parquet": parquet(a=["v"], n=pa.array([3], pa.int32())),
        "k=y/own.parquet": parquet(**table(k=["own"])),
        "k=__HIVE_DEFAULT_PARTITION__/bytes.parquet": parquet(**table([b"v"], [5])),
        "elsewhere/1.parquet": parquet(**table(n=[6])),
    },
    {
        "may have been renamed": parquet(b=["v"], n=[1]),
        "column `a`: M": parquet(**table([b"M\xe4rz"])),
        "column `d` is string": parquet(**table(d=["1"])),
        "late cannot be read": b"PAR1",
        "without a column": parquet(),
    },
    {
        "column `n` is double": parquet(**table(n=[1.0])),
        "column `n` is decimal": parquet(**table(n=pa.array([1], pa.uint64()))),
        "column `t` is long": parquet(**table(t=pa.array([10**9], pa.timestamp("ns", "UTC")))),
        "column `t` is date": parquet(**table(t=pa.array([1], pa.date32()))),
    },
)
LINES = Zone(
    'connection: landing, format: csv, path: in, schema: "a STRING, n BIGINT, k INT", '
    'options: {nullValue: NA, multiLine: "true"}',
    {
        "deep/k=1/1.csv": b'NA,1\n"two\nlines",2\n"",NA\n',
        "deep/k=02/2.csv": b"v,3\n",
    },
    {
        "late:1 cannot": b'"v,1\n',
        "late cannot be read": b"v\n",
    },
    late="k=3/late",
)


@pytest.mark.parametrize("zone", [CSV, JSON, PARQUET, LINES], ids=["csv", "json", "parquet", "csv of lines"])
def test_a_stream_gives_the_rows_of_a_node_or_stops_where_the_node_stops(
    tmp_path: Path, spark: SparkSession, zone: Zone
) -> None:
    box = Sandbox(tmp_path, spark, NODES.format(read=zone.read))
    folder = tmp_path / "landing" / "in"
    for name, data in zone.good.items():
        land(folder / name, data)
    for node in ("batch", "stream"):
        box.run(node)
    rows = box.rows("batch")
    assert len({repr(row) for row in rows}) == len(rows) > 2
    assert sorted(box.rows("stream"), key=repr) == sorted(rows, key=repr)
    for said, data in zone.bad.items():
        land(folder / zone.late, data)
        for node in ("batch", "stream"):
            with pytest.raises(SourceError, match=said) as raised:
                box.run(node)
            assert "late" in raised.value.message
    for said, data in zone.refused.items():
        land(folder / zone.late, data)
        with pytest.raises(SourceError, match=said):
            box.run("stream")
    # Put right under its name, as the errors say.
    late = next(iter(zone.good.values()))
    land(folder / zone.late, late)
    box.run("stream")
    assert len(box.rows("stream")) > len(rows)


def land(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
