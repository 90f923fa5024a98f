"""NumPy's values on their way to the JVM, without pandas."""

from __future__ import annotations

from typing import Any


class _OfNumpy:
    """A converter of PySpark that is asked about NumPy's values alone.

    PySpark's own asks its test utilities whether there is NumPy, whatever the value, and these import pandas and
    protobuf: half a second for each process.
    """

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def can_convert(self, value: Any) -> bool:
        """Whether ``value`` is of NumPy, and the converter takes it."""
        of_numpy = any(base.__module__.partition(".")[0] == "numpy" for base in type(value).__mro__)
        return of_numpy and bool(self._converter.can_convert(value))

    def convert(self, value: Any, client: Any) -> Any:
        """As the converter converts it."""
        return self._converter.convert(value, client)


def look_at_numpy_values_alone() -> None:
    """Let PySpark's converters of NumPy's values look at no other value."""
    from py4j.protocol import INPUT_CONVERTER  # type: ignore[import-untyped]
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    for place, converter in enumerate(INPUT_CONVERTER):
        if isinstance(converter, NumpyArrayConverter | NumpyScalarConverter):
            INPUT_CONVERTER[place] = _OfNumpy(converter)
