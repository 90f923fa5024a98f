"""The sweep: one file after the other, each loaded by a run of a node of its own, and judged row by row."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
from pyspark.sql import SparkSession

from benchmarks.deliveries.oracle import UNFIT, Expected, Inferred, Lenient, expected
from benchmarks.deliveries.writers import FAULTS, WRITERS, Delivery
from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.state.records import RunStatus

_NODE = """
project: deliveries
connections: {{landing: {{type: local, base_path: landing}}, lake: {{type: local, base_path: lake}}}}
system: {{connection: lake, path: system}}
pipelines:
- pipeline: p
  nodes:
  - {{name: n, read: {read}, write: {{connection: lake, path: n, mode: {mode}}}}}
"""
_runs = itertools.count(1)


@dataclass
class Tally:
    """Counts of one sweep.

    Attributes:
        silent: files of which a row was lost or changed, and no word was said; each with how to see it again.
        unclear: stops that do not name the file, and errors that are none of ours.
        needless: stops over files that the schema holds as they are.
    """

    files: int = 0
    loaded: int = 0
    rescued: int = 0
    stopped: int = 0
    by_fault: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)


def one_of_each(seed: int) -> Iterable[tuple[int, Delivery, bool]]:
    """A file for each fault of each format; with every other one, what does not fit is kept aside."""
    for format_, faults in FAULTS.items():
        for number, fault in enumerate(faults, seed):
            yield number, WRITERS[format_](random.Random(number), fault), number % 2 == 0


def drawn(files: int, seed: int) -> Iterable[tuple[int, Delivery, bool]]:
    """Files whose faults are drawn."""
    for number in range(seed, seed + files):
        draw = random.Random(number)
        yield number, WRITERS[draw.choice(("csv", "csv", "json", "json", "parquet"))](draw), draw.random() < 0.3


def sweep(
    spark: SparkSession, deliveries: Iterable[tuple[int, Delivery, bool]], folder: Path, say: Callable[[str], None]
) -> Tally:
    """Load each of the files, and compare its rows with what Python's parsers find in it."""
    tally = Tally()
    for seed, delivery, is_rescued in deliveries:
        tally.files += 1
        # Without a schema all columns of Parquet are read, and there is nothing to keep aside.
        is_rescued = is_rescued and not (delivery.infers and delivery.format == "parquet")
        tally.by_fault.update(f"{delivery.format}: {fault}" for fault in delivery.faults or ["none"])
        what = f"--seed {seed} ({delivery.format}{', rescued' if is_rescued else ''}: {delivery.faults})"
        wanted = expected(delivery, by_name=is_rescued)
        root = folder / "world"
        try:
            rows = _loaded(spark, root, delivery, is_rescued, _mode(seed, delivery, wanted) if is_rescued else "append")
        except OdiError as error:
            tally.stopped += 1
            if not any(unquote(part) in str(error) for part in delivery.name.split("/")):
                tally.unclear.append(f"{what}: {error}")
            elif not wanted.may_stop and not _has_clash_aside(delivery, is_rescued):
                tally.needless.append(f"{what}: {error}")
        except Exception as error:  # noqa: BLE001  any other error is a finding
            tally.unclear.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        else:
            tally.loaded += 1
            tally.rescued += any(row.get("rest") is not None for row in rows)
            is_whole = is_rescued and _is_kept_whole(rows, delivery)
            is_judged = is_rescued and not _is_sparks(delivery, wanted)
            if not is_whole and (difference := _difference(rows, wanted, is_rescued, is_judged)) is not None:
                tally.silent.append(f"{what}: {difference}")
                say(f"  {tally.silent[-1]}")
        shutil.rmtree(root, ignore_errors=True)
    return tally


def _mode(seed: int, delivery: Delivery, wanted: Expected) -> str:
    """A write mode that keeps each row: by `id`, if each row has one of its own, or one that is no value."""
    ids = [row.get("id") for row in wanted.rows]
    known = [getattr(one, "value", one) for one in ids if one is not UNFIT]
    if "id" not in delivery.columns or None in known or len(set(known)) < len(known):
        return "append"
    return random.Random(seed).choice(["append", "append", "upsert, keys: [id]", "append_once, keys: [id]"])


def _loaded(
    spark: SparkSession, root: Path, delivery: Delivery, is_rescued: bool, mode: str = "append"
) -> list[dict[str, Any]]:
    path = "/".join("*" for _ in delivery.name.split("/"))
    read: dict[str, Any] = {"connection": "landing", "format": delivery.format, "path": path}
    read |= {} if delivery.infers else {"schema": delivery.schema}
    read |= {"options": delivery.options, "incremental": "files"} | ({"rescued": "rest"} if is_rescued else {})
    file = root / "landing" / delivery.name
    file.parent.mkdir(parents=True)
    file.write_bytes(delivery.data)
    (root / "odibi.yaml").write_text(_NODE.format(read=json.dumps(read), mode=mode), encoding="utf-8")
    project = Project.load(root / "odibi.yaml")
    history = RunHistory(project, project.open_state(), f"run-{next(_runs)}")
    if run_node(NodeRun(history, NodeKey("p", "n"), lambda: spark)).status is RunStatus.NO_DATA:
        return []
    found: list[dict[str, Any]] = deltalake.DeltaTable(str(root / "lake/n")).to_pyarrow_table().to_pylist()
    return found


def _difference(rows: list[dict[str, Any]], wanted: Expected, is_rescued: bool, is_judged: bool) -> str | None:
    """What is wrong with rows that were loaded and of which nothing was said; None if nothing is.

    Args:
        is_judged: of rows that fit as they are written, nothing may be kept aside.
    """
    if not is_rescued and wanted.must_stop:
        return f"{wanted.whole or 'rows that do not fit'} were loaded: {rows}; wanted {wanted.rows}"
    if is_rescued and (wanted.whole or (wanted.broken and not wanted.rows)):
        # What is no file of its format may be kept line by line.
        return None if any(row["rest"] for row in rows) else f"{wanted.whole}: {rows}"
    count = sum(not _is_blank(row) for row in rows)
    if count != len(wanted.rows) + wanted.broken and not (is_rescued and wanted.broken):
        return f"{count} rows, wanted {len(wanted.rows)}: {rows}; wanted {wanted.rows}"
    # Rows that were kept aside may stand for any. A line of blanks may be kept aside, or not be one.
    left = sorted((row for row in rows if not _is_blank(row)), key=lambda row: row.get("rest") is not None)
    for is_whole, row in sorted(zip(wanted.whole_rows, wanted.rows, strict=True), key=lambda pair: not pair[0]):
        nothing_aside = is_whole and is_judged
        match = next((one for one in left if _fits(one, row, is_rescued, nothing_aside=nothing_aside)), None)
        if match is None:
            return f"no row is {row}{', with nothing kept aside' if nothing_aside else ''}; there are {left}"
        left.remove(match)
    lost = [row for row in left if not row.get("rest")]
    return f"rows that nobody delivered: {lost}" if lost else None


def _has_clash_aside(delivery: Delivery, is_rescued: bool) -> bool:
    """Whether columns to be kept aside have keys that differ by capitals alone: Spark cannot name them of documents."""
    return is_rescued and "multiLine" in delivery.options and "capitals within" in delivery.faults


def _is_sparks(delivery: Delivery, wanted: Expected) -> bool:
    """Whether what does not fit is Spark's to say: of columns that it looks for; and of one document, of which the text
    is kept for each of its rows."""
    is_document = delivery.format == "json" and delivery.options.get("multiLine") == "true" and wanted.may_stop
    return delivery.infers or wanted.asks or is_document


def _is_kept_whole(rows: list[dict[str, Any]], delivery: Delivery) -> bool:
    """Whether the file is one document, and all of it was kept aside as one row."""
    if delivery.options.get("multiLine") != "true" or len(rows) != 1 or not rows[0]["rest"]:
        return False
    kept = json.loads(rows[0]["rest"]).values()
    return [str(text).strip() for text in kept] == [delivery.data.decode("utf-8-sig", "replace").strip()]


def _fits(row: dict[str, Any], wanted: dict[str, Any], is_rescued: bool, *, nothing_aside: bool) -> bool:
    kept = is_rescued and row["rest"] is not None
    return not (kept and nothing_aside) and all(_equal(row.get(name), value, kept) for name, value in wanted.items())


def _is_blank(row: dict[str, Any]) -> bool:
    """Whether the row is a line of blanks that was kept aside."""
    values = json.loads(row["rest"]).values() if row.get("rest") else ()
    return bool(values) and not "".join(map(str, values)).strip()


def _is_empty(value: Any) -> bool:
    """Whether a value is NULL in all its parts."""
    return value is None or (isinstance(value, dict) and all(_is_empty(part) for part in value.values()))


def _equal(value: Any, wanted: Any, kept: bool) -> bool:
    if kept and _is_empty(value):
        return True
    if wanted is UNFIT:
        # Of a value that was kept whole, the parts that fit may be loaded.
        return kept and isinstance(value, dict)
    if isinstance(wanted, Inferred):
        return wanted.holds(value)
    if isinstance(wanted, Lenient):
        return _equal(value, wanted.value, kept) or isinstance(value, str)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    if isinstance(wanted, float) and wanted != wanted:
        return bool(value != value)
    return bool(value == wanted)
