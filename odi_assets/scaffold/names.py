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
    name = slug(text, "db").lower()
    return f"{name}_db" if name in RESERVED_JOB_NAMES else name


def node_names(tables: Iterable[tuple[str, str]], taken: Iterable[str]) -> dict[tuple[str, str], str]:
    """By schema and table, the name of its node, which its folder has too.

    It is the table's name wherever that will do. Where several tables would have one name, each has its schema
    before it. No two names differ in capitals alone: some disks do not tell such folders apart.

    Args:
        taken: names that no table may have.
    """
    listed = list(tables)
    used = {name.lower() for name in taken}
    short = {listed_table: slug(listed_table[1], "table") for listed_table in listed}
    counts: dict[str, int] = {}
    for name in short.values():
        counts[name.lower()] = counts.get(name.lower(), 0) + 1
    names: dict[tuple[str, str], str] = {}
    # Names that are given as they are come first, whatever others have to become.
    alone = [
        listed_table
        for listed_table in listed
        if counts[short[listed_table].lower()] == 1 and short[listed_table].lower() not in used
    ]
    for table in alone:
        names[table] = short[table]
        used.add(short[table].lower())
    for table in listed:
        if table not in names:
            base = f"{slug(table[0], 'schema')}_{short[table]}"
            name, number = base, 1
            while name.lower() in used:
                number += 1
                name = f"{base}_{number}"
            names[table] = name
            used.add(name.lower())
    return {listed_table: names[listed_table] for listed_table in listed}
