"""Takes a checkpoint back to an earlier batch, and keeps copies of checkpoints. No query may be running on it.

What Spark wrote after the batch is deleted: its offsets and commits, what inputs listed since, and versions of the
state. So Spark plans the following batch again, from the state that the batch left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError, FencedError
from odi_assets.streams.query.progress_log import ProgressLog, log_number
from odi_assets.util.durable import write_file

_STATE_FILE = re.compile(r"(\d+)(?:_[^/.]+)*\.(?:delta|snapshot|changelog|zip)")
_COPY = ".copy-"


@dataclass(frozen=True)
class CheckpointFolder:
    """The folder of a checkpoint, as files of its store."""

    location: Location

    @property
    def _store(self) -> tuple[Any, str]:
        filesystem, root = self.location.in_store()
        filesystem.invalidate_cache()
        return filesystem, root.rstrip("/")

    def copies(self) -> list[Location]:
        """The copies that were kept of it, newest first."""
        filesystem, root = self._store
        above, _, name = root.rpartition("/")
        try:
            names = [path.rstrip("/").rpartition("/")[2] for path in filesystem.ls(above, detail=False)]
        except FileNotFoundError:
            return []
        numbers = {
            int(copy_name.removeprefix(name + _COPY)): copy_name
            for copy_name in names
            if self._is_copy(name, copy_name)
        }
        return [self._beside(numbers[number]) for number in sorted(numbers, reverse=True)]

    def keep_copy(self) -> Location:
        """Copy it beside itself, and return the place of the copy.

        Raises:
            CheckpointError: a file cannot be copied.
        """
        copies = self.copies()
        number = 1 + (int(copies[0].uri.rpartition(_COPY)[2]) if copies else 0)
        name = self.location.uri.rstrip("/").rpartition("/")[2]
        target = self._beside(f"{name}{_COPY}{number}")
        self._copy(self.location, target)
        return target

    def clear_unplanned(self) -> None:
        """Remove what a process that was killed as it planned the first batch has left: Spark starts no query where a
        file is in ``offsets`` that is no batch."""
        log = ProgressLog(self.location)
        if log.planned() or log.committed():
            return
        filesystem, root = self._store
        for name in log.names("offsets"):
            if name.startswith("."):
                filesystem.rm(f"{root}/offsets/{name}")

    def plan_next(self, batch: int, watermark_ms: int) -> None:
        """Plan the batch after ``batch`` as Spark does where the watermark alone calls for one: it reads nothing new.

        Spark itself does so only behind a batch that it has run: a query that starts again waits for new rows. The
        checkpoint is on this machine.

        Raises:
            FencedError: another run has planned that batch.
        """
        folder = self.location.local_path / "offsets"
        version, head, *lines = (folder / str(batch)).read_text(encoding="utf-8").split("\n")
        times = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": time.time_ns() // 10**6}
        aside = folder / f".{batch + 1}.{uuid4()}.tmp"
        aside.write_text("\n".join([version, json.dumps(json.loads(head) | times), *lines]), encoding="utf-8")
        try:
            os.link(aside, folder / str(batch + 1))
        except FileExistsError as error:
            raise FencedError(
                f"another run of this node has planned batch {batch + 1} of {self.location.uri}",
                fix="let the other run end, or stop it: a stream node runs once at a time",
            ) from error
        finally:
            aside.unlink()

    def put_back(self, copy: Location) -> None:
        """Replace it by ``copy``. It need not be there."""
        filesystem, root = self._store
        if filesystem.exists(root):
            filesystem.rm(root, recursive=True)
        self._copy(copy, self.location)

    def rewrite(self, folder: str, changed: Callable[[str], str]) -> None:
        """Replace the text of each numbered file of one of its folders, where it is another one.

        Raises:
            CheckpointError: the folder cannot be looked at.
        """
        filesystem, root = self._store
        for name in ProgressLog(self.location).names(folder):
            path = f"{root}/{folder}/{name}"
            if log_number(name) < 0:
                continue
            text = filesystem.cat_file(path).decode("utf-8")
            if (now := changed(text)) != text:
                self._replace(filesystem, path, now)

    def _replace(self, filesystem: Any, path: str, text: str) -> None:
        # A reader must not find half of it, nor may a power cut leave the name with nothing behind it.
        self._forget_checksum(filesystem, path)
        if self.location.is_local:
            write_file(Path(path), text)
            return
        filesystem.pipe_file(f"{path}.new", text.encode("utf-8"))
        filesystem.mv(f"{path}.new", path)

    def carry(self, ends: Mapping[str, Any], inputs: Collection[str], batch: int) -> None:
        """Let the plans that Spark starts from name the inputs of its query, and no others.

        Spark knows no more than the last two plans say, and of a batch that it runs again what that one names. An input
        that comes back is named up to where batches have read it. What a batch was to read of an input that has left
        the query is planned again once the input comes back, unless the batch is in the node's table.

        Args:
            ends: by input, up to where batches have read it.
            inputs: the inputs of the query.
            batch: the last one in the node's table; -1 if there is none.
        """
        log = ProgressLog(self.location)
        committed, last = (max(numbers, default=-1) for numbers in (log.committed(), log.planned()))
        planned = log.ends_of(last)
        left = planned.keys() - set(inputs) if last > max(committed, batch) else set()
        absent = {name: end for name, end in ends.items() if name not in planned}
        # A batch that is about to run again reads nothing of them: the one before comes first.
        for number in sorted({committed, last} - {-1}):
            lacking = {name: end for name, end in absent.items() if name not in log.ends_of(number)}
            self._name_inputs(number, lacking, left if number == last else ())

    def _name_inputs(self, batch: int, ends: Mapping[str, Any], left: Collection[str]) -> None:
        if not ends and not left:
            return
        filesystem, root = self._store
        path = f"{root}/offsets/{batch}"
        lines = filesystem.cat_file(path).decode("utf-8").rstrip("\n").split("\n")
        kept = [*lines[:2], *(line for line in lines[2:] if line.partition(":")[0] not in left)]
        named = [f"{name}:{json.dumps(end, separators=(',', ':'))}" for name, end in ends.items()]
        self._replace(filesystem, path, "\n".join([*kept, *named]))

    def truncate(self, batch: int, ends: Mapping[str, Any]) -> None:
        """Make ``batch`` its newest one.

        Args:
            ends: by input, up to where batches up to that one have read it.

        Raises:
            CheckpointError: it does not hold that batch (any more).
        """
        log = ProgressLog(self.location)
        if log.batch(batch) is None or batch not in log.committed():
            raise CheckpointError(
                f"{self.location.uri} does not hold batch {batch} (any more)",
                fix="choose one of the batches that it holds: odi state rewind NODE --list",
                path=self.location.uri,
            )
        filesystem, root = self._store
        numbers = {name: int(end["logOffset"]) for name, end in ends.items() if "logOffset" in (end or {})}
        for name, last in numbers.items():
            self._split(filesystem, root, name, last)
        # The plan of the newest batch goes last: until then the checkpoint still says that it is ahead.
        doomed = sorted(self._after(filesystem, root, batch, numbers), key=_rank)
        for path in doomed:
            # Checksums that are left of a file say that somebody else removed it.
            self._forget_checksum(filesystem, path)
            filesystem.rm_file(path)

    def _after(self, filesystem: Any, root: str, batch: int, numbers: Mapping[str, int]) -> Iterator[str]:
        for path in filesystem.find(root):
            parts = PurePosixPath(path.removeprefix(f"{root}/")).parts
            name, number = parts[-1], log_number(parts[-1])
            if parts[0] in ("offsets", "commits"):
                if number > batch:
                    yield path
            elif parts[0] == "sources" and len(parts) == 3:
                if number > numbers.get(parts[1], -1):
                    yield path
            elif parts[0] == "state":
                version = _STATE_FILE.fullmatch(name)
                if (version and int(version[1]) > batch + 1) or ("_metadata" in parts and number > batch):
                    yield path

    def _split(self, filesystem: Any, root: str, name: str, last: int) -> None:
        """Make sure that an input's log up to ``last`` can be read without compacted files after it."""
        folder = f"{root}/sources/{name}"
        logs = ProgressLog(self.location).source_log(name)
        compacted = [number for number, log in logs.items() if log.endswith(".compact")]
        begin = max((number for number in compacted if number <= last), default=-1) + 1
        missing = [number for number in range(begin, last + 1) if number not in logs]
        later = next((logs[number] for number in compacted if number > last), None)
        if not missing or later is None:
            return
        version, *lines = filesystem.cat_file(f"{folder}/{later}").decode("utf-8").split("\n")
        entries = [(json.loads(line)["batchId"], line) for line in lines if line.strip()]
        for number in missing:
            text = "\n".join([version, *(line for of, line in entries if of == number)])
            filesystem.pipe_file(f"{folder}/{number}", text.encode("utf-8"))

    @staticmethod
    def _forget_checksum(filesystem: Any, path: str) -> None:
        """Remove Hadoop's checksum of a file that was removed, or is another one now."""
        folder, _, name = path.rpartition("/")
        if filesystem.exists(checksum := f"{folder}/.{name}.crc"):
            filesystem.rm_file(checksum)

    def _copy(self, source: Location, target: Location) -> None:
        if source.is_local:
            try:
                # A link that leads nowhere is copied as the link that it is.
                shutil.copytree(source.local_path, target.local_path, symlinks=True)
            except shutil.Error as error:
                path, _, why = error.args[0][0]
                raise CheckpointError(
                    f"{path} cannot be copied: {why}",
                    fix="give yourself the right to read it, or remove it if no checkpoint has such a file; then type "
                    "the command again",
                    path=path,
                ) from error
            return
        filesystem, root = source.in_store()
        _, target_root = target.in_store()
        for path in filesystem.find(root):
            filesystem.cp_file(path, target_root.rstrip("/") + path.removeprefix(root.rstrip("/")))

    def _beside(self, name: str) -> Location:
        return replace(self.location, uri=f"{self.location.uri.rstrip('/').rpartition('/')[0]}/{name}")

    @staticmethod
    def _is_copy(name: str, file_name: str) -> bool:
        return file_name.startswith(name + _COPY) and file_name.removeprefix(name + _COPY).isdecimal()


def _rank(path: str) -> tuple[int, int]:
    folder, _, name = path.rpartition("/")
    order = {"commits": 1, "offsets": 2}
    # The later ones first, so that what is left is always a checkpoint.
    return order.get(folder.rpartition("/")[2], 0), -log_number(name)
