"""Debezium itself, embedded in a Java process, on a PostgreSQL server of the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from odi_assets_tests.jars import debezium_jars
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, PostgresServer

_SOURCE = Path(__file__).with_name("Engine.java")
_SECONDS = 600


def why_unavailable() -> str | None:
    """Why Debezium cannot run here; None if it can."""
    if compiler() is None:
        return "there is no Java compiler"
    return None if debezium_jars() else "Debezium cannot be fetched"


def compiler() -> str | None:
    """The `java` of a JDK, which runs a file of source; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    folder = None if home is None else str(Path(home) / "bin")
    return shutil.which("java", path=folder) if shutil.which("javac", path=folder) else None


class Debezium:
    """A connector with a slot of its own, which keeps its offsets between runs.

    Args:
        folder: where it keeps its settings and offsets.
        tables: names with schemas.
        settings: of Debezium, beside or instead of the connector's own.
    """

    def __init__(self, server: PostgresServer, folder: Path, tables: tuple[str, ...], **settings: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        made = {
            "name": "shop",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "0",
            "topic.prefix": "shop",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": DATABASE,
            "plugin.name": "pgoutput",
            "slot.name": "debezium",
            "publication.name": "debezium",
            "publication.autocreate.mode": "filtered",
            "table.include.list": ",".join(tables),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._settings = folder / "engine.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in made.items()), encoding="utf-8")

    def messages(self, last: str) -> list[dict[str, Any]]:
        """The messages up to the first one of the table ``last``, each with its topic and key.

        Raises:
            subprocess.CalledProcessError: the connector failed.
        """
        file = self.folder / "messages.json"
        self._run("messages", last, str(file))
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def cpu_seconds(self, changes: int) -> float:
        """The CPU seconds of the process for a number of changes, without the start of its connector.

        Raises:
            subprocess.CalledProcessError: the connector failed.
        """
        return float(json.loads(self._run("count", str(changes)).splitlines()[-1])["cpu_seconds"])

    def _run(self, *arguments: str) -> str:
        java = compiler()
        if java is None:
            raise RuntimeError("there is no Java compiler")
        classes = os.pathsep.join(map(str, debezium_jars()))
        command = [java, "-Xmx2g", "-cp", classes, str(_SOURCE), str(self._settings), *arguments]
        with (self.folder / "engine.log").open("wb") as log:
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, stderr=log, timeout=_SECONDS, cwd=self.folder
            )
        return done.stdout.decode()
