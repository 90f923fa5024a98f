"""A project with one node, its source, and runs of it in this process."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.reading.facts import Fact
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node

_runs = itertools.count(1)
_NO_FACT = -1
_KEY = NodeKey("p", "n")


class World:
    """A folder with a project file, a landing zone and a lake.

    Attributes:
        node: the node as the project file has it; its `transform` may name the expression of its key.
        facts: all that lie in the source.
        facts_have_x: the source has a column that the node's schema does not name.
        offered: the facts that lay in the source when runs before the last one read it.
        copies: folders with a copy of the source, to which its place may be edited: what lands, lands there too.
        alone: the facts that lie in the copies alone.
    """

    def __init__(self, root: Path, spark: SparkSession, server: Any = None) -> None:
        self.root, self.spark, self.server = root, spark, server
        self.node: dict[str, Any] = {}
        self.facts: list[Fact] = []
        self.facts_have_x = False
        self.comment = ""
        self.extra: list[dict[str, Any]] = []
        self.offered: set[int] = set()
        self.copies: list[Path] = []
        self.alone: set[int] = set()
        self._offered_now: set[int] = set()
        self._landed: dict[Path, list[dict[str, Any]]] = {}

    # -- the project ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the project file; a transform gets its SQL."""
        node = json.loads(json.dumps(self.node))
        transform = node.get("transform")
        if transform and "key" in transform:
            more = f", {transform.pop('more')}" if transform.get("more") else ""
            hint = f" {transform.pop('comment')}" if transform.get("comment") else ""
            view = "df" if "read" in node else next(iter(node["inputs"]))
            sql = f"SELECT *, {transform.pop('key')} AS k{more} FROM {view}{hint}"
            if transform.pop("in_file", False):
                (self.root / "q.sql").write_text(sql, encoding="utf-8")
                transform["sql_file"] = "q.sql"
            elif transform.pop("in_function", False):
                call = f"import pyspark\n\ndef f(df, spark, **params):\n    df.createOrReplaceTempView('{view}')\n"
                body = f"    return spark.sql({sql!r})\n".replace("**params", "")
                name = f"fn_{abs(hash(sql)) % 10**9}"
                (self.root / f"{name}.py").write_text(call.replace(", **params", ", a=1") + body, encoding="utf-8")
                transform["function"] = f"{name}:f"
            else:
                transform["sql"] = sql
        local = {name: {"type": "local", "base_path": base} for name, base in _PLACES.items()}
        document = {
            "project": "reading",
            "connections": local,
            "system": {"connection": "lake", "path": "system"},
            "pipelines": [{"pipeline": "p", "nodes": [*self.extra, node]}],
        }
        text = json.dumps(document, indent=1)
        if self.server is not None:
            text = text.replace('"connections": {', f'"connections": {{{self.server.connection},', 1)
        importlib.invalidate_caches()
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "odibi.yaml").write_text(self.comment + text, encoding="utf-8")

    def keep(self, name: str = "kept") -> dict[str, Any]:
        """What :meth:`put_back` takes."""
        kept = self.root.with_name(name)
        shutil.rmtree(kept, ignore_errors=True)
        for folder in self._folders():
            shutil.copytree(folder, kept / folder.name)
        there = {"facts": list(self.facts), "landed": dict(self._landed), "comment": self.comment}
        there |= {"offered": set(self._offered_now), "copies": list(self.copies), "alone": set(self.alone)}
        return there | {"node": json.dumps(self.node), "folder": kept}

    def put_back(self, kept: Mapping[str, Any]) -> None:
        """The project, its lake and its source as they were."""
        for folder in self._folders():
            shutil.rmtree(folder)
        for folder in kept["folder"].iterdir():
            shutil.copytree(folder, self.root / folder.name)
        self.node, self.facts, self._landed = json.loads(kept["node"]), list(kept["facts"]), dict(kept["landed"])
        self.comment, self._offered_now, self.copies = kept["comment"], set(kept["offered"]), list(kept["copies"])
        self.alone = set(kept["alone"])
        if self.node.get("read", {}).get("format") == "sql":
            self.server.keep_rows({fact.uid for fact in self.facts})
        self.save()

    def _folders(self) -> list[Path]:
        return [folder for name in ("lake", "landing") if (folder := self.root / name).exists()]

    # -- the source ----------------------------------------------------------------------------------------------------

    def land(self, facts: Iterable[Fact], *, without_cursor: bool = False) -> None:
        """Put facts into the source.

        Args:
            without_cursor: a row beside them that is no fact: it has a key of its own, and no value in columns that may
                be cursors.
        """
        new = list(facts)
        self.facts += new
        rows = [{k: v for k, v in fact.values().items() if k != "x" or self.facts_have_x} for fact in new]
        rows += (
            [{**rows[0], "uid": _NO_FACT, "id": _NO_FACT, "seq": None, "at": None, "day": None}]
            if without_cursor
            else []
        )
        source = self.node.get("read", {"format": "delta"})
        if source["format"] == "sql":
            self.server.add(rows)
        elif source["format"] == "delta":
            for place in (self.root / "lake/source", *self.copies):
                deltalake.write_deltalake(str(place), _typed(rows), mode="append")
        else:
            self._land_file(self.root / "landing" / "in" / f"{len(self._landed):03}.{source['format']}", rows)

    @property
    def is_copied(self) -> bool:
        """Whether the node reads a copy of the source."""
        return any(copy.name in self.node.get("read", {}).get("path", "") for copy in self.copies)

    def land_in_copies(self, facts: Sequence[Fact]) -> None:
        """Put facts into the copies of the source alone."""
        self.facts += facts
        self.alone |= {fact.uid for fact in facts}
        rows = [{k: v for k, v in fact.values().items() if k != "x" or self.facts_have_x} for fact in facts]
        kind = self.node["read"]["format"]
        for copy in self.copies:
            if kind == "delta":
                deltalake.write_deltalake(str(copy), _typed(rows), mode="append")
            else:
                self._land_file(copy / f"{len(self._landed):03}.{kind}", rows)

    def copy_source(self) -> str | None:
        """Copy the source into a folder of its own, with its times, and return the folder's name; None if the source is
        no folder."""
        kind = self.node.get("read", {}).get("format")
        if kind not in ("csv", "json", "parquet", "delta"):
            return None
        place = self.root / ("lake/source" if kind == "delta" else "landing/in")
        copy = place.with_name(f"{place.name}_{len(self.copies) + 1}")
        shutil.copytree(place, copy)
        self.copies.append(copy)
        return copy.name

    def land_in_format(self) -> None:
        """Write files of another format than the node's again, in that."""
        for file, rows in [*self._landed.items()]:
            kind = self.node["read"]["format"]
            if file.suffix != f".{kind}":
                for place in (file, *(copy / file.name for copy in self.copies)):
                    place.unlink(missing_ok=True)
                del self._landed[file]
                self._land_file(file.with_suffix(f".{kind}"), rows)

    def _land_file(self, file: Path, rows: list[dict[str, Any]]) -> None:
        kind = file.suffix[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            pq.write_table(_typed(rows), file)
        elif kind == "json":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        else:
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        moment = 1_700_000_000 + int(file.stem)
        os.utime(file, (moment, moment))
        for copy in self.copies:
            if file.parent not in self.copies:
                shutil.copy2(file, copy)
        self._landed[file] = rows

    # -- runs ----------------------------------------------------------------------------------------------------------

    def run(self, *, full: bool = False) -> None:
        """Run the node. Raises what the run raises."""
        project = Project.load(self.root / "odibi.yaml")
        history = RunHistory(project, project.open_state(), f"run-{next(_runs)}")
        run_node(NodeRun(history, _KEY, lambda: self.spark), RunRequest(full_refresh=full, accept_loss=full))
        self.offered = set() if full else self._offered_now
        self._offered_now = {fact.uid for fact in self.facts}

    def command(self, *arguments: str) -> tuple[int, str]:
        """What `odi` does with arguments, in this process: its exit code, and what it says on stderr."""
        from odi_assets.cli import main

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["--config", str(self.root / "odibi.yaml"), *arguments])
        return code, err.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def table(self) -> list[dict[str, Any]]:
        """The rows of the node's table."""
        place = self.root / "lake/n"
        return deltalake.DeltaTable(str(place)).to_pyarrow_table().to_pylist() if place.exists() else []

    def counts(self) -> Counter[int]:
        """How often each fact is in the table."""
        # Without a schema, all columns of CSV are text.
        found = Counter(int(row["uid"] if row["uid"] is not None else _rescued_uid(row)) for row in self.table())
        del found[_NO_FACT]
        return found


def _rescued_uid(row: Mapping[str, Any]) -> str:
    """The first value of a line that was rescued as a whole, because its separator is another one."""
    line = next(iter(json.loads(row["rest"]).values()))
    return str(line).partition(",")[0]


_PLACES = {"landing": "landing", "landing2": "landing", "lake": "lake"}


def _typed(rows: list[dict[str, Any]]) -> pa.Table:
    table = pa.Table.from_pylist(rows)
    at = pa.compute.strptime(table["at"], "%Y-%m-%d %H:%M:%S", "us").cast(pa.timestamp("us", "UTC"))
    return table.set_column(table.column_names.index("at"), "at", at)


def more_facts(draw: random.Random, facts: list[Fact], count: int, *, again: bool, tied: bool) -> list[Fact]:
    """Facts above those that are there.

    Args:
        again: some have ids that are there.
        tied: the first one has the cursor of the last one that is there.
    """
    last = facts[-1] if facts else Fact(9000, 500, 0, 0, "a")
    found: list[Fact] = []
    ids = [fact.id for fact in facts]
    for number in range(count):
        step = 0 if tied and not number and facts else 1 + draw.randrange(3)
        seq, place = (found[-1].seq, found[-1].place) if found else (last.seq, last.place)
        uid = last.uid + number + 1
        new_id = max([*ids, *(one.id for one in found), last.id]) + 1
        old = [one for one in dict.fromkeys(ids) if one not in {other.id for other in found}]
        chosen = draw.choice(old) if again and old and draw.random() < 0.4 and step else new_id
        found.append(Fact(uid, chosen, seq + step, place + step, draw.choice("abä")))
    return found
