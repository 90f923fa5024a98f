"""A console logger for runs from the shell, where `odi` itself says what happens."""

from __future__ import annotations

import logging

import dagster as dg


def _is_engine_event(record: logging.LogRecord) -> bool:
    # Dagster logs each of its events; a failed step comes with pages of stack. The caller prints the error instead.
    return getattr(record, "dagster_meta", {}).get("dagster_event") is not None


@dg.logger(config_schema={}, description="Warnings and errors that nodes log themselves, on stderr.")
def quiet_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Warnings that nodes log; nothing that Dagster says of its own steps."""
    del context
    logger = logging.Logger("odi_assets.run", level=logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.addFilter(lambda record: not _is_engine_event(record))
    logger.addHandler(handler)
    return logger
