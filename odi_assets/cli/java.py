"""``odi java``: which Java Spark starts, and the class-data archive that it starts from."""

from __future__ import annotations

from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any

import typer

from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import data, data_json, moment, note
from odi_assets.config.models import SparkConfig
from odi_assets.errors import ConfigError, OdiError
from odi_assets.spark.jvm.archive import Archive
from odi_assets.spark.jvm.java import find_java
from odi_assets.spark.jvm.launch import DirectStartUnavailable, archive_of, launch_command
from odi_assets.spark.jvm.prepare import prepare as prepare_archive
from odi_assets.spark.jvm.scripts_home import home_for_scripts
from odi_assets.spark.session import classic_conf

if TYPE_CHECKING:
    from odi_assets.spark.jvm.java import Java
    from odi_assets.spark.jvm.launch import LaunchCommand


def show(settings: Settings, as_json: JsonOption = False) -> None:
    """Say which Java runs Spark, and which archive of classes it starts from, or why there is none."""
    java, archive, _ = _standing(settings)
    _print(java, archive, as_json)


def prepare(settings: Settings, as_json: JsonOption = False) -> None:
    """Make the archive of classes now. A run without one makes it behind itself."""
    java, archive, command = _standing(settings)
    if command is not None and (archive.is_usable or archive.can_be_made or archive.has_failed):
        if not as_json:
            note("The archive is looked at, and made if there is none; that takes half a minute ...")
        try:
            archive = prepare_archive(command.class_path, command.options, insist=True)
        except (OSError, SubprocessError) as error:
            raise OdiError(f"the archive could not be made: {error}", fix="try again; runs do without it") from error
    _print(java, archive, as_json)
    if not archive.is_usable:
        raise typer.Exit(FAILED)


def _standing(settings: Settings) -> tuple[Java, Archive, LaunchCommand | None]:
    """The Java, the archive and the command line of the project's JVMs; without a project, of any project's JVMs."""
    try:
        path = settings.project_file
    except ConfigError:
        path = None
    config = settings.project().config.spark if path is not None else SparkConfig()
    java = find_java()
    try:
        command = launch_command(java, classic_conf(config))
    except DirectStartUnavailable as reason:
        return java, Archive(reason=str(reason)), None
    return java, archive_of(command), command


def _print(java: Java, archive: Archive, as_json: bool) -> None:
    file = str(archive.folder) if archive.is_usable else None
    if as_json:
        facts: dict[str, Any] = {
            "java": {
                "version": java.version,
                "executable": str(java.executable),
                "found_by": java.found_by,
                "home_for_scripts": str(home_for_scripts(java)),
            },
            "archive": {
                "folder": file,
                "made_at": archive.made_at.isoformat() if archive.made_at else None,
                "bytes": archive.size or None,
                "reason": archive.reason,
            },
        }
        data_json(facts)
        return
    data(f"java     {java.version}, {java.executable} (by {java.found_by})")
    if archive.is_usable and archive.made_at is not None:
        since = moment(archive.made_at)
        data(f"archive  {file}, {archive.size / 1e6:,.0f} MB, since {since} UTC")
    else:
        data(f"archive  none: {archive.reason}")
        if archive.remedy:
            note(f"  → {archive.remedy}")
        if archive.can_be_made:
            note("  → the next run makes it behind itself; `odi java prepare` makes it now")
