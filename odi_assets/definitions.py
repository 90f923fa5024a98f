"""Dagster's entry point: the definitions of the project file, ``$ODI_PROJECT`` or ``odibi.yaml``.

The file is looked for in the current folder and then in the folder this package was cloned to.
"""

from __future__ import annotations

from odi_assets.orchestration.entry import load_definitions

defs = load_definitions()
