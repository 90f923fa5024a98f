"""PySpark's question whether there is NumPy, answered without pandas."""

from __future__ import annotations

from pyspark.sql.pandas import utils


def load_test_utilities() -> None:
    """Load PySpark's test utilities, which it asks for each value and literal whether there is NumPy.

    They import pandas to learn whether it is there: half a second for each process. It is there, in a right version:
    this package requires it. So it is imported only where somebody uses it.
    """
    ask = utils.require_minimum_pandas_version
    utils.require_minimum_pandas_version = lambda: None
    try:
        import pyspark.testing.utils  # noqa: F401
    finally:
        utils.require_minimum_pandas_version = ask
