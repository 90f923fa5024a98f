"""HWMs in a few words, for tables and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from odi_assets.sources.model import UNKNOWN


def hwm_text(hwm: Any) -> str | None:
    """``flights/2013-01-15.csv``, ``version 4``, ``2013-01-15T00:00:00``; None for no HWM."""
    if hwm is None:
        return None
    if hwm is UNKNOWN:
        return str(UNKNOWN.value)
    if isinstance(hwm, dict):
        if {"mtime_ns", "path"} <= set(hwm) <= {"mtime_ns", "path", "ledger"}:
            return str(hwm["path"])
        if "version" in hwm and set(hwm) <= {"version", "table_id"}:
            return f"version {hwm['version']}"
        return ", ".join(f"{name} {hwm_text(value)}" for name, value in hwm.items())
    if isinstance(hwm, datetime):
        return hwm.astimezone(UTC).isoformat().replace("+00:00", "Z") if hwm.tzinfo else hwm.isoformat()
    return str(hwm)
