"""Finds the project file for Dagster, and makes a mistake in it readable where Dagster shows it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import dagster as dg

from odi_assets.errors import OdiError
from odi_assets.nodes.project import DEFAULT_PROJECT_FILE, PROJECT_VARIABLE, Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.runs.at_once import run_executor

_CLONE = Path(__file__).resolve().parents[2]


def project_file() -> Path:
    """``$ODI_PROJECT``, else ``odibi.yaml`` of the current folder, else the one beside this package."""
    named = os.environ.get(PROJECT_VARIABLE)
    if named:
        return Path(named)
    here = Path(DEFAULT_PROJECT_FILE)
    return here if here.is_file() or not (_CLONE / here).is_file() else _CLONE / here


def load_definitions() -> dg.Definitions:
    """The definitions of the project file.

    Raises:
        OdiError: the project file has mistakes; the message lists them all. It has no traceback, because Dagster would
            show one below the message.
    """
    try:
        project = Project.load(project_file())
        # Assets picked in the UI run outside a pipeline's job; they share one JVM too.
        definitions = build_definitions(project, executor=run_executor(project))
    except OdiError as error:
        raise error.with_traceback(None) from None
    for warning in project.warnings:
        logging.getLogger(__name__).warning(warning)
    return definitions
