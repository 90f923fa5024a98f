"""What a project file says of packages that add to odi_assets: those that are there, gone, broken, or twice there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from odi_assets.config.json_schema import json_schema
from odi_assets.config.models.reads import SOURCES as KINDS
from odi_assets.config.yaml.document import read_document
from odi_assets.documents import parse
from odi_assets.errors import ConfigError
from odi_assets.util.extensions import ExtensionPoint
from odi_assets_tests.cli.shop import environment
from odi_assets_tests.config.support import load, problem, problems
from odi_assets_tests.extensions.packages import SOURCES, SQLITE, TOOLS, declare

PROJECT = """\
project: demo
requires: [odi-sqlite]
connections:
  lake: {type: local, base_path: data}
pipelines:
  - pipeline: p
    nodes:
      - name: orders
        read: {connection: lake, format: sqlite, path: shop.db, table: orders}
        write: {connection: lake, path: orders}
"""
OF_CSV = PROJECT.replace("requires: [odi-sqlite]\n", "").replace(
    "sqlite, path: shop.db, table: orders", "csv, path: in"
)
POINTS = {SOURCES: {"sqlite": "odi_sqlite:SQLITE"}, TOOLS: {"acme": "odi_sqlite_tool:ACME"}}
MODULES = {path.stem: path.read_text(encoding="utf-8") for path in SQLITE.glob("*.py")}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Python's path for packages of others."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.fixture
def sqlite(site: Path) -> Path:
    """The package of SQLite, installed; the folder of Python's path."""
    declare(site, "odi-sqlite", POINTS, **MODULES)
    return site


@pytest.mark.usefixtures("sqlite")
def test_a_project_file_has_sources_of_an_installed_kind(tmp_path: Path) -> None:
    (node,) = load(tmp_path, PROJECT).config.pipelines[0].nodes
    assert node.read is not None
    assert (node.read.format, node.read.place) == ("sqlite", "shop.db/orders")
    assert node.read.model_dump()["table"] == "orders"
    assert load(tmp_path, PROJECT.replace("odi-sqlite", "Odi_SQLite"))


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("format: sqlite", "format: sqlte", "9:42", "`debezium` or `sqlite`, did you mean `sqlite`?"),
        ("table: orders", "tabel: orders", "9:65", "unknown key `tabel`, did you mean `table`?"),
        (", table: orders", "", "9:9", "missing key `table`: table of the file"),
        ("table: orders", "table: 5", "9:72", "must be text, not a number"),
        ("path: shop.db", "path: ../shop.db", "9:56", "leads out of the connection `lake`"),
        ("requires: [odi-sqlite]\n", "", "8:42", "comes with the package `odi-sqlite`: add `requires: [odi-sqlite]`"),
        (
            "table: orders}",
            "table: orders, incremental: files}",
            "9:93",
            "`files` is no way to follow `format: sqlite`",
        ),
        ("name: orders", "name: orders\n        stream: {}", "10:42", "`sqlite` cannot be read as a stream"),
    ],
)
def test_mistakes_in_settings_of_an_installed_kind_have_their_places(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    assert old in PROJECT
    text = PROJECT.replace(old, new, 1).replace("path: orders}", "path: orders, mode: append}")
    found = str(problem(tmp_path, text))
    assert message in found
    assert f"odibi.yaml:{place}: " in found


@pytest.mark.usefixtures("site")
def test_a_project_whose_package_is_gone_names_the_package(tmp_path: Path) -> None:
    package, format_ = map(str, problems(tmp_path, PROJECT))
    assert "odibi.yaml:2:12: requires[0]: `odi-sqlite` is not installed here" in package
    assert "pip install odi-sqlite" in package
    assert "odibi.yaml:9:42: pipelines[0].nodes[0].read.format: unknown value `sqlite`" in format_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_driver", "ModuleNotFoundError: No module named 'no_such_driver'"),
        ("raise RuntimeError('no license')", "RuntimeError: no license"),
        ("", "AttributeError: module 'odi_sqlite' has no attribute 'SQLITE'"),
        ("SQLITE = dict", "names no `SourceKind`, but a type"),
    ],
)
def test_a_package_that_is_broken_is_named_with_its_entry_point(
    tmp_path: Path, site: Path, text: str, message: str
) -> None:
    declare(site, "odi-sqlite", POINTS, odi_sqlite=text)
    found = str(problem(tmp_path, PROJECT))
    assert "odibi.yaml:9:42: pipelines[0].nodes[0].read.format: " in found
    assert "the entry point `sqlite = odi_sqlite:SQLITE` of the package `odi-sqlite`" in found
    assert message in found
    # What is not of this package works.
    assert load(tmp_path, OF_CSV)


def test_a_kind_that_two_packages_have_is_an_error_that_names_both(tmp_path: Path, sqlite: Path) -> None:
    declare(sqlite, "other-sqlite", {SOURCES: {"sqlite": "other:SQLITE"}})
    found = str(problem(tmp_path, PROJECT))
    assert "`sqlite` is declared twice" in found
    assert "`odi-sqlite`" in found
    assert "`sqlite = other:SQLITE` of the package `other-sqlite`" in found


def test_a_package_cannot_take_a_name_of_this_one(tmp_path: Path, site: Path) -> None:
    declare(site, "other-csv", {SOURCES: {"csv": "other:CSV"}})
    assert load(tmp_path, OF_CSV).config.pipelines[0].nodes[0].read
    with pytest.raises(ConfigError, match="the kind of source `csv` is declared twice") as caught:
        KINDS.require_unique()
    assert "uninstall other-csv" in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("sqlite")
def test_editors_know_the_keys_of_an_installed_kind() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert not list(validator.iter_errors(read_document(PROJECT).data))
    for wrong in ("tabel: orders", "table: 5"):
        assert list(validator.iter_errors(read_document(PROJECT.replace("table: orders", wrong)).data))


@pytest.mark.usefixtures("sqlite")
def test_documents_of_an_installed_tool_are_recognized_and_read() -> None:
    found = parse('{"acme": {"orders": {"id": 4}, "lines": {"id": 9}}}')
    assert (found.tool, [stream.id for stream in found.streams]) == ("Acme", ["lines", "orders"])


def test_a_tool_whose_entry_point_has_another_name_is_refused(site: Path) -> None:
    declare(site, "odi-sqlite", {TOOLS: {"acne": "odi_sqlite_tool:ACME"}}, **MODULES)
    with pytest.raises(ConfigError, match="`acne` calls itself Acme"):
        parse('{"acme": {}}')


@pytest.mark.slow
def test_help_and_reads_of_our_own_load_no_package_of_others(tmp_path: Path, site: Path) -> None:
    declare(site, "odi-sqlite", POINTS, odi_sqlite="raise RuntimeError('loaded')")
    (tmp_path / "odibi.yaml").write_text(OF_CSV, encoding="utf-8")
    env = environment(PYTHONPATH=f"{SQLITE.parents[2]}:{site}")
    for arguments in (["--help"], ["config", "check"], ["state", "list"]):
        command = [sys.executable, "-m", "odi_assets.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_an_extension_point_lists_its_own_names_first(site: Path) -> None:
    declare(site, "some", {"some.group": {"a": "os:sep", "z": "os:curdir"}})
    point = ExtensionPoint("some.group", "thing", {"m": "os:pardir"}, "text")
    assert point.names() == ["m", "a", "z"]
    assert point.load("z", lambda found: found == ".") == "."
    with pytest.raises(ConfigError, match="there is no thing `b`"):
        point.load("b", callable)
