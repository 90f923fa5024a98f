"""Values of NumPy reach the JVM as they do in PySpark alone, and other values do not bring pandas."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
handle = open_session(SparkConfig(master="local[1]"))
spark = handle.spark
from pyspark.sql import functions as F
count = spark.range(3).where(F.col("id") > F.lit(1)).count()
heavy = "pandas" in sys.modules
import numpy as np
from pyspark.testing.utils import have_numpy, have_pandas

class Own(np.ndarray):
    pass

literal = [np.int64(2), np.float32(0.5), np.bool_(True), np.str_("a"), np.array([1, 2]), np.array([0.5]).view(Own)]
(row,) = spark.range(1).select(*(F.lit(value).alias(str(place)) for place, value in enumerate(literal))).collect()
equal = spark.range(3).where(F.col("id") == np.int64(2)).count()
print(json.dumps([count, heavy, list(row), equal, have_numpy, have_pandas]))
handle.stop()
"""


@pytest.mark.usefixtures("jvm")
def test_a_session_brings_no_pandas_and_takes_numpys_values() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    count, heavy, row, equal, *there = json.loads(done.stdout.splitlines()[-1])
    assert (count, heavy, equal, there) == (1, False, 1, [True, True])
    assert row == [2, 0.5, True, "a", [1, 2], [0.5]]
