"""Names of nodes and folders for tables with any names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from odi_assets.config.models.fields import RESERVED_JOB_NAMES


def slug(text: str, otherwise: str) -> str:
    """``text`` with letters A-Z a-z, digits and ``_`` alone; ``otherwise`` if nothing of it is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "_", plain).strip("_") or otherwise


def job_name(text: str) -> str:
    """A name of a pipeline: Dagster keeps some words for itself."""
    found = slug(text, "db").lower()
    return f"{found}_db" if found in RESERVED_JOB_NAMES else found


def node_names(tables: Iterable[tuple[str, str]], taken: Iterable[str]) -> dict[tuple[str, str], str]:
    """By schema and table, the name of its node, which its folder has too.

    It is the table's name wherever that will do. Where several tables would have one name, each has its schema
    before it. No two names differ in capitals alone: some disks do not tell such folders apart.

    Args:
        taken: names that no table may have.
    """
    listed = list(tables)
    used = {name.lower() for name in taken}
    short = {one: slug(one[1], "table") for one in listed}
    counts: dict[str, int] = {}
    for name in short.values():
        counts[name.lower()] = counts.get(name.lower(), 0) + 1
    found: dict[tuple[str, str], str] = {}
    # Names that are given as they are come first, whatever others have to become.
    alone = [one for one in listed if counts[short[one].lower()] == 1 and short[one].lower() not in used]
    for one in alone:
        found[one] = short[one]
        used.add(short[one].lower())
    for one in listed:
        if one not in found:
            base = f"{slug(one[0], 'schema')}_{short[one]}"
            name, number = base, 1
            while name.lower() in used:
                number += 1
                name = f"{base}_{number}"
            found[one] = name
            used.add(name.lower())
    return {one: found[one] for one in listed}
