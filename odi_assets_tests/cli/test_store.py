"""``odi store``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.store import StateStoreProvider
from odi_assets_tests.cli.conftest import Odi

PROJECT = """
project: test
connections: {lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - {name: raw, read: {connection: lake, format: delta, path: source}, write: {connection: lake, path: raw}}
"""


@pytest.fixture
def seen(tmp_path: Path) -> str:
    """A store of five versions with snapshots of the third, below the current folder."""
    fill(tmp_path / "lake" / "seen")
    return "lake/seen"


def fill(folder: Path) -> None:
    provider = StateStoreProvider(folder, writer="import-1", snapshot_every=3)
    for version in range(5):
        store = provider.get_store(version)
        store.put(b"customer/%d" % version, b"day %d" % version)
        store.put(b"\xff", b"\x00\xff")
        if version == 3:
            store.remove(b"customer/0")
        store.commit()


def files(folder: str, version: int) -> list[Path]:
    actions = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    return [Path(folder) / row["path"] for row in actions if row["min.version"] == version]


def test_stores_are_listed_with_their_latest_version(seen: str, odi: Odi) -> None:
    fill(Path("lake/deeper/other"))
    write_deltalake("lake/table", pa.table({"a": [1]}))
    answer = odi("store", "list", "lake")
    assert answer.code == 0
    assert [line.split()[:2] for line in answer.out.splitlines()[1:]] == [
        [str(Path("lake/deeper/other").absolute()), "5"],
        [str(Path(seen).absolute()), "5"],
    ]
    listed = json.loads(odi("store", "list", "lake", "--json").out)
    assert [(one["latest"], one["writer"], one["files"]) for one in listed] == [(5, "import-1", 6)] * 2
    (alone,) = json.loads(odi("store", "list", seen, "--json").out)
    assert alone == listed[1]


def test_the_stores_of_a_projects_nodes_are_found_by_name(tmp_path: Path, odi: Odi) -> None:
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    answer = odi("store", "list", "--json")
    assert (answer.code, json.loads(answer.out)) == (0, [])
    fill(tmp_path / "lake" / "system" / "stores" / "p.raw")
    (listed,) = json.loads(odi("store", "list", "--json").out)
    assert listed["uri"] == str(tmp_path / "lake" / "system" / "stores" / "p.raw")
    for path in ("p.raw", "lake:system/stores/p.raw", "lake/system/stores/p.raw"):
        assert odi("store", "get", path, "customer/1").out == "day 1\n"
    (by_connection,) = json.loads(odi("store", "list", "lake:system", "--json").out)
    assert by_connection == listed


def test_versions_are_listed_the_newest_last(seen: str, odi: Odi) -> None:
    answer = odi("store", "versions", seen)
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[0] == ["version", "committed", "(UTC)", "writer", "snapshot"]
    assert [(line[0], line[3:]) for line in lines[1:]] == [
        *[("1", ["import-1"]), ("2", ["import-1"]), ("3", ["import-1", "yes"])],
        *[("4", ["import-1"]), ("5", ["import-1"])],
    ]
    answer = odi("store", "versions", seen, "--limit", "2", "--json")
    assert [one["version"] for one in json.loads(answer.out)] == [4, 5]
    assert "3 earlier versions" in answer.err


def test_a_value_is_printed_as_text_or_hexadecimal(seen: str, odi: Odi) -> None:
    assert odi("store", "get", seen, "customer/1").out == "day 1\n"
    assert odi("store", "get", seen, "customer/0", "--version", "3").out == "day 0\n"
    assert odi("store", "get", seen, "ff", "--hex").out == "00ff\n"
    found = json.loads(odi("store", "get", seen, "ff", "--hex", "--json").out)
    assert found == {"key": {"hex": "ff"}, "value": {"hex": "00ff"}, "version": 5}
    assert json.loads(odi("store", "get", seen, "customer/1", "--json").out)["value"] == "day 1"


def test_a_key_that_is_not_there_fails_and_says_where_to_look(seen: str, odi: Odi) -> None:
    answer = odi("store", "get", seen, "customer/0")
    assert (answer.code, answer.out) == (1, "")
    assert "version 5" in answer.err
    assert f"odi store scan {seen}" in answer.err


def test_a_scan_goes_by_prefix_version_and_limit(seen: str, odi: Odi) -> None:
    answer = odi("store", "scan", seen, "--prefix", "customer/", "--limit", "2")
    assert answer.out.splitlines()[1:] == ["customer/1  day 1", "customer/2  day 2"]
    assert "2 keys" in answer.err
    everything = json.loads(odi("store", "scan", seen, "--version", "2", "--json").out)
    assert [one["key"] for one in everything] == ["customer/0", "customer/1", {"hex": "ff"}]
    assert [one["key"] for one in json.loads(odi("store", "scan", seen, "-p", "ff", "--hex", "--json").out)] == [
        {"hex": "ff"}
    ]
    assert json.loads(odi("store", "scan", seen, "--version", "0", "--json").out) == []
    assert "no such key" in odi("store", "scan", seen, "-p", "none").err


def test_a_scan_since_a_version_tells_what_changed(seen: str, odi: Odi) -> None:
    changes = json.loads(odi("store", "scan", seen, "--since", "3", "--json").out)
    assert [(one["version"], one["key"], one["value"]) for one in changes] == [
        (4, "customer/0", None),
        (4, "customer/3", "day 3"),
        (5, "customer/4", "day 4"),
    ]
    answer = odi("store", "scan", seen, "--since", "2", "--version", "4", "-p", "customer/3")
    assert answer.out.splitlines()[1:] == ["      4  customer/3  day 3"]
    assert odi("store", "scan", seen, "--since", "4", "--version", "3").code == 2
    assert "Nothing changed" in odi("store", "scan", seen, "--since", "5").err


@pytest.mark.parametrize("command", [["versions"], ["get"], ["scan"], ["check"], ["rewind", "--to-version", "1"]])
def test_a_path_that_is_no_store_is_bad_input(tmp_path: Path, odi: Odi, command: list[str]) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"a": [1]}))
    key = ["k"] if command == ["get"] else []
    for path, why in (("none", "there is no Delta table"), ("table", "is another's"), ("s3://b/k", "CONNECTION:PATH")):
        answer = odi("store", command[0], path, *key, *command[1:])
        assert (answer.code, answer.out) == (2, "")
        assert why in answer.err
        assert "→" in answer.err
    assert not (tmp_path / "none").exists()
    assert odi("store", "list", "none").code == 2


@pytest.mark.parametrize(
    "command", [["get", "customer/1", "--version"], ["scan", "--since"], ["rewind", "--to-version"]]
)
def test_a_version_that_is_none_is_bad_input_and_the_others_are_named(seen: str, odi: Odi, command: list[str]) -> None:
    answer = odi("store", command[0], seen, *command[1:], "77")
    assert (answer.code, answer.out) == (2, "")
    assert "has no version 77" in answer.err
    assert "1 to 5" in answer.err


def test_damage_is_named_and_repaired_as_far_as_it_goes(seen: str, odi: Odi) -> None:
    sound = odi("store", "check", seen)
    assert (sound.code, sound.out) == (0, "")
    assert "5 versions can be read" in sound.err
    snapshot = max(files(seen, 3), key=lambda file: file.stat().st_size)
    snapshot.write_bytes(b"")
    found = odi("store", "check", seen)
    assert (found.code, found.out.split()[0]) == (1, "file")
    assert snapshot.name in found.out
    assert "5 versions can be read" in found.err
    assert f"odi store check {seen} --repair" in found.err
    repaired = odi("store", "check", seen, "--repair", "--json")
    assert repaired.code == 0
    assert [one["path"] for one in json.loads(repaired.out)["repaired"]] == [snapshot.name]
    assert odi("store", "check", seen).code == 0


def test_what_cannot_be_repaired_says_how_to_go_on(seen: str, odi: Odi) -> None:
    files(seen, 5)[0].unlink()
    for options in ([], ["--repair"]):
        answer = odi("store", "check", seen, *options)
        assert answer.code == 1
        assert "4 versions can be read, 5 cannot" in answer.err
        assert f"odi store rewind {seen} --to-version 4" in answer.err
    listed = odi("store", "versions", seen)
    assert listed.code == 0
    assert listed.out.splitlines()[-1].endswith("version 5 is damaged")
    assert odi("store", "get", seen, "customer/1").code == 1
    assert odi("store", "get", seen, "customer/1", "--version", "4").code == 0

    assert odi("store", "rewind", seen, "--to-version", "4", "--dry-run").code == 0
    assert odi("store", "rewind", seen, "--to-version", "4").code == 2
    assert odi("store", "check", seen).code == 1
    assert odi("store", "rewind", seen, "--to-version", "4", "--yes").code == 0
    assert odi("store", "check", seen).code == 0
    assert odi("store", "get", seen, "customer/1").out == "day 1\n"
    assert "Nothing to do" in odi("store", "rewind", seen, "--to-version", "4", "--yes").err
