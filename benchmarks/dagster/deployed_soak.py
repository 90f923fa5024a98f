"""The soak over a deployment on PostgreSQL: two code servers, webserver and daemon, and SIGTERM to each in turn while
files arrive, sensors, a schedule and backfills overlap."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import dagster as dg

from benchmarks.dagster.deployed import MOST_RUNS, Deployment, running_deployment
from benchmarks.dagster.soak import (
    BACKFILL,
    DAYS,
    PATIENCE,
    PROJECT_FILE,
    SOURCES,
    Landing,
    automation,
    await_quiet,
    backfill_all,
    backfill_of,
)
from benchmarks.dagster.soak_findings import Findings
from benchmarks.harness import Options, Row
from odi_assets.nodes.project import Project
from odi_assets.orchestration.deployment.examine import examine_deployment
from odi_assets.orchestration.deployment.look import LookOutcome
from odi_assets.orchestration.runs.instance import HOME_VARIABLE, open_instance
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, postgres

_FILE_EVERY, _REPLACE_EVERY, _BACKFILL_EVERY = 3.0, 20.0, 45.0


def deployed(options: Options) -> list[Row]:
    """Some minutes of everything at once, while services end. The folder stays if that falls short."""
    folder = Path(tempfile.mkdtemp(prefix="deployed-"))
    with database() as variables:
        rows = soak_deployment(options, folder, variables)
    if all(row.holds for row in rows):
        shutil.rmtree(folder)
    else:
        options.say(f"the projects and the logs of all services are in {folder}")
    return rows


@contextmanager
def database() -> Iterator[dict[str, str]]:
    """A new PostgreSQL server for Dagster, as variables of the production ``dagster.yaml``."""
    with tempfile.TemporaryDirectory(prefix="dagster-") as folder, postgres(Path(folder)) as server:
        place = {"HOST": "127.0.0.1", "PORT": str(server.port), "USER": USER, "PASSWORD": PASSWORD, "DB": DATABASE}
        yield {f"DAGSTER_POSTGRES_{name}": value for name, value in place.items()}


def soak_deployment(options: Options, folder: Path, variables: Mapping[str, str]) -> list[Row]:
    """The soak in ``folder``, with Dagster's storage where ``variables`` say."""
    landing = Landing(folder / "landing")
    for source in SOURCES:
        landing.land(source)
    projects = _projects(folder)
    home = {HOME_VARIABLE: str(folder / "home")}
    with (
        running_deployment(folder, projects, variables) as deployment,
        patch.dict(os.environ, {**variables, **home}),
        open_instance(folder) as instance,
    ):
        options.say(f"{options.minutes:g} minutes of files, backfills and services that end")
        with automation(deployment.server, {name: name for name in projects}):
            replaced = _live(landing, deployment, options)
            for source in SOURCES:
                landing.land(source)
            backfill_all(landing, deployment.server)
        options.say("waiting until nothing happens any more")
        settled = await_quiet(instance, deployment.server)
        findings = Findings(folder, instance, deployment.server, {}, {}, options.say)
        rows = findings.of_tables(settled, PATIENCE)
        return [*rows, *_of_deployment(deployment, projects, instance, replaced, options)]


def _projects(folder: Path) -> dict[str, Path]:
    """The soak's project file as two, over one lake: `shop`, and `air`. The broken node stays out."""
    begin, broken, air = map(PROJECT_FILE.index, ("  - pipeline: shop", "      - name: broken", "  - pipeline: air"))
    parts = {"shop": PROJECT_FILE[begin:broken], "air": PROJECT_FILE[air:]}
    for name, part in parts.items():
        head = PROJECT_FILE[:begin].replace("project: soak", f"project: {name}")
        (folder / f"{name}.yaml").write_text(head + part, encoding="utf-8")
    return {name: folder / f"{name}.yaml" for name in parts}


def _live(landing: Landing, deployment: Deployment, options: Options) -> int:
    began = time.monotonic()
    files, replaced, last, backfilled = 0, 0, 0.0, 0.0
    draw = random.Random(options.seed)
    while (now := time.monotonic() - began) < options.minutes * 60 or replaced < len(deployment.services):
        if now >= files * _FILE_EVERY:
            landing.land(SOURCES[files % len(SOURCES)])
            files += 1
        if now - backfilled >= _BACKFILL_EVERY and landing.is_loaded:
            what = backfill_of(draw.sample(DAYS, draw.randint(1, len(DAYS))))
            deployment.server.ask(BACKFILL, what=what)
            backfilled = now
        if now - last >= _REPLACE_EVERY:
            service = deployment.services[replaced % len(deployment.services)]
            options.say(f"  SIGTERM: {service}")
            deployment.replace(service)
            replaced, last = replaced + 1, time.monotonic() - began
        time.sleep(0.25)
    return replaced


def _of_deployment(
    deployment: Deployment, projects: Mapping[str, Path], instance: dg.DagsterInstance, replaced: int, options: Options
) -> list[Row]:
    wrong = [
        look.found
        for path in projects.values()
        for look in examine_deployment(Project.load(path), deployment.server.address)
        if look.outcome is LookOutcome.WRONG
    ]
    strays = deployment.strays()
    for fault in (*wrong, *strays):
        options.say(f"  {fault}")
    backfills = deployment.server.backfills("COMPLETED_SUCCESS")
    runs = instance.get_runs_count()
    return [
        Row("runs", runs, None, "", None, "> 0", runs > 0),
        Row("backfills that succeeded", backfills, None, "", None, "> 0", backfills > 0),
        Row("services that got SIGTERM", replaced, None, "", None, ">= 4", replaced >= len(deployment.services)),
        Row("JVMs at once", deployment.most_jvms, None, "", None, f"<= {MOST_RUNS}", deployment.most_jvms <= MOST_RUNS),
        Row("what odi doctor --deployment finds", len(wrong), None, "", None, "0", not wrong),
        Row("files in the folders of the services", len(strays), None, "", None, "0", not strays),
    ]
