"""What of a landing folder is new: every file once, whatever its time of change."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from odi_assets.config.models import LocalConnection, OnChange
from odi_assets.config.write_modes import WriteMode
from odi_assets.connections.location import Location, resolve
from odi_assets.errors import IncrementError, SourceError
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.arrivals import Arrivals, arrivals
from odi_assets.sources.marks import FilesMark
from odi_assets_tests.work import grows_with_the_input, steps

SECOND = 1_000_000_000


class Landing:
    """A landing folder and the table that its files go to; a load is a look whose HWM is kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = resolve(LocalConnection(base_path="table"), "", root)
        self.base = resolve(LocalConnection(base_path="landing"), "", root)
        self.mark: FilesMark | None = None

    def land(self, name: str, text: str = "x", at: int = 1_000) -> Path:
        path = self.root / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(at, at))
        return path

    def look(self, rule: OnChange = "raise", **how: Any) -> Arrivals:
        listed = list_files(self.base, "**/*.csv")
        how.setdefault("traits", WriteMode.APPEND.traits)
        return arrivals(self.base, self.table, listed, self.mark, "landing:x", on_change=rule, **how)

    def load(self, rule: OnChange = "raise", **how: Any) -> list[str]:
        found = self.look(rule, **how)
        if found.part is not None:
            ledger.write(self.table, found.part)
        self.mark = found.mark
        return [file.path for file in found.new]


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def test_a_file_that_lands_with_an_older_time_than_those_loaded_is_loaded_once(landing: Landing) -> None:
    landing.land("new.csv", at=9 * SECOND)
    assert landing.load() == ["new.csv"]
    landing.land("copied.csv", at=2 * SECOND)
    assert landing.load() == ["copied.csv"]
    assert landing.load() == []
    assert (landing.mark.mtime_ns, landing.mark.path) == (9 * SECOND, "new.csv")


def test_two_looks_at_the_same_files_find_the_same_hwm(landing: Landing) -> None:
    landing.land("a.csv", at=1)
    landing.land("b.csv", at=2)
    assert landing.look().mark == landing.look().mark


def test_files_of_one_time_come_in_the_order_of_their_names_to_the_nanosecond(landing: Landing) -> None:
    for name, at in (("b.csv", SECOND + 1), ("a.csv", SECOND + 1), ("z.csv", SECOND)):
        landing.land(name, at=at)
    assert landing.load() == ["z.csv", "a.csv", "b.csv"]
    assert landing.mark.path == "b.csv"


def test_an_hwm_of_old_stands_for_the_files_up_to_it_and_grows_a_ledger(landing: Landing) -> None:
    landing.land("a.csv", at=1)
    landing.land("b.csv", at=2)
    landing.land("c.csv", at=3)
    landing.mark = FilesMark.of({"mtime_ns": 2, "path": "b.csv"}, "landing:x")
    assert landing.load() == ["c.csv"]
    landing.land("late.csv", at=1)
    assert landing.load() == ["late.csv"]


def test_an_hwm_of_old_grows_its_ledger_even_when_nothing_is_new(landing: Landing) -> None:
    landing.land("b.csv", at=2)
    landing.mark = FilesMark.of({"mtime_ns": 2, "path": "b.csv"}, "landing:x")
    assert landing.load() == []
    landing.land("late.csv", at=1)
    assert landing.load() == ["late.csv"]


def test_an_hwm_that_is_not_one_of_files_is_an_error(landing: Landing) -> None:
    landing.land("a.csv")
    with pytest.raises(IncrementError, match=r"the HWM of landing:x is 7; the HWM of files needs `mtime_ns`"):
        landing.mark = FilesMark.of(7, "landing:x")


def test_files_that_changed_a_moment_ago_belong_to_a_later_increment(landing: Landing) -> None:
    landing.land("a.csv", at=100 * SECOND)
    landing.land("b.csv", at=120 * SECOND)
    landing.land("clock-is-wrong.csv", at=900 * SECOND)
    settle: dict[str, Any] = {"settle": timedelta(seconds=30), "now_ns": 131 * SECOND}
    assert landing.look(**settle).unsettled == ("b.csv",)
    assert landing.load(**settle) == ["a.csv", "clock-is-wrong.csv"]
    assert landing.load(settle=timedelta(seconds=30), now_ns=150 * SECOND) == ["b.csv"]


def test_a_file_that_was_rewritten_is_an_error_or_loaded_again_or_left_as_it_was(landing: Landing) -> None:
    landing.land("a.csv", "one", at=1)
    landing.load()
    landing.land("a.csv", "two", at=2)
    with pytest.raises(IncrementError, match=r"1 file of landing:x was loaded and has other content now: a\.csv") as e:
        landing.look()
    assert "on_change" in str(e.value.fix)
    ignored = landing.look("ignore")
    assert (ignored.new, ignored.ignored) == ((), ("a.csv",))
    assert "1 rewritten and ignored (a.csv)" in ignored.notes
    assert landing.load("reload") == ["a.csv"]
    assert landing.load() == []


def test_a_file_that_was_only_touched_is_not_loaded_again(landing: Landing) -> None:
    landing.land("a.csv", "one", at=1)
    landing.load()
    landing.land("a.csv", "one", at=5)
    assert landing.load() == []


def test_a_change_in_the_middle_of_a_large_file_is_noticed_by_its_time(landing: Landing) -> None:
    text = "x" * 300_000
    landing.land("a.csv", text, at=1)
    landing.load()
    landing.land("a.csv", text[:150_000] + "y" + text[150_001:], at=2)
    with pytest.raises(IncrementError, match="other content now"):
        landing.look()


def test_a_file_that_was_moved_is_known_and_a_copy_of_it_is_not(landing: Landing) -> None:
    path = landing.land("a.csv", "one", at=1)
    landing.load()
    shutil.move(path, landing.root / "landing" / "moved.csv")
    assert landing.look().moved == ("moved.csv",)
    assert landing.load() == []
    landing.land("copy.csv", "one", at=7)
    assert landing.load() == ["copy.csv"]


def test_a_file_that_was_moved_may_be_touched_after_the_next_run(landing: Landing) -> None:
    path = landing.land("a.csv", "one", at=1)
    landing.load()
    moved = path.rename(path.with_name("moved.csv"))
    assert landing.load() == []
    os.utime(moved)
    assert landing.load() == []


def test_a_file_that_was_moved_and_touched_is_a_new_one_and_the_plan_says_so(landing: Landing) -> None:
    path = landing.land("a.csv", "one", at=1)
    landing.load()
    os.utime(path.rename(path.with_name("moved.csv")))
    found = landing.look()
    assert found.copied == ("moved.csv",)
    assert "1 loaded as new, with the content of a file that is gone (moved.csv)" in found.notes
    assert landing.load() == ["moved.csv"]
    assert landing.look().copied == ()


@pytest.mark.parametrize("settle", [0, 60])
def test_files_that_rotate_through_their_names_are_each_loaded_once(landing: Landing, settle: int) -> None:
    now, how = 1_000 * SECOND, {"settle": timedelta(seconds=settle)}
    rotated = []
    for number in range(1, 6):
        for old in range(number - 1, 0, -1):
            name = "log.csv" if old == 1 else f"log.{old - 1}.csv"
            shutil.move(landing.root / "landing" / name, landing.root / "landing" / f"log.{old}.csv")
        landing.land("log.csv", f"line {number}", at=now)
        rotated += landing.load(now_ns=now + SECOND, **how)
        now += 100 * SECOND
        rotated += landing.load(now_ns=now - SECOND, **how)
    assert rotated == ["log.csv"] * 5
    assert landing.load(now_ns=now, **how) == []


def test_the_name_of_a_file_that_was_moved_away_is_free_for_another_in_a_later_run(landing: Landing) -> None:
    path = landing.land("a.csv", "one", at=1)
    landing.load()
    shutil.move(path, landing.root / "landing" / "b.csv")
    assert landing.load() == []
    landing.land("a.csv", "two", at=2)
    assert landing.load() == ["a.csv"]
    landing.land("a.csv", "three", at=3)
    with pytest.raises(IncrementError, match=r"other content now: a\.csv"):
        landing.look()


def test_files_that_change_places_are_known_and_one_that_is_moved_over_another_leaves_that_one_gone(
    landing: Landing,
) -> None:
    here, there = landing.land("a.csv", "one", at=1), landing.land("b.csv", "two", at=2)
    landing.load()
    shutil.move(here, here.with_name("c"))
    shutil.move(there, here)
    shutil.move(here.with_name("c"), there)
    assert landing.look().moved == ("a.csv", "b.csv")
    assert landing.load() == []
    shutil.move(here, there)
    found = landing.look()
    assert (found.new, found.moved, found.gone) == ((), ("b.csv",), ("b.csv",))


def shift(landing: Landing, old: str, new: str) -> None:
    target = landing.root / "landing" / new
    target.parent.mkdir(parents=True, exist_ok=True)
    (landing.root / "landing" / old).rename(target)


def test_a_move_to_a_folder_of_another_value_changes_the_rows_and_counts_as_a_rewrite(landing: Landing) -> None:
    landing.land("k=1/a.csv", at=1)
    landing.load()
    shift(landing, "k=1/a.csv", "k=2/a.csv")
    with pytest.raises(
        IncrementError, match=r"1 file of landing:x was loaded and moved to folders of other values, "
    ) as e:
        landing.look()
    assert e.value.message.endswith("which are columns: k=1/a.csv to k=2/a.csv")
    found = landing.look("reload")
    assert ([file.path for file in found.new], found.changed, found.moved, found.gone) == (
        ["k=2/a.csv"],
        ("k=2/a.csv",),
        (),
        (),
    )
    assert "1 moved to folders of other values, loaded again beside former rows (k=2/a.csv)" in found.notes
    assert landing.load("reload") == ["k=2/a.csv"]
    assert landing.load() == []
    landing.land("k=1/a.csv", "another", at=2)
    assert landing.load() == ["k=1/a.csv"], "the name is free"


def test_a_move_that_is_ignored_is_named_once_and_leaves_its_name_free(landing: Landing) -> None:
    landing.land("k=1/a.csv", at=1)
    landing.load()
    shift(landing, "k=1/a.csv", "k=2/a.csv")
    found = landing.look("ignore")
    assert (found.new, found.ignored, found.gone) == ((), ("k=2/a.csv",), ())
    assert "1 moved to folders of other values and ignored (k=2/a.csv)" in found.notes
    assert landing.load("ignore") == []
    found = landing.look()
    assert (found.new, [file.path for file in found.known], found.gone) == ((), ["k=2/a.csv"], ())
    landing.land("k=1/a.csv", "another", at=2)
    assert landing.load("ignore") == ["k=1/a.csv"]
    shift(landing, "k=2/a.csv", "k=3/a.csv")
    assert landing.look("ignore").ignored == ("k=3/a.csv",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k=1/a.csv", "k=1/b.csv"),
        ("in/k=1/a.csv", "done/k=1/deep/a.csv"),
        ("a=1/b=2/c.csv", "b=2/a=1/c.csv"),
        ("k=2024%2D01/a.csv", "K=2024-01/a.csv"),
        ("a.csv", "k=__HIVE_DEFAULT_PARTITION__/a.csv"),
        ("k=1/a.csv", "k=1/k=9.csv"),
    ],
)
def test_a_move_that_keeps_the_values_of_folders_is_known(landing: Landing, old: str, new: str) -> None:
    landing.land(old, at=1)
    landing.load()
    shift(landing, old, new)
    assert landing.look().moved == (new,)
    assert landing.load() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("k=1/a.csv", "a.csv"), ("a.csv", "k=1/a.csv"), ("k=1/a.csv", "k=1/k=2/a.csv"), ("k=+/a.csv", "k=%20/a.csv")],
)
def test_a_value_that_a_folder_gives_no_longer_or_newly_is_another_one(landing: Landing, old: str, new: str) -> None:
    landing.land(old, at=1)
    landing.load()
    shift(landing, old, new)
    assert landing.look("reload").changed == (new,)


def test_folders_that_are_no_columns_of_the_rows_give_no_values(landing: Landing) -> None:
    landing.land("state=new/day=1/a.csv", at=1)
    landing.load()
    shift(landing, "state=new/day=1/a.csv", "state=done/day=1/a.csv")
    assert landing.look(columns={"id", "day"}).moved == ("state=done/day=1/a.csv",)
    assert landing.look("reload", columns={"id", "state"}).changed == ("state=done/day=1/a.csv",)


def test_files_that_change_places_between_folders_are_both_loaded_again(landing: Landing) -> None:
    landing.land("k=1/a.csv", "one", at=1)
    landing.land("k=2/a.csv", "two", at=2)
    landing.load()
    shift(landing, "k=1/a.csv", "c")
    shift(landing, "k=2/a.csv", "k=1/a.csv")
    shift(landing, "c", "k=2/a.csv")
    assert landing.look("ignore").new == ()
    found = landing.look("reload")
    assert (sorted(found.changed), found.moved, found.gone) == (["k=1/a.csv", "k=2/a.csv"], (), ())
    landing.load("reload")
    assert landing.load() == []


def test_of_files_alike_those_of_the_same_folders_are_taken_for_moved(landing: Landing) -> None:
    for name in ("k=1/a.csv", "k=2/a.csv"):
        landing.land(name, "same", at=1)
    landing.load()
    shift(landing, "k=1/a.csv", "k=3/a.csv")
    shift(landing, "k=2/a.csv", "k=2/b.csv")
    found = landing.look("reload")
    assert (found.moved, found.changed, found.gone) == (("k=2/b.csv",), ("k=3/a.csv",), ())


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_links_below_folders_of_other_values_are_files_of_other_rows(landing: Landing, link: str) -> None:
    first = landing.root / "landing/k=1/a.csv"
    first.parent.mkdir(parents=True)
    path = landing.land("data", at=1)
    (os.link if link == "hard" else os.symlink)(path, first)
    landing.load()
    shift(landing, "k=1/a.csv", "k=2/a.csv")
    assert landing.load("reload") == ["k=2/a.csv"]


def test_a_connection_that_begins_below_a_folder_with_a_value_gives_other_rows(landing: Landing) -> None:
    landing.land("k=1/a.csv", at=1)
    landing.land("k=1/l=2/b.csv", at=2)
    landing.load()
    listed = [replace(file, path=file.path.removeprefix("k=1/")) for file in list_files(landing.base, "**/*.csv")]
    below = resolve(LocalConnection(base_path="landing/k=1"), "", landing.root)
    how: dict[str, Any] = {"on_change": "reload", "traits": WriteMode.UPSERT.traits}
    how["path_now"] = lambda path: path.removeprefix("k=1/")
    found = arrivals(below, landing.table, listed, landing.mark, "landing:x", **how)
    assert sorted(found.changed) == ["a.csv", "l=2/b.csv"]
    found = arrivals(below, landing.table, listed, landing.mark, "landing:x", columns={"l"}, **how)
    assert (found.new, found.changed) == ((), ())


def advice(landing: Landing, mode: WriteMode) -> str:
    with pytest.raises(IncrementError) as error:
        landing.look(traits=mode.traits)
    return str(error.value.fix)


def test_a_rule_is_advised_only_where_the_write_mode_can_hold_its_promise(landing: Landing) -> None:
    landing.land("a.csv", "one", at=1)
    landing.load()
    landing.land("a.csv", "two", at=2)
    for mode in WriteMode:
        text = advice(landing, mode)
        assert ("`reload`" in text) == mode.traits.takes_rows_again, mode
        assert ("`upsert`" in text) == (not mode.traits.takes_rows_again), mode
        assert ("`ignore`" in text) == (mode.traits.increment == "rows"), mode
        assert "put it back as it was, and land what is new under another name" in text


def test_files_alike_to_the_nanosecond_are_all_known_when_they_are_moved(landing: Landing) -> None:
    for name in ("a", "b", "c"):
        landing.land(f"{name}.csv", "same", at=1)
    landing.load()
    for name in ("a", "b"):
        shutil.move(landing.root / "landing" / f"{name}.csv", landing.root / "landing" / f"moved {name}.csv")
    assert landing.load() == []
    assert [file.path for file in landing.look().known] == ["c.csv", "moved a.csv", "moved b.csv"]


def test_a_loaded_file_that_lost_its_content_is_gone(landing: Landing) -> None:
    landing.land("a.csv", "one", at=1)
    landing.load()
    landing.land("a.csv", "", at=2)
    found = landing.look()
    assert (found.gone, found.empty, found.known, found.new) == (("a.csv",), (), (), ())


def test_another_file_of_the_same_time_and_size_is_no_move(landing: Landing) -> None:
    landing.land("a.csv", "one", at=1).unlink()
    path = landing.land("a.csv", "one", at=1)
    landing.load()
    path.unlink()
    landing.land("b.csv", "two", at=1)
    assert landing.load() == ["b.csv"]


def test_deleted_files_are_listed_and_stay_known(landing: Landing) -> None:
    path = landing.land("a.csv", at=1)
    landing.land("b.csv", at=2)
    landing.load()
    path.unlink()
    assert landing.look().gone == ("a.csv",)
    assert "1 gone, their rows stay (a.csv)" in landing.look().notes
    landing.load()
    landing.land("a.csv", at=1)
    assert landing.load() == []


def test_a_file_without_a_byte_is_skipped_and_loaded_once_it_has_content(landing: Landing) -> None:
    landing.land("a.csv", "", at=5)
    landing.land("b.csv", at=3)
    assert landing.look().empty == ("a.csv",)
    assert landing.load() == ["b.csv"]
    landing.land("a.csv", "x", at=2)
    assert landing.load() == ["a.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error_with_its_name(landing: Landing) -> None:
    landing.land("a.csv").chmod(0)
    with pytest.raises(SourceError, match=r"a\.csv cannot be read: Permission denied"):
        landing.look()


def test_a_ledger_that_is_gone_is_an_error_that_names_the_ways_out(landing: Landing) -> None:
    landing.land("a.csv")
    landing.load()
    shutil.rmtree(landing.root / "table")
    with pytest.raises(IncrementError, match=r"list of files that were loaded[\s\S]*odi state set[\s\S]*full-refresh"):
        landing.look()


@pytest.mark.slow
def test_an_hwm_stays_small_however_many_files_came_one_by_one(landing: Landing) -> None:
    parts: tuple[ledger.LedgerPart, ...] = ()
    written = 0
    for number in range(300):
        file = ledger.LoadedFile(f"{number}.csv", number, 1)
        parts, new = ledger.extend(landing.table, parts, [file], "x")
        assert new is not None
        ledger.write(landing.table, new)
        written += new.part.files
    assert len(parts) <= 9
    assert written <= 300 * 9
    assert len(ledger.read_parts(landing.table, parts, "x")) == 300
    changed, new = ledger.extend(landing.table, parts, [ledger.LoadedFile("7.csv", 999, 1)], "x")
    assert new is not None
    ledger.write(landing.table, new)
    assert ledger.read_parts(landing.table, changed, "x")["7.csv"] == replace(file, path="7.csv", mtime_ns=999)


def test_a_landing_of_many_files_is_compared_in_one_pass(tmp_path: Path) -> None:
    landing = Landing(tmp_path)

    def work(size: int) -> int:
        # A store tags the content of its files: nothing of them has to be read.
        store, listed = Location("s3://bucket/landing"), [SourceFile(n, f"{n}.csv", 1, "x") for n in range(size)]
        how: dict[str, Any] = {"on_change": "raise", "traits": WriteMode.APPEND.traits}
        return steps(lambda: arrivals(store, landing.table, listed, None, "landing:x", **how))

    assert grows_with_the_input(work, 250)
