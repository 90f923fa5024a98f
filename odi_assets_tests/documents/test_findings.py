"""Everything that is wrong with a document is said, at its place, with its severity and what to do."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from benchmarks.cursors.documents import DOCUMENTS, mutants
from odi_assets.documents import Severity, Tool, inspect, inspect_bytes, inspect_file, load, parse, parse_olake
from odi_assets.errors import CursorDocumentError
from odi_assets_tests.documents.invalid import INVALID, Expected


@pytest.mark.parametrize(("text", "tool", "expected"), INVALID)
def test_all_that_is_wrong_is_said(text: str, tool: str | None, expected: tuple[Expected, ...]) -> None:
    found = inspect(text, tool=tool)
    assert [(f.line, f.column, f.key, f.severity.value) for f in found.findings] == [one[:4] for one in expected]
    for finding, (*_, message) in zip(found.findings, expected, strict=True):
        assert finding.message.startswith(message)
        assert finding.remedy
    assert (found.document is None) is any(severity == "error" for _, _, _, severity, _ in expected)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_the_tools_write_is_right(name: str) -> None:
    found = inspect(DOCUMENTS[name])
    assert found.findings == ()
    assert found.tool is not None
    assert found.tool.lower() in ("singer" if name == "meltano" else name)


@pytest.mark.parametrize("text", ['{"version": 7}', '{"version":7,"type":"STREAM"}', '{"type":"STREAM","streams":[]}'])
def test_a_document_that_holds_nothing_yet_is_right(text: str) -> None:
    found = inspect(text)
    assert found.findings == ()
    assert found.tool == Tool.OLAKE


@pytest.mark.parametrize("tool", Tool)
def test_an_empty_object_is_a_document_of_a_tool_that_is_named(tool: Tool) -> None:
    assert parse("{}", tool=tool).streams == ()


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not name.startswith("olake")])
def test_documents_of_other_tools_are_no_documents_of_olake(name: str) -> None:
    with pytest.raises(CursorDocumentError):
        parse_olake(DOCUMENTS[name])


def test_a_warning_leaves_the_document() -> None:
    document = parse_olake('{"type":"STREAM","version":7,"streams":null}')
    (warning,) = document.warnings
    assert warning.severity is Severity.WARNING
    assert document.version == 7


def test_a_version_of_the_future_is_refused() -> None:
    with pytest.raises(CursorDocumentError, match="a version of the future") as caught:
        parse_olake('{"type":"STREAM","version":8,"streams":[]}')
    assert (caught.value.key, caught.value.fix) == (
        "version",
        "use an odi_assets that knows it, or restore the document that OLake up to 0.9.4 wrote",
    )


def test_a_file_that_is_being_written_is_read_again(tmp_path: Path) -> None:
    file, whole = tmp_path / "state.json", DOCUMENTS["olake postgres"]
    file.write_text(whole[:40])
    writer = threading.Timer(0.05, lambda: file.write_text(whole))
    writer.start()
    assert load(file).text == whole
    writer.join()


@pytest.mark.parametrize("text", ["", "{", DOCUMENTS["olake mysql"][:-1]])
def test_a_file_that_stays_torn_has_lost_all_positions(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    began = time.monotonic()
    found = inspect_file(file)
    assert time.monotonic() - began > 0.15
    assert found.torn
    assert "all positions are lost" in str(found.findings[0])
    with pytest.raises(CursorDocumentError) as caught:
        load(file)
    assert caught.value.torn


@pytest.mark.parametrize(
    ("raw", "what"),
    [(b'\xff\xfe{\0"\0', "UTF-16"), (b'{"a":"\xff"}', "0xff"), (b"\x80", "0x80"), (b"\xef\xbb\xbf", "nothing")],
)
def test_bytes_that_are_no_text_are_named(raw: bytes, what: str) -> None:
    found = inspect_bytes(raw)
    assert found.document is None
    assert what in " ".join(finding.message for finding in found.findings)


def test_places_are_found_in_a_document_with_many_findings() -> None:
    streams = ",\n".join(f'{{"stream":"{number:03}","sync_mode":"x","state":{{}}}}' for number in range(200))
    found = inspect('{"type":"STREAM","streams":[\n' + streams + "]}")
    assert [finding.line for finding in found.findings] == list(range(2, 202))
    assert {finding.column for finding in found.findings} == {29}


def test_mutants_give_findings_or_a_document_and_nothing_else() -> None:
    """`python -m benchmarks cursors --only mutants` makes 100,000 of them."""
    for text in mutants(2000):
        found = inspect(text)
        assert (found.document is None) is any(one.severity is Severity.ERROR for one in found.findings)
