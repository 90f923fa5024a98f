"""State as a document: what is exported is imported, whole or not at all."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import Any

import pytest

from odi_assets.errors import ConfigError, StateConflictError, StateError
from odi_assets.state import StateBackend, StateManager
from odi_assets.state.transfer.document import parse, to_document, to_text
from odi_assets.state.transfer.load import Transfer, TransferEffect, decide
from odi_assets.state.transfer.snapshot import StateSnapshot, into, take
from odi_assets_tests.state.conftest import Reopen
from odi_assets_tests.state.test_runs_contract import run
from odi_assets_tests.state.values.test_values import EXAMPLES, same


def exported(backend: StateBackend, **what: Any) -> str:
    found = take(backend, project="shop", environments=[backend.environment], **what)
    return to_text(to_document(found, history=what.get("history", False), runs=what.get("runs", False)))


def imported(text: str, backend: StateBackend, **how: Any) -> Transfer:
    how.setdefault("same_tables", True)
    transfer = decide(parse(text, "state.json"), backend, **how)
    transfer.apply()
    return transfer


@pytest.mark.slow
def test_every_type_of_value_is_carried_over_as_it_was(backend: StateBackend, reopen: Reopen) -> None:
    for name, value in EXAMPLES.items():
        backend.reset_hwm(name, value)
    text = exported(backend, history=True, runs=True)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = parse(text, "state.json").environments[0].keys
    assert {key.entry.key for key in found} == set(EXAMPLES)
    for key in found:
        kept = reopen().get_entry(key.entry.key)
        assert kept is not None
        assert same(key.entry.value, EXAMPLES[key.entry.key])
        assert (key.entry.revision, key.entry.updated_at) == (kept.revision, kept.updated_at)


def test_an_import_into_empty_state_makes_it_the_same(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("k", date(2013, 1, 30), target_commit=1, run_id="a")
    backend.set_hwm("k", date(2013, 1, 31), target_commit=2, run_id="b")
    backend.set_hwm("gone", 1)
    backend.delete_hwm("gone")
    backend.record_runs([run(2, metrics={"x": math.nan}), run(1, error="no", hwm_after={"version": 3})])
    text = exported(backend, history=True, runs=True)
    copy = reopen("copy")
    imported(text.replace('"environment": null', '"environment": "copy"'), copy)
    again = exported(copy, history=True, runs=True)
    ours, theirs = (json.loads(document)["environments"][0] for document in (text, again))
    assert (theirs["keys"], theirs["runs"]) == (ours["keys"], ours["runs"])


def test_an_import_says_what_it_does_to_each_key_and_twice_does_nothing(backend: StateBackend, reopen: Reopen) -> None:
    source = reopen("source")
    for key, value in {"new": 1, "ahead": 5, "same": 3, "behind": 9}.items():
        source.set_hwm(key, value)
    backend.set_hwm("same", 3)
    backend.set_hwm("behind", 10)
    text = exported(source).replace('"environment": "source"', '"environment": null')
    backend.set_hwm("other", 1)
    transfer = imported(text, backend)
    effects = {difference.after.key: difference.effect for difference in transfer.differences}
    assert effects == {
        "ahead": TransferEffect.ADDED,
        "behind": TransferEffect.BACK,
        "new": TransferEffect.ADDED,
        "same": TransferEffect.UNCHANGED,
    }
    assert {entry.key: entry.value for entry in reopen().list_hwms()} == {
        "ahead": 5,
        "behind": 10,
        "new": 1,
        "other": 1,
        "same": 3,
    }
    assert imported(text, backend, force=True).moves
    assert backend.get_hwm("behind") == 9
    assert imported(text, backend).changes_nothing
    assert imported(text, backend, force=True).changes_nothing


def test_a_mark_without_an_order_moves_back_when_it_was_written_before(backend: StateBackend) -> None:
    backend.set_hwm("k", {"mtime_ns": 2, "path": "b"})
    text = exported(backend)
    backend.set_hwm("k", {"mtime_ns": 3, "path": "c"})
    (difference,) = decide(parse(text, "-"), backend, same_tables=True).differences
    assert difference.effect is TransferEffect.BACK


def test_a_deletion_is_carried_over(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("k", 1)
    reopen("copy").set_hwm("k", 1)
    backend.delete_hwm("k")
    imported(exported(backend).replace('"environment": null', '"environment": "copy"'), reopen("copy"))
    tombstone = reopen("copy").get_entry("k", deleted=True)
    assert tombstone is not None
    assert tombstone.deleted


def test_state_of_other_tables_comes_without_their_commits_and_times(backend: StateBackend, reopen: Reopen) -> None:
    source = reopen("source")
    source.set_hwm("k", 1)
    written = source.set_hwm("k", 2, target_commit=7)
    snapshot = into(parse(exported(source, history=True), "-"), None)
    decide(snapshot, backend, same_tables=False).apply()
    (copied,) = backend.history("k")
    assert (copied.value, copied.revision, copied.target_commit) == (2, 1, None)
    assert copied.updated_at > written.updated_at


def test_several_environments_do_not_become_one(backend: StateBackend, reopen: Reopen) -> None:
    reopen("a").set_hwm("k", 1)
    reopen("b").set_hwm("k", 2)
    with pytest.raises(Exception, match=r"several environments \(a, b\)"):
        into(take(backend, project=None), "c")


def test_a_key_that_changed_since_the_decision_stops_all_of_its_environment(backend: StateBackend) -> None:
    text = to_text(to_document(document_of(a=1, b=1), history=False, runs=False))
    transfer = decide(parse(text, "-"), backend, same_tables=True)
    backend.set_hwm("b", 0)
    with pytest.raises(StateConflictError):
        transfer.apply()
    assert backend.get_hwm("a") is None


def document_of(**values: Any) -> StateSnapshot:
    from odi_assets.state.records import HwmEntry
    from odi_assets.state.transfer.snapshot import EnvironmentState, KeyState

    at = datetime(2013, 1, 31, tzinfo=UTC)
    keys = tuple(KeyState(HwmEntry(key, value, None, at, 1, value_type="int")) for key, value in values.items())
    return StateSnapshot("shop", (EnvironmentState(None, keys),))


KEY = {
    "key": "k",
    "value_type": "date",
    "value": "2013-01-31",
    "revision": 1,
    "updated_at": "2013-01-31T00:00:00+00:00",
    "deleted": False,
}


def document(*keys: dict[str, Any], **more: Any) -> str:
    parts = {"format": "odi-state", "version": 1, "environments": [{"environment": None, "keys": list(keys)}], **more}
    return json.dumps(parts, indent=1)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("{", "1:2", "not JSON"),
        ("[]", "1:1", "object"),
        (document(KEY, version=2), "3:13", "version: should be 1"),
        (document(KEY, extra=1), "", "extra: is not a part of such a document"),
        (document(KEY | {"value": "31.1.2013"}), "11:15", "environments[0].keys[0].value: "),
        (document(KEY | {"value_type": "day"}), "11:15", "unknown type"),
        (document(KEY | {"revision": -1}), "12:18", "revision"),
        (document(KEY | {"updated_at": "2013-01-31"}), "13:20", "updated_at"),
        (document(KEY | {"updated_at": 5}), "13:20", "must be a moment with its zone"),
        (document(KEY | {"key": ""}), "9:13", "a state key is text of at least one character"),
        (document(KEY | {"deleted": True}), "11:15", "must be null"),
        (document(KEY, KEY), "7:12", "each key may be there once only: k"),
        (document(KEY | {"older": [{k: v for k, v in KEY.items() if k != "key"}]}), "15:15", "oldest first"),
        (document({k: v for k, v in KEY.items() if k != "value"}), "8:5", "value: is missing"),
        ('{"format": "odi-state", "format": "odi-state"}', "", "given more than once"),
    ],
)
def test_what_is_wrong_with_a_document_is_told_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse(text, "state.json")
    assert f"state.json:{place}" in str(told.value)
    assert message in str(told.value)
    assert "nothing was changed" in str(told.value)


def test_all_mistakes_are_told_at_once_in_order() -> None:
    text = document(KEY | {"value": 1}, KEY | {"key": "b", "deleted": "no"}, KEY | {"key": "c", "revision": "1"})
    with pytest.raises(ConfigError) as told:
        parse(text, "state.json")
    assert [problem.split(": ")[1] for problem in told.value.problems] == [
        "environments[0].keys[0].value",
        "environments[0].keys[1].deleted",
        "environments[0].keys[2].revision",
    ]


def test_every_flaw_of_a_text_that_is_no_json_is_listed_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse('{"format": NaN,\n"project": None,\n"project": 1,\n"deep": ' + "[" * 201 + "]" * 201 + "}", "state.json")
    lines = [problem.split(":")[1] for problem in caught.value.problems]
    assert lines == ["1", "2", "3", "4"]
    assert "nested more than 200 levels deep" in caught.value.problems[-1]


def test_a_value_of_odibis_stays_without_a_type(backend: StateBackend) -> None:
    text = document(KEY | {"value_type": None, "value": 12.5})
    imported(text, backend)
    entry = backend.get_entry("k")
    assert entry is not None
    assert (entry.value, entry.value_type) == (12.5, None)


def test_the_manager_exports_and_imports(backend: StateBackend, reopen: Reopen) -> None:
    manager = StateManager(backend=backend)
    manager.set_hwm("k", date(2013, 1, 31))
    saved = manager.export_state(history=True, runs=True)
    manager.delete_hwm("k")
    with pytest.raises(StateError, match="would move back: k"):
        manager.import_state(saved)
    assert manager.import_state(saved, force=True, dry_run=True).moves
    assert manager.get_hwm("k") is None
    manager.import_state(saved, force=True)
    assert reopen().get_hwm("k") == date(2013, 1, 31)
