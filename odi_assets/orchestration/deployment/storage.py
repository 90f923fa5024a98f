"""The Dagster instance of a deployment and its storage: which one, whether its schema is the newest, and its clock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
import yaml
from dagster._core.instance import InstanceRef

from odi_assets.errors import ConfigError
from odi_assets.orchestration.deployment.look import Look, LookOutcome, not_looked_at, refused, right, wrong
from odi_assets.orchestration.runs.instance import (
    CONFIG_FILE,
    HOME_VARIABLE,
    database_error,
    home,
    instance_ref,
    is_of_database,
    require_absolute_folders,
    storage_data,
    wrong_settings,
)
from odi_assets.util.extras import install_command
from odi_assets.util.words import counted

INSTANCE, STORAGE, CLOCK = "instance", "storage", "clock"
_CLOCKS = {"postgresql": "SELECT extract(epoch FROM clock_timestamp())", "mysql": "SELECT unix_timestamp(now(6))"}
_SECONDS_APART = 2.0
"""How far the clock of this host may be from the database's."""


def find_home(root: Path) -> tuple[Path | None, Look]:
    """The home of the instance, if there is one that can be used, and what was seen of it."""
    try:
        folder = home(root)
        if folder is None:
            return None, wrong(
                INSTANCE,
                f"{HOME_VARIABLE} is not set, and {root} has no {CONFIG_FILE}: `odi run` records runs nowhere, and "
                "each of Dagster's processes would keep its own",
                f"set {HOME_VARIABLE} to one folder with a {CONFIG_FILE}, for every process",
            )
        require_absolute_folders(folder / CONFIG_FILE)
        ref = instance_ref(folder)
    except ConfigError as error:
        return None, refused(INSTANCE, error)
    why = f"by {HOME_VARIABLE}" if os.environ.get(HOME_VARIABLE) else "of the project"
    with_file = f"with a {CONFIG_FILE}" if (folder / CONFIG_FILE).is_file() else f"without a {CONFIG_FILE}"
    return folder, right(INSTANCE, f"home is {folder}, {why}, {with_file}; storage is {storage_data(ref).class_name}")


def open_storage(folder: Path) -> tuple[dg.DagsterInstance | None, list[Look]]:
    """The instance, if its storage answers and has a schema, and what was seen of it. Tables are not made."""
    ref = InstanceRef.from_dir(str(folder), overrides=_without_making_tables(folder / CONFIG_FILE))
    try:
        instance = dg.DagsterInstance.from_ref(ref)
        looks = [*_schema(instance)]
    except dg.DagsterInvalidConfigError as error:
        return None, [refused(STORAGE, wrong_settings(folder, error))]
    except Exception as error:
        if not is_of_database(error):
            raise
        return None, [wrong(STORAGE, f"it does not answer: {database_error(error)}", _reach(ref))]
    if any(look.outcome is LookOutcome.WRONG for look in looks):
        return None, looks
    runs = counted(instance.get_runs_count(), "run")
    looks.append(right(STORAGE, f"{_address(instance)}: its schema is the newest; {runs}"))
    return instance, [*looks, *_driver(instance)]


def look_at_clock(instance: dg.DagsterInstance) -> Look:
    """The clock of this host against the database's."""
    with _connected(instance) as connection:
        question = _CLOCKS.get(connection.dialect.name)
        if question is None:
            return not_looked_at(CLOCK, f"{connection.dialect.name} has the clock of this host")
        began = time.time()
        there = float(connection.execute(sa.text(question)).scalar_one())
        ended = time.time()
    apart = max(there - ended, began - there, 0.0)
    if apart <= _SECONDS_APART:
        return right(CLOCK, f"this host's and the database's are within {_SECONDS_APART:g} s")
    side = "behind" if there > ended else "ahead of"
    return wrong(CLOCK, f"this host is {apart:.1f} s {side} the database", "let NTP set both: heartbeats are times")


def _without_making_tables(path: Path) -> dict[str, Any]:
    settings = (yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}
    storage = {
        name: {**section, "should_autocreate_tables": False}
        for name, section in (settings.get("storage") or {}).items()
        if name in ("postgres", "mysql") and isinstance(section, dict)
    }
    return {"storage": storage} if storage else {}


def _reach(ref: InstanceRef) -> str:
    return f"start it, or correct `storage` of {CONFIG_FILE} (of {storage_data(ref).class_name})"


def _schema(instance: dg.DagsterInstance) -> Iterator[Look]:
    """What is wrong with the tables of each part of the storage."""
    parts = {"runs": instance.run_storage, "events": instance.event_log_storage, "schedules": instance.schedule_storage}
    remedy = "run `dagster instance migrate` once, before the other processes start"
    behind: dict[str, list[str]] = {}
    for name, part in parts.items():
        asked = getattr(part, "alembic_version", None)
        if asked is None:
            yield not_looked_at(STORAGE, f"the schema of {name}: {type(part).__name__} has no revision")
            continue
        there, newest = asked()
        if there != newest:
            fault = "has no tables" if there is None else f"has tables of revision {there}, and Dagster is at {newest}"
            behind.setdefault(fault, []).append(name)
    for fault, names in behind.items():
        yield wrong(STORAGE, f"{_address(instance)} {fault}, for {', '.join(names)}", remedy)


def _driver(instance: dg.DagsterInstance) -> Iterator[Look]:
    with _connected(instance) as connection:
        if (connection.dialect.name, connection.dialect.driver) == ("postgresql", "psycopg"):
            yield wrong(
                STORAGE,
                f"SQLAlchemy {sa.__version__} takes psycopg 3 for it, and Dagster writes for psycopg2: each launch of "
                "a run ends with a syntax error at `NOTIFY`",
                f"{install_command('postgres-storage')}, or `scheme: postgresql+psycopg2` in {CONFIG_FILE}",
            )


def _address(instance: dg.DagsterInstance) -> str:
    with _connected(instance) as connection:
        return str(connection.engine.url.render_as_string(hide_password=True))


def _connected(instance: dg.DagsterInstance) -> Any:
    """A connection of the storage of runs; all of Dagster's own storages are SQLAlchemy's."""
    return instance.run_storage.connect()  # type: ignore[attr-defined]
