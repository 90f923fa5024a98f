"""Commands that read the project file, and need no Spark, import nothing heavy."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark", "dagster", "pandas", "numpy", "pyarrow", "deltalake", "sqlglot", "croniter", "fsspec")


def test_the_room_imports_nothing_heavy() -> None:
    program = (
        "import sys, odi_assets.config, odi_assets.config.json_schema, odi_assets.connections;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
