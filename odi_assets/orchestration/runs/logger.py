"""A console logger for runs from the shell, where `odi` itself says what happens."""

from __future__ import annotations

import logging

import dagster as dg

from odi_assets.spark.gateway import debugging

_GIVEN_UP = "Dependencies for step "


def _is_dagsters_own(record: logging.LogRecord) -> bool:
    # Dagster logs each of its events, a failed step with pages of stack, and the steps it gives up below one.
    # The caller prints the error and the skipped nodes instead.
    meta = getattr(record, "dagster_meta", {})
    return meta.get("dagster_event") is not None or _GIVEN_UP in record.getMessage()


@dg.logger(config_schema={}, description="Warnings and errors that nodes log themselves, on stderr.")
def quiet_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Warnings that nodes log; nothing that Dagster says of its own steps."""
    del context
    logger = logging.Logger("odi_assets.run", level=logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    if not debugging():
        handler.addFilter(lambda record: not _is_dagsters_own(record))
    logger.addHandler(handler)
    return logger
