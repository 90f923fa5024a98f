"""The ledger's parts on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from odi_assets.connections.location import Location
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.ledger import LoadedFile

FILES = (LoadedFile("a.csv", 1, 10, digest="x"), LoadedFile("b.csv", 2, 20, digest="y"))
WRITER_THAT_DIES = """
import io, os, signal, sys
from odi_assets.connections.location import Location
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.ledger import LoadedFile

def half(table, stream, **options):
    whole = io.BytesIO()
    write_table(table, whole, **options)
    stream.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

write_table, ledger.pq.write_table = ledger.pq.write_table, half
files = (LoadedFile("a.csv", 1, 10, digest="x"), LoadedFile("b.csv", 2, 20, digest="y"))
_, part = ledger.extend(Location(sys.argv[1]), (), files, "orders")
ledger.write(Location(sys.argv[1]), part)
"""


def test_a_writer_of_a_part_that_is_there_already_is_killed_and_the_part_stays_whole(tmp_path: Path) -> None:
    table = Location(str(tmp_path))
    parts, new = ledger.extend(table, (), FILES, "orders")
    assert new is not None
    names = {part.name for part in parts}
    ledger.write(table, new)
    died = subprocess.run([sys.executable, "-c", WRITER_THAT_DIES, str(tmp_path)], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL
    assert ledger.read_parts(table, parts, "orders") == {file.path: file for file in FILES}
    (left,) = (tmp_path / "_odi_files").glob(".*")
    assert ledger.sweep(table, names, timedelta(hours=1)) == {}
    for file in left.parent.iterdir():
        os.utime(file, (1, 1))
    wanted = {f"_odi_files/{left.name}": left.stat().st_size}
    assert (ledger.sweep(table, names, timedelta(hours=1), dry_run=True), left.exists()) == (wanted, True)
    assert (ledger.sweep(table, names, timedelta(hours=1)), left.exists()) == (wanted, False)
    assert ledger.read_parts(table, parts, "orders") == {file.path: file for file in FILES}
