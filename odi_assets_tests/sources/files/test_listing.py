"""Files of a landing folder: which are sources, and in which order."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from odi_assets.config.models import LocalConnection
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import ConfigError, SourceError
from odi_assets.sources.files.listing import is_named, list_files, listing, looked_at_again


@pytest.fixture
def base(tmp_path: Path) -> Location:
    return resolve(LocalConnection(base_path="."), "", tmp_path)


def touch(folder: Path, *names: str, at: int = 1_000) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, ns=(at, at))


def names(base: Location, pattern: str) -> list[str]:
    return [file.path for file in list_files(base, pattern)]


@pytest.mark.parametrize(
    ("uri", "package"), [("s3://bucket/in", "s3fs"), ("abfss://lake@account/in", "adlfs"), ("gs://bucket/in", "gcsfs")]
)
def test_a_store_whose_package_is_not_installed_is_told_with_the_package(
    monkeypatch: pytest.MonkeyPatch, uri: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"].__dict__["_registry"], uri.partition("://")[0], raising=False)
    for look in (lambda: list_files(Location(uri), "*.csv"), lambda: Location(f"{uri}/1.csv").open("rb")):
        with pytest.raises(ConfigError, match="cannot be looked at") as told:
            look()
        assert f"pip install {package}" in str(told.value.fix)


def test_a_glob_a_folder_and_a_single_file_name_files(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a/1.csv", "a/2.csv", "a/3.txt", "a/b/4.csv")
    assert names(base, "a/*.csv") == ["a/1.csv", "a/2.csv"]
    assert names(base, "a/**/*.csv") == ["a/1.csv", "a/2.csv", "a/b/4.csv"]
    assert names(base, "a") == ["a/1.csv", "a/2.csv", "a/3.txt", "a/b/4.csv"]
    assert names(base, "a/1.csv") == ["a/1.csv"]
    assert names(base, "nowhere/*.csv") == []


def test_files_come_in_the_order_of_their_change_and_then_of_their_path(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "z.csv", at=1_000_000_001)
    touch(tmp_path, "b.csv", "a.csv", at=1_000_000_002)
    assert names(base, "*.csv") == ["z.csv", "a.csv", "b.csv"]


def test_hidden_files_and_folders_are_not_sources(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "_b.csv", ".c.csv", "_temporary/d.csv", ".tmp/e.csv", "_day=1/f.csv", "g.csv._COPYING_")
    assert names(base, "**/*") == ["_day=1/f.csv", "a.csv"]


def test_a_name_that_is_no_text_is_said_where_the_path_matches_it(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "b.json")
    (tmp_path / "caf\udce9.csv").write_text("x")
    with pytest.raises(SourceError, match=r"caf\\xe9\.csv has a name that is not UTF-8"):
        names(base, "*.csv")
    assert names(base, "*.json") == ["b.json"]


def test_a_folder_where_a_file_is_to_be_and_a_file_where_a_folder_is_to_be_are_said(
    base: Location, tmp_path: Path
) -> None:
    touch(tmp_path, "in/part.csv/1", "file")
    for pattern, what in (("in/*.csv", "part.csv is no file"), ("file/*.csv", "file is a file, and the path")):
        with pytest.raises(SourceError, match=what):
            names(base, pattern)
    assert names(base, "in/*") == []
    assert names(base, "in/*.csv/*") == ["in/part.csv/1"]


def test_globs_look_no_deeper_than_they_say(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "2024/01/a.csv", "2024/02/b.csv", "2024/c.csv", "2024/01/deep/d.csv", "2025/01/e.json")
    assert names(base, "*/*/*.csv") == ["2024/01/a.csv", "2024/02/b.csv"]
    assert names(base, "202?/*.csv") == ["2024/c.csv"]
    assert names(base, "2024/0[12]/*") == ["2024/01/a.csv", "2024/02/b.csv"]
    assert names(base, "**") == names(base, "")


def test_folders_that_a_star_names_beside_files_are_named_and_not_looked_into(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "in/a.csv", "in/k=1/b.csv", "in/k=1/deep/c.csv", "in/_temporary/d.csv")
    assert listing(base, "in/*").folders == ["in/k=1"]
    assert "folder in/k=1: `path: in` would" in listing(base, "in/*").note
    assert "folder in/k=1/deep: `path: in/k=*/**` would" in listing(base, "in/k=*/*").note
    assert names(base, "in/k=*/**") == ["in/k=1/b.csv", "in/k=1/deep/c.csv"]
    for pattern in ("in", "in/**", "in/*.csv", "in/a.csv", "in/k=1/*.csv", "nowhere/*"):
        assert listing(base, pattern).note == ""


@pytest.mark.parametrize("pattern", ["in/*", "in/k=*/*", "in/**/*.csv", "in/[ab].csv", "in", "in/a.csv", "**"])
def test_a_pattern_names_the_files_that_it_lists_and_no_others(base: Location, tmp_path: Path, pattern: str) -> None:
    touch(tmp_path, "in/a.csv", "in/c.csv", "in/k=1/b.csv", "in/k=1/deep/c.csv", "in2/a.csv")
    named = [path for path in names(base, "") if is_named(base, pattern, path)]
    assert named == names(base, pattern)


def test_links_are_what_they_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    touch(outside, "far.csv", "folder/near.csv")
    landing = Location(str(tmp_path / "landing"))
    touch(tmp_path / "landing", "own.csv")
    (tmp_path / "landing" / "link.csv").symlink_to(outside / "far.csv")
    (tmp_path / "landing" / "linked").symlink_to(outside / "folder")
    assert names(landing, "**/*.csv") == ["link.csv", "linked/near.csv", "own.csv"]
    assert names(landing, "linked") == ["linked/near.csv"]
    assert [file.mtime_ns for file in list_files(landing, "link.csv")] == [1_000]
    (outside / "folder" / "loop").symlink_to(tmp_path / "landing")
    assert names(landing, "**/*.csv") == ["link.csv", "linked/near.csv", "own.csv"]


def test_a_link_to_nothing_is_an_error_and_not_an_empty_folder(base: Location, tmp_path: Path) -> None:
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    for pattern in ("*.csv", "gone.csv"):
        with pytest.raises(SourceError, match=r"gone\.csv"):
            names(base, pattern)


def test_links_in_a_circle_are_an_error_for_files_and_end_for_folders(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a/1.csv", "b/2.csv")
    (tmp_path / "a" / "to_b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    assert names(base, "**/*.csv") == ["a/1.csv", "a/to_b/2.csv", "b/2.csv", "b/to_a/1.csv"]
    assert names(base, "*/*/*.csv") == ["a/to_b/2.csv", "b/to_a/1.csv"]
    (tmp_path / "a" / "x.csv").symlink_to(tmp_path / "a" / "y.csv")
    (tmp_path / "a" / "y.csv").symlink_to(tmp_path / "a" / "x.csv")
    with pytest.raises(SourceError, match="cannot be listed"):
        names(base, "a/*.csv")


def test_what_is_no_file_is_said_and_not_waited_for(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(SourceError, match=r"pipe\.csv is no file"):
        names(base, "*.csv")


ODD = ("a#b", "a?b", "a%20b", "a b", "ü日本", "a:b", "x{y}", "a+b", "a\\b", "a'b", "a;b", "a=b", "~a", "a::b", "a[1]")


@pytest.mark.parametrize("odd", ODD)
def test_a_landing_zone_and_its_folders_may_have_any_name(tmp_path: Path, odd: str) -> None:
    base = resolve(LocalConnection(base_path=str(tmp_path / odd)), "", tmp_path)
    touch(tmp_path / odd, f"{odd}.csv", f"{odd}/1.csv")
    assert names(base, "*.csv") == names(base, f"{odd}.csv") == [f"{odd}.csv"]
    assert names(base, odd) == names(base, f"{odd}/*.csv") == names(base, f"{odd}/**/*.csv") == [f"{odd}/1.csv"]


def test_a_part_that_is_there_as_it_is_written_is_no_glob(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "in[1]/a.csv", "in1/b.csv")
    assert names(base, "in[1]/*.csv") == ["in[1]/a.csv"]
    assert names(base, "in[[]1]/*.csv") == ["in[1]/a.csv"]
    assert names(base, "in[12]/*.csv") == ["in1/b.csv"]


def test_a_name_that_spark_cannot_open_is_refused_by_name(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a:b[1].csv")
    with pytest.raises(SourceError, match=r"a:b\[1\]\.csv has a name that Spark cannot open"):
        names(base, "*.csv")


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """An object store with one bucket. A fault is raised as the libraries of stores raise theirs."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fault: ClassVar[Exception | None] = None
    cachable = False

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if Bucket.fault is not None:
            raise Bucket.fault
        return super().ls(path, detail=detail, **kwargs)

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if Bucket.fault is not None:
            raise Bucket.fault
        return super().find(path, *args, **kwargs)

    def info(self, path: str, **kwargs: Any) -> Any:
        if Bucket.fault is not None:
            raise Bucket.fault
        return super().info(path, **kwargs)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Location:
    filesystem = Bucket()
    monkeypatch.setattr(Bucket, "store", {})
    monkeypatch.setattr(Bucket, "pseudo_dirs", ["", "/lake"])
    monkeypatch.setattr(Bucket, "fault", None)
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda uri, **_: (filesystem, "/" + uri.removeprefix("s3://")))
    monkeypatch.setattr("odi_assets.sources.files.listing._mtime_ns", lambda *_: 1)
    for name in ("a.csv", "b/c.csv", "_d.csv"):
        filesystem.pipe(f"/lake/in/{name}", b"x")
    return Location("s3://lake")


def test_an_object_store_is_listed_by_the_same_rules(store: Location) -> None:
    assert names(store, "in/*.csv") == ["in/a.csv"]
    assert names(store, "in/**/*.csv") == names(store, "in") == ["in/a.csv", "in/b/c.csv"]
    assert names(store, "nowhere/*.csv") == names(store, "nowhere") == []
    assert listing(store, "in/*").folders == ["in/b"]
    with pytest.raises(SourceError, match="lake/in/b is no file, but a folder"):
        names(store, "in/[b]")


@pytest.mark.parametrize("count", [2, 100_000])
def test_files_of_a_store_are_looked_at_again_one_by_one_or_in_one_listing(store: Location, count: int) -> None:
    Bucket().pipe("/lake/in/x[1].csv", b"x")
    again = looked_at_again(store, "in/**", ["in/x[1].csv", "in/b/c.csv", "in/gone.csv"], count)
    assert sorted(file.path for file in again) == ["in/b/c.csv", "in/x[1].csv"]


@pytest.mark.parametrize(
    "fault",
    [
        FileNotFoundError("The specified bucket does not exist"),
        PermissionError("Access Denied"),
        RuntimeError("could not connect to the endpoint"),
    ],
)
@pytest.mark.parametrize("pattern", ["in/*.csv", "in/**/*.csv", "in", "in/a.csv"])
def test_a_bucket_that_is_not_there_or_refuses_is_an_error_and_not_nothing(
    store: Location, monkeypatch: pytest.MonkeyPatch, fault: Exception, pattern: str
) -> None:
    monkeypatch.setattr(Bucket, "fault", fault)
    with pytest.raises(SourceError, match=str(fault)):
        names(store, pattern)


def test_what_cannot_be_looked_at_is_an_error_and_not_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be listed"):
        names(Location(str(tmp_path / "unmounted")), "*.csv")
    touch(tmp_path, "file")
    with pytest.raises(SourceError, match="cannot be listed"):
        names(Location(str(tmp_path / "file")), "a/*.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_without_the_right_to_look_is_an_error(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, "a/secret/1.csv")
    (tmp_path / "a" / "secret").chmod(0)
    try:
        with pytest.raises(SourceError, match="secret"):
            names(base, "a/**/*.csv")
    finally:
        (tmp_path / "a" / "secret").chmod(0o755)


LOGS = {
    "Delta": "t/_delta_log/00000000000000000000.json",
    "Hudi": "t/.hoodie/hoodie.properties",
    "Iceberg": "t/metadata/00000-1.metadata.json",
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("pattern", ["t", "", "*/*/*.parquet", "**/*.parquet", "t/k=1/*.parquet", "t/k=1/1.parquet"])
def test_the_files_of_a_table_are_no_landing_files(base: Location, tmp_path: Path, pattern: str, kind: str) -> None:
    """Of its files, some hold rows that were removed or replaced; they were loaded as new ones."""
    touch(tmp_path, "t/k=1/1.parquet", "other/k=1/2.parquet")
    assert "t/k=1/1.parquet" in names(base, pattern)
    touch(tmp_path, LOGS[kind])
    with pytest.raises(SourceError, match=rf"/t is a {kind} table: .* as t/k=1/1\.parquet") as caught:
        list_files(base, pattern)
    assert ("format: delta, path: t" in str(caught.value.fix)) is (kind == "Delta")
    assert names(base, "other/**/*.parquet") == ["other/k=1/2.parquet"]


def test_files_beside_tables_are_landing_files(base: Location, tmp_path: Path) -> None:
    touch(tmp_path, *LOGS.values(), "t/1.parquet", "t/in/a.csv", "b.parquet")
    assert names(base, "t/in/*.csv") == ["t/in/a.csv"]
    assert names(base, "*.parquet") == ["b.parquet"]


@pytest.mark.parametrize(
    "pattern", ["t", "*/*/*.parquet", "**/*.parquet", "t/k=1/*.parquet", "t/k=1/1.parquet", "t/k=1"]
)
def test_the_files_of_a_table_in_a_bucket_are_no_landing_files(store: Location, pattern: str) -> None:
    for name in ("t/k=1/1.parquet", "other/k=1/2.parquet"):
        Bucket().pipe(f"/lake/{name}", b"x")
    assert "t/k=1/1.parquet" in names(store, pattern)
    Bucket().pipe(f"/lake/{LOGS['Delta']}", b"{}")
    with pytest.raises(SourceError, match=r"/t is a Delta table"):
        list_files(store, pattern)
    assert names(store, "other/k=1/*.parquet") == ["other/k=1/2.parquet"]
