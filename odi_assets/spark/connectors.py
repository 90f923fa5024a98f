"""Hadoop's connectors, by which Spark reaches stores: which one a session lacks, and the package that brings it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from odi_assets.errors import ConfigError

_MISSING = {
    # The class that odi asks for, or that Hadoop's own settings name.
    re.compile(r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.s3a\.\w+ not found"): "s3a",
    re.compile(r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.azurebfs\.\w+ not found"): "abfss",
    re.compile(r"ClassNotFoundException: Class com\.google\.cloud\.hadoop\.[\w.]+ not found"): "gs",
}
_PACKAGES = {
    "s3a": "`spark: {packages: ['org.apache.hadoop:hadoop-aws:HADOOP']}`",
    "abfss": "`spark: {packages: ['org.apache.hadoop:hadoop-azure:HADOOP']}`",
    "gs": "`spark: {packages: ['com.google.cloud.bigdataoss:gcs-connector:…']}`, in a version for Hadoop HADOOP",
}


def missing_connector(text: str, who: str) -> ConfigError | None:
    """The error for a session that lacks a store's connector, if the ``text`` of an error of Spark says so.

    Example:
        >>> text = "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
        >>> missing_connector(text, "shop.orders").fix
        "name it in the project file: `spark: {packages: ['org.apache.hadoop:hadoop-aws:3.5.0']}`"
    """
    scheme = next((scheme for missing, scheme in _MISSING.items() if missing.search(text)), None)
    if scheme is None:
        return None
    package = _PACKAGES[scheme].replace("HADOOP", _hadoop_version())
    return ConfigError(
        f"{who}: Spark has no connector for {scheme}://", fix=f"name it in the project file: {package}", scheme=scheme
    )


def _hadoop_version() -> str:
    """The version of Hadoop that the installed pyspark brings. Hadoop's connectors have to be of the same version."""
    spec = find_spec("pyspark")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    jars = [] if folder is None else sorted(folder.glob("hadoop-client-api-*.jar"))
    return jars[-1].stem.removeprefix("hadoop-client-api-") if jars else "VERSION"
