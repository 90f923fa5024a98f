"""A project of many nodes of all kinds of sources, for ticks of the sensor.

Of ten nodes, two read files, four what the node above gained, two a table by its greatest cursor, one files that a
cursor document drives, and one is a stream.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

PIPELINE_OF = 100
KINDS = ("files", "version", "version", "cursor", "files", "version", "document", "cursor", "stream", "version")
HUNG = "database"
_HEAD = """\
project: big
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
  never: {type: postgres, host: 127.0.0.1, port: "${PORT}", database: d, user: u, password: p}
system: {connection: lake, path: system}
variables: {PORT: "1"}
"""


def kind_of(number: int) -> str:
    """What node ``n<number>`` reads."""
    return KINDS[number % len(KINDS)]


def make(folder: Path, nodes: int, look_timeout: str) -> None:
    """Write ``odibi.yaml``; and ``hung.yaml``, in which the first pipeline also reads a database."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [_HEAD + f"automation: {{look_timeout: {look_timeout}s}}\npipelines:"]
    above = ""
    for number in range(nodes):
        if number % PIPELINE_OF == 0:
            lines.append(f"- pipeline: p{number // PIPELINE_OF}\n  nodes:")
        name, kind = f"n{number}", kind_of(number)
        lines.append(f"  - {{name: {name}, {_reads(name, kind, above)}, {_writes(name)}}}")
        above = name if kind != "stream" else above
    (folder / "odibi.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sql = "{connection: never, format: sql, table: t, incremental: {mode: stateful, column: id}}"
    lines.insert(2, f"  - {{name: {HUNG}, read: {sql}, {_writes(HUNG)}}}")
    (folder / "hung.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    move_streams(folder, range(nodes), 1)


def move_streams(folder: Path, numbers: Sequence[int], position: int, nodes: int | None = None) -> None:
    """Write OLake's document, in which the streams of these nodes stand at ``position``; all others at 1."""
    moved = dict.fromkeys(numbers, position)
    streams = [_stream(f"n{n}", moved.get(n, 1)) for n in range(nodes or len(numbers)) if kind_of(n) == "document"]
    document = {"type": "STREAM", "version": 7, "streams": streams}
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "landing" / "state.json").write_text(json.dumps(document), encoding="utf-8")


def _stream(name: str, position: int) -> dict[str, object]:
    return {"stream": name, "namespace": "s", "sync_mode": "", "state": {"chunks": [], "id": position}}


def land(folder: Path, name: str, file: str) -> None:
    """A file for a node that reads files."""
    place = folder / "landing" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{file}.csv").write_text("1\n", encoding="utf-8")


def never_answers() -> int:
    """The port of a server that accepts connections and says nothing. It lasts as long as this process."""
    server = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            taken.append(server.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    port = int(server.getsockname()[1])
    os.environ["PORT"] = str(port)
    return port


def _reads(name: str, kind: str, above: str) -> str:
    files = f"connection: landing, format: csv, path: {name}/*.csv, schema: id BIGINT"
    if kind == "version":
        return f"inputs: {{above: {{node: {above}, incremental: version}}}}, transform: {{sql: SELECT * FROM above}}"
    if kind == "cursor":
        stateful = "{mode: stateful, column: id}"
        return f"read: {{connection: lake, format: delta, path: {above}, incremental: {stateful}}}"
    if kind == "stream":
        return f"read: {{{files}}}, stream: {{}}"
    read = f"read: {{{files}, incremental: files}}"
    driven = f"cursor: {{connection: landing, document: state.json, stream: s.{name}}}"
    return f"{read}, {driven}" if kind == "document" else read


def _writes(name: str) -> str:
    return f"write: {{connection: lake, path: {name}, mode: append}}"
