"""State in one JSON file, for one machine: the layout of Odibi's ``.odibi/state.json`` and a section of our own.

``hwm`` and ``pipelines`` are Odibi's: plain JSON values of the environment without a name, and the last run of each
pipeline. ``odi`` holds what they cannot: types, revisions, tombstones, other environments. A value under ``hwm`` that
is not the one our section remembers was set by Odibi (or by hand), and counts as the newer revision.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from odi_assets.errors import StateConflictError, StateError
from odi_assets.state.backend import HISTORY_KEPT, MOST_RUN_IDS, KeyChange, StateBackend
from odi_assets.state.local.file import JsonFile, sync_folder, writing
from odi_assets.state.local.runs import RunLines
from odi_assets.state.records import HwmEntry, RunRecord, check_key, pipeline_data, plain, records_of
from odi_assets.state.values import encode, from_json, to_json

_FORMAT = 1
_SETTLES_NS = 2_000_000_000
"""The coarsest time that file systems keep (FAT), in nanoseconds."""


class LocalJSONStateBackend(StateBackend):
    """State in the JSON file ``path``; run history beside it, in ``<name>.runs.jsonl``.

    Args:
        path: the file; it is made with the first write.
        environment: whose keys; None is the environment without a name, the one Odibi sees.
    """

    def __init__(self, path: str | PathLike[str], *, environment: str | None = None) -> None:
        super().__init__(environment)
        self.path = Path(path).absolute()
        self._file = JsonFile(self.path)
        self._runs = RunLines(self.path.with_name(f"{self.path.stem}.runs.jsonl"))

    def __repr__(self) -> str:
        return f"LocalJSONStateBackend({str(self.path)!r}, environment={self.environment!r})"

    # -- high-water marks ---------------------------------------------------------------------------------------------

    def environments(self) -> list[str | None]:
        document = self._read()
        keys = self._section(self._section(document, "odi"), "keys", "odi.")
        environments = {name or None for name, own in keys.items() if own}
        environments |= {record.environment for record in self._runs.newest_first()}
        if document["hwm"] or document["pipelines"]:
            environments.add(None)
        return sorted(environments, key=lambda name: name or "")

    def _latest(self, key: str) -> HwmEntry | None:
        return next(iter(self._revisions(self._read(), key)), None)

    def _latest_of_all(self) -> list[HwmEntry]:
        return [revisions[0] for revisions in self.histories().values()]

    def hwms_stamp(self) -> Hashable | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        # A file that changed a moment ago may change once more at what its file system takes for the same time.
        if time.time_ns() - status.st_mtime_ns < _SETTLES_NS:
            return None
        return str(self.path), self.environment, status.st_ino, status.st_mtime_ns, status.st_size

    def history(self, key: str) -> list[HwmEntry]:
        return self._revisions(self._read(), check_key(key))

    def histories(self) -> dict[str, list[HwmEntry]]:
        document = self._read()
        return {key: self._revisions(document, key) for key in sorted({*self._own(document), *self._odibi(document)})}

    def odibi_pipelines(self) -> dict[str, Any]:
        """What Odibi noted of each pipeline's last run, as it did; of the environment without a name only."""
        return self._section(self._read(), "pipelines") if self.environment is None else {}

    def _write(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        with self._file.locked():
            document = self._read()
            revisions = {change.key: self._revisions(document, change.key) for change in changes}
            now = datetime.now(UTC)
            entries = [
                change.entry_after(next(iter(revisions[change.key]), None), self.environment, now) for change in changes
            ]
            for change, entry in zip(changes, entries, strict=True):
                older = change.move.older if change.move is not None else ()
                self._put(document, [entry, *reversed(older), *revisions[entry.key]])
            self._file.replace(document)
        return entries

    # -- damage -------------------------------------------------------------------------------------------------------

    def damaged_files(self) -> dict[Path, StateError]:
        """The files that are there and cannot be parsed, each with the error over it."""
        errors_by_path: dict[Path, StateError] = {}
        for path, look in ((self.path, self.histories), (self._runs.path, lambda: list(self._runs.newest_first()))):
            try:
                look()
            except StateError as error:
                if "line" not in error.fields:
                    raise
                errors_by_path[path] = error
        return errors_by_path

    def set_aside(self, path: Path) -> Path:
        """Move one of the damaged files out of the way, and return where to.

        Raises:
            StateConflictError: it is not damaged any more.
            StateError: it cannot be moved.
        """
        aside = path.with_name(f"{path.name}.aside-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
        with self._file.locked(), writing(path):
            if path not in self.damaged_files():
                raise StateConflictError(
                    f"{path} is not damaged any more", fix="nothing was moved: odi doctor looks at it", path=str(path)
                )
            path.rename(aside)
            sync_folder(path.parent)
        return aside

    # -- runs ---------------------------------------------------------------------------------------------------------

    def record_runs(self, records: Iterable[RunRecord]) -> None:
        with self._file.locked():
            self._runs.append(records, self.environment)

    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        node: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        names = [name for name in (pipeline, node, run_id) if name is not None]
        records = (
            record
            for record in self._runs.newest_first(*names)
            if record.environment == self.environment
            and pipeline in (None, record.pipeline_name)
            and node in (None, record.node_name)
            and run_id in (None, record.run_id)
        )
        return list(islice(records, limit))

    def find_run_ids(self, prefix: str) -> list[str]:
        run_ids = (r.run_id for r in self._runs.newest_first() if r.environment == self.environment)
        distinct = dict.fromkeys(run_id for run_id in run_ids if run_id.startswith(prefix))
        return list(islice(distinct, MOST_RUN_IDS))

    def get_last_run_info(self, pipeline: str, node: str) -> dict[str, Any] | None:
        """As the protocol has it; a run that only Odibi recorded is given as Odibi recorded it."""
        info = super().get_last_run_info(pipeline, node)
        if info is None and self.environment is None:
            nodes = self._section(self._section(self._read(), "pipelines"), pipeline, "pipelines.").get("nodes") or {}
            run = nodes.get(node)
            info = None if run is None else {"success": bool(run.get("success")), "metadata": {}, **run}
        return info

    def save_pipeline_run(self, pipeline_name: str, pipeline_data_: Mapping[str, Any]) -> None:
        data = pipeline_data(pipeline_data_)
        with self._file.locked():
            self._runs.append(records_of(pipeline_name, data), self.environment)
            if self.environment is None:
                document = self._read()
                document.setdefault("pipelines", {})[pipeline_name] = plain(data)
                self._file.replace(document)

    def maintain(self, *, keep_runs_for: timedelta | None = None, dry_run: bool = False) -> dict[str, int]:
        """Drop runs older than ``keep_runs_for``; the newest run of each node stays."""
        if keep_runs_for is None:
            # There is nothing to do, and both files have to be readable to say so.
            self._read()
            next(self._runs.newest_first(), None)
            return {"runs_dropped": 0}
        oldest = datetime.now(UTC) - keep_runs_for
        with self._file.locked():
            kept, dropped, seen = [], 0, set()
            for record in self._runs.newest_first():
                node = (record.environment, record.pipeline_name, record.node_name)
                if record.timestamp >= oldest or node not in seen:
                    kept.append(record)
                else:
                    dropped += 1
                seen.add(node)
            if dropped and not dry_run:
                self._runs.rewrite(reversed(kept))
        return {"runs_dropped": dropped}

    # -- the document -------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Any]:
        document = self._file.read()
        document.setdefault("hwm", {})
        document.setdefault("pipelines", {})
        self._section(document, "hwm")
        return document

    def _section(self, parent: dict[str, Any], name: str, where: str = "") -> dict[str, Any]:
        section = parent.get(name, {})
        if not isinstance(section, dict):
            raise self._file.malformed(where + name, "is not a JSON object")
        return section

    def _own(self, document: dict[str, Any]) -> dict[str, Any]:
        keys = self._section(self._section(document, "odi"), "keys", "odi.")
        return self._section(keys, self.environment or "", "odi.keys.")

    def _odibi(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._section(document, "hwm") if self.environment is None else {}

    def _revisions(self, document: dict[str, Any], key: str) -> list[HwmEntry]:
        """Newest first; a value that another tool set or removed comes first, without a type."""
        try:
            own = [self._entry(key, item) for item in self._own(document).get(key, [])]
        except (KeyError, TypeError, ValueError) as error:
            where = f"odi.keys.{self.environment or ''}.{key}"
            raise self._file.malformed(where, f"is not a list of revisions: {error!r}") from error
        foreign = self._foreign(document, key, own[0] if own else None)
        return own if foreign is None else [foreign, *own]

    def _foreign(self, document: dict[str, Any], key: str, latest: HwmEntry | None) -> HwmEntry | None:
        if self.environment is not None:
            return None
        odibi = self._odibi(document)
        if latest is None or latest.deleted:
            if key not in odibi:
                return None
        elif key in odibi and encode(odibi[key]).json == encode(latest.value).json:
            return None
        return HwmEntry(
            key=key,
            value=odibi.get(key),
            environment=None,
            updated_at=self._changed_at(),
            revision=latest.revision + 1 if latest else 0,
            deleted=key not in odibi,
        )

    def _changed_at(self) -> datetime:
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)

    def _entry(self, key: str, item: dict[str, Any]) -> HwmEntry:
        named = {name: item[name] for name in ("revision", "deleted", "target_commit", "run_id", "value_type")}
        # Early versions wrote no origin.
        named["origin"] = item.get("origin")
        value = from_json(item["value"], item["value_type"])
        return HwmEntry(key, value, self.environment, datetime.fromisoformat(item["updated_at"]), **named)

    def _put(self, document: dict[str, Any], revisions: Sequence[HwmEntry]) -> None:
        newest = revisions[0]
        own = document.setdefault("odi", {"format": _FORMAT})
        keys = own.setdefault("keys", {}).setdefault(self.environment or "", {})
        keys[newest.key] = [_item(entry) for entry in revisions[:HISTORY_KEPT]]
        if self.environment is not None:
            return
        if newest.deleted:
            document["hwm"].pop(newest.key, None)
        else:
            document["hwm"][newest.key] = to_json(newest.value)[0]


def _item(entry: HwmEntry) -> dict[str, Any]:
    data = entry.value if entry.value_type is None else to_json(entry.value)[0]
    item = {**entry._asdict(), "value": data, "updated_at": entry.updated_at.isoformat()}
    del item["key"], item["environment"]
    return item
