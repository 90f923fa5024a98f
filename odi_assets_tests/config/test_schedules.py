"""Time zones, freshness and jobs of tags, as a project file has them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project
from odi_assets_tests.config.support import load, node, place, problem, project, write

RAW = """\
- name: raw
  tags: [nightly]
  read: {connection: lake, format: csv, path: in/*.csv}
  write: {connection: lake, path: raw}
"""
JOBS = "jobs:\n- {job: night, tags: [nightly], schedule: '0 2 * * *', timezone: Europe/Oslo}\n"


def test_a_node_says_how_fresh_its_table_must_be(tmp_path: Path) -> None:
    found = node(tmp_path, f"{RAW}  freshness: {{within: 26h, warn_after: 25h}}\n").freshness
    assert found is not None
    assert (found.within, found.warn_after) == (timedelta(hours=26), timedelta(hours=25))


@pytest.mark.parametrize(
    ("given", "word", "message"),
    [
        ("{within: soon}", "soon", "is not a time span"),
        ("{within: 30s}", "30s", "is too short: Dagster looks at freshness in minutes"),
        ("{within: 1h, warn_after: 2h}", "2h", "must be shorter than `within`"),
    ],
)
def test_a_freshness_that_cannot_be_is_refused_where_it_stands(
    given: str, word: str, message: str, tmp_path: Path
) -> None:
    text = project(f"{RAW}  freshness: {given}\n")
    found = problem(tmp_path, text)
    assert message in found.message
    assert (found.line, found.column) == place(text, word)


def test_freshness_is_no_part_of_what_a_node_computes(tmp_path: Path) -> None:
    versions = set()
    for text in (project(RAW), project(f"{RAW}  freshness: {{within: 26h}}\n")):
        loaded = Project.load(write(tmp_path, text))
        (key,) = loaded.graph.order()
        versions.add(code_version(loaded, key))
    assert len(versions) == 1


def test_a_pipeline_has_its_own_time_zone_or_that_of_the_project(tmp_path: Path) -> None:
    text = project(RAW)
    assert Project.load(write(tmp_path, text)).timezone_of("p") == "UTC"
    everywhere = f"{text}automation: {{timezone: Asia/Tokyo}}\n"
    assert Project.load(write(tmp_path, everywhere)).timezone_of("p") == "Asia/Tokyo"
    own = everywhere.replace("- pipeline: p\n", "- pipeline: p\n    timezone: Europe/Oslo\n")
    assert Project.load(write(tmp_path, own)).timezone_of("p") == "Europe/Oslo"


def test_a_time_zone_that_is_none_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    for zone, meant in (("Europe/Olso", "Europe/Oslo"), ("../etc", None), ("Europe", None)):
        text = f"{project(RAW)}automation: {{timezone: {zone}}}\n"
        found = problem(tmp_path, text)
        assert "is not a time zone" in found.message
        assert (found.line, found.column) == place(text, zone)
        assert meant is None or found.suggestion == meant


def test_a_job_has_the_nodes_with_its_tags_of_all_pipelines(tmp_path: Path) -> None:
    other = RAW.replace("raw", "other").replace("  tags: [nightly]\n", "").replace("in/", "other/")
    late = f"  - pipeline: late\n    tags: [nightly]\n    nodes:\n    {other.replace(chr(10), chr(10) + '    ')}"
    plain = RAW.replace("raw", "plain").replace("  tags: [nightly]\n", "").replace("in/", "plain/")
    loaded = Project.load(write(tmp_path, f"{project(RAW, plain)}{late}\n{JOBS}"))
    assert {str(key) for key in loaded.nodes_with(loaded.config.jobs[0].tags)} == {"p.raw", "late.other"}


@pytest.mark.parametrize(
    ("jobs", "word", "message"),
    [
        (JOBS.replace("night,", "p,"), "p, tags", "`p` is the name of another job"),
        (JOBS + JOBS.splitlines()[1].replace("nightly", "nightly") + "\n", "night, tags", "is the name of another job"),
        (JOBS.replace("[nightly]", "[nighty]"), "nighty]", "`nighty` is the tag of no node"),
        (JOBS.replace("0 2 * * *", "0 2 * *"), "'0 2 * *'", "is not a schedule"),
    ],
)
def test_a_job_that_cannot_be_is_refused_where_it_stands(jobs: str, word: str, message: str, tmp_path: Path) -> None:
    text = f"{project(RAW)}{jobs}"
    found = problem(tmp_path, text)
    assert message in found.message
    last = text.rindex(word)
    assert found.line == text[:last].count("\n") + 1


def test_a_tag_that_was_misspelled_is_suggested(tmp_path: Path) -> None:
    assert problem(tmp_path, project(RAW) + JOBS.replace("[nightly]", "[nighty]")).suggestion == "nightly"


def test_an_environment_switches_schedules_on(tmp_path: Path) -> None:
    text = f"{project(RAW)}environments: {{prod: {{automation: {{default_status: running}}}}}}\n"
    assert load(tmp_path, text).config.automation.default_status == "stopped"
    assert Project.load(write(tmp_path, text), "prod").config.automation.default_status == "running"
