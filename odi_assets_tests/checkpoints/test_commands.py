"""``odi checkpoint`` from the shell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from odi_assets.checkpoints import judge
from odi_assets.cli import main

LOG_FILES = ("metadata", "commits/1", "commits/3", "offsets/1", "offsets/3")
"""Of a checkpoint with the batches 0 to 3."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ODI_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)


def printed(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capfd.readouterr()
    ended = main(["checkpoint", *arguments, "--json"])
    shown = capfd.readouterr()
    assert ended == code, shown.err
    return json.loads(shown.out) if shown.out else shown.err


def test_metadata_and_files_need_no_spark(
    join_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = printed(capfd, "metadata", str(join_checkpoint))
    assert told["batches"] == [0, 1, 2, 3]
    assert told["state"][0]["store"] == "left-keyToNumValues"
    assert printed(capfd, "files", str(join_checkpoint))["faults"] == []
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    torn = next(copy.glob("state/0/0/left-*/4.changelog"))
    torn.write_bytes(torn.read_bytes()[:-3])
    told = printed(capfd, "files", "copy", code=1)
    assert [fault["path"] for fault in told["faults"]] == [torn.relative_to(copy).as_posix()]
    assert (told["readable"], list(told["lost"])) == ([0, 1, 2], ["3"])
    assert "of a node: odi state rewind NODE --list" in told["faults"][0]["remedy"]
    (of_node,) = judge(copy).of_node("shop.orders").faults
    assert of_node.remedy.endswith("(odi state rewind shop.orders --list)")
    assert main(["checkpoint", "files", "copy"]) == 1
    assert "the query cannot go on" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "v1", '{"v', "v1\n{", "v1\n[]", "\x00"])
@pytest.mark.parametrize(
    "file", ["commits/3", "offsets/3", "commits/1", "offsets/1", "metadata", "state/0/_metadata/metadata"]
)
def test_a_log_file_that_is_torn_anyhow_is_a_fault_with_a_remedy(
    join_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    for place in (copy / file, *copy.glob(f"{file}/*")) if file.startswith("state") else (copy / file,):
        if place.is_file():
            place.write_text(text, encoding="utf-8")
            place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
    told = printed(capfd, "files", str(copy), code=1)
    assert any(fault["path"].startswith(file) and fault["remedy"] for fault in told["faults"]), told["faults"]


def test_state_is_readable_without_the_description_of_its_operator_as_far_as_its_files_are_there(
    join_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(join_checkpoint, tmp_path / "copy"))
    shutil.rmtree(copy / "state" / "0" / "_metadata")
    told = printed(capfd, "files", str(copy), code=1)
    assert [fault["path"] for fault in told["faults"]] == ["state/0/_metadata"]
    assert "the next batch writes it again" in told["faults"][0]["remedy"]
    assert (told["readable"], told["restarts"]) == ([0, 1, 2, 3], True)
    torn = next(copy.glob("state/0/0/left-*/4.changelog"))
    torn.write_bytes(torn.read_bytes()[:-3])
    assert printed(capfd, "files", str(copy), code=1)["readable"] == [0, 1, 2]


def test_a_checkpoint_in_a_store_is_copied_here_and_errors_name_the_store(
    join_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri = fsspec.filesystem("memory"), "memory://bucket/below/checkpoint"
    store.put(f"{join_checkpoint}/", uri, recursive=True)
    here = printed(capfd, "metadata", str(join_checkpoint))
    there = printed(capfd, "metadata", uri)
    assert there["path"] == uri
    assert {**there, "path": None, "committed_at": None} == {**here, "path": None, "committed_at": None}
    there, here = printed(capfd, "files", uri), printed(capfd, "files", str(join_checkpoint))
    assert {**there, "path": None} == {**here, "path": None}
    told = printed(capfd, "health", uri, "--files-only")
    assert (told["path"], told["files"], told["snapshot_lag"]) == (uri, here["files"], 4)

    (torn,) = store.glob("/bucket/below/checkpoint/state/0/0/left-keyW*/4.changelog")
    store.pipe(torn, store.cat(torn)[:-3])
    assert printed(capfd, "files", uri, code=1)["readable"] == [0, 1, 2]
    store.pipe("/bucket/below/checkpoint/offsets/3", b"v1")
    said = printed(capfd, "metadata", uri, code=1)
    assert f"{uri}/offsets/3 is torn" in said
    assert str(tmp_path.parent.parent) not in said
    assert f"did you mean {uri}?" in printed(capfd, "files", "memory://bucket/below", code=1)
    assert "does not exist" in printed(capfd, "health", "memory://bucket/none", "--files-only", code=1)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("403: not for you")

    # As the file systems of S3, Azure and Google take a refusal.
    monkeypatch.setattr(MemoryFileSystem, "isfile", AbstractFileSystem.isfile)
    monkeypatch.setattr(MemoryFileSystem, "info", refuse)
    told = printed(capfd, "files", uri, code=1)
    assert f"{uri} cannot be read: PermissionError: 403" in told
    assert "nostore://x/y cannot be read" in printed(capfd, "files", "nostore://x/y", code=1)


def test_a_checkpoint_is_found_below_a_connection(
    join_checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its store is reached with what the connection says."""
    (tmp_path / "odibi.yaml").write_text(
        "project: p\nconnections:\n  s: {type: s3, bucket: b, endpoint: 'http://x', access_key_id: a, "
        "secret_access_key: s}\npipelines:\n- pipeline: p\n  nodes:\n  - name: n\n    read: {connection: s, "
        "format: csv, path: '*.csv'}\n    write: {connection: s, path: n}\n"
    )
    seen = []

    @contextmanager
    def copied(uri: str, options: dict[str, Any], *, logs_only: bool) -> Iterator[Path]:
        seen.append((uri, options, logs_only))
        yield join_checkpoint

    monkeypatch.setattr("odi_assets.checkpoints.copies.local_copy", copied)
    assert printed(capfd, "metadata", "s:below/checkpoint")["batches"] == [0, 1, 2, 3]
    ((uri, options, logs_only),) = seen
    assert (uri, logs_only) == ("s3://b/below/checkpoint", True)
    assert "http://x" in str(options)


@pytest.mark.usefixtures("spark")
def test_state_changes_and_timers_are_printed(
    join_checkpoint: Path, visits_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = printed(capfd, "read", str(join_checkpoint), "--side", "left", "--where", "value.id > 7")
    assert sorted(row["value"]["id"] for row in rows) == [8, 9]
    assert len(printed(capfd, "read", str(join_checkpoint), "--side", "left", "--limit", "1")) == 1
    gone = printed(capfd, "changes", str(join_checkpoint), "--side", "left", "--from", "3")
    assert [(row["batch_id"], row["change_type"], row["value"]) for row in gone] == [(3, "delete", None)] * 2
    (timer,) = printed(capfd, "timers", str(visits_checkpoint))
    assert timer["key"] == {"shop": "x"}
    assert "the columns are" in printed(capfd, "read", str(join_checkpoint), "--side", "left", "-w", "no", code=2)


@pytest.mark.usefixtures("spark")
def test_a_key_is_explained_and_health_is_told(
    join_checkpoint: Path, old_join_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    keys = ("-k", "field1=x,field0=2", "-k", "field0=7,field1=x")
    assert main(["explain", "--checkpoint", str(join_checkpoint), *keys, "--json"]) == 0
    expired, waiting = json.loads(capfd.readouterr().out)
    assert (expired["key"], expired["verdict"], waiting["verdict"]) == (["2", "x"], "EXPIRED", "WAITING")
    assert (expired["state"]["left"]["fate"], expired["state"]["left"]["purged_in"]) == ("EXPIRED", [3])
    assert (expired["state"]["last_batch"], expired["state"]["watermark"]) == (3, "2024-01-01T19:50:00Z")
    assert waiting["state"]["left"]["rows"][0]["id"] == 7
    Path("keys.txt").write_text("field0\tfield1\n5\tx\n", encoding="utf-8")
    assert main(["explain", "--checkpoint", str(old_join_checkpoint), "--keys-from", "keys.txt", "--json"]) == 0
    (gone,) = json.loads(capfd.readouterr().out)
    assert gone["verdict"] == "UNDECIDABLE"
    assert "minBatchesToRetain" in gone["lost"][0]
    assert main(["explain", "--checkpoint", str(join_checkpoint), "-k", "2"]) == 2
    assert "--key field0=…,field1=…" in capfd.readouterr().err
    told = printed(capfd, "health", str(join_checkpoint), "--batches", "1")
    assert told["batches"][-1]["state_rows"] == 5


@pytest.mark.parametrize("command", ["metadata", "read", "changes", "timers", "files", "health"])
def test_a_path_that_is_no_checkpoint_is_told_before_spark_starts(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "does not exist" in printed(capfd, command, "nothing", code=1)
    (tmp_path / "folder").mkdir()
    assert "is not a checkpoint" in printed(capfd, command, "folder", code=1)
