"""Installed packages, as Python sees them: a folder on its path with the entry points that they declare."""

from __future__ import annotations

from pathlib import Path


def register_engine(name: str, place: str, site: Path) -> None:
    """Declare in ``site`` that the table engine ``name`` is the class at ``place``."""
    metadata = site / f"engine_{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: engine_{name}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[odi_assets.table_engines]\n{name} = {place}\n", encoding="utf-8")
